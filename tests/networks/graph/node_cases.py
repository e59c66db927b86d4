"""ONNX's cases of nodes as networks: right, or refused before anything runs, under every framework

python -m tests.networks.graph.node_cases    # writes docs/reference/onnx.rst
"""

import importlib
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import OF_ML_DTYPES
from tests.ops.onnx_cases import _array, _collected

FRAMEWORKS = ("numpy", "torch", "tensorflow")
NAMES = {"numpy": "NumPy", "torch": "PyTorch", "tensorflow": "TensorFlow"}
PAGE = Path(__file__).parents[3] / "docs" / "reference" / "onnx.rst"
STEPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}  # the distance of 1 to the next number
DRAWING = frozenset({"Bernoulli", "RandomUniformLike"})


@dataclass(frozen=True)
class Verdict:
    """What came of a case: right, refused, wrong or crashed, and why."""

    name: str
    kind: str
    why: str = ""


@cache
def loaded(number: int) -> Network | str:
    """The network of a case, or why it is refused."""
    model = onnx.ModelProto()
    model.CopyFrom(_collected()[number].model)
    try:
        return Network.from_onnx(model)
    except ConfigurationError as error:
        return str(error)


def verdicts(framework: str) -> Iterator[Verdict]:
    """Of every case, in their order."""
    module = importlib.import_module(f"d5ray.frameworks.{framework}")
    for number, case in enumerate(_collected()):
        network = loaded(number)
        if isinstance(network, str):
            yield Verdict(case.name, "refused", network)
            continue
        try:
            trains = training(case.model)
            executor = module.from_onnx(with_loss(network) if trains else network.copy())
        except ConfigurationError as error:
            yield Verdict(case.name, "refused", str(error))
            continue
        try:
            differences = [_difference(case, executor, trains, *data) for data in case.data_sets]
            why = next(filter(None, differences), "")
            yield Verdict(case.name, "wrong" if why else "right", why)
        except Exception as error:  # whatever a framework comes upon is what is looked for
            yield Verdict(case.name, "crashed", f"{type(error).__name__}: {error}")


def training(model: onnx.ModelProto) -> bool:
    """Whether a node does another thing in training passes, and the case expects that."""
    return any(
        (node.op_type == "Dropout" and len(node.input) > 2)
        or any(each.name == "training_mode" and each.i for each in node.attribute)
        for node in model.graph.node
    )


def with_loss(network: Network) -> Network:
    """The network with a loss, so that it can be trained: a training pass gives its outputs too."""
    own = network.copy()
    first = next(name for name, each in own.outputs.items() if each.dtype.kind == "f")
    own.add_parameter("slope", np.ones((), own.outputs[first].dtype))
    own.add_node(Node("Mul", (first, "slope"), ("sloped",), name="sloped"))
    own.add_node(Node("ReduceSum", ("sloped",), ("loss",), {"keepdims": 0}, name="loss"))
    return own


def _difference(case: Any, executor: Any, trains: bool, inputs: Any, outputs: Any) -> str:
    """Of what comes out from what ONNX expects; nothing where all is well."""
    given = {
        name: _array(value)
        for name, value in zip((each.name for each in case.model.graph.input), inputs, strict=True)
        if value is not None
    }
    found = executor.inference_and_backprop(given) if trains else executor.inference(given)
    for value, wanted in zip(case.model.graph.output, outputs, strict=True):
        expected: Any = _array(wanted)
        array = found[value.name]
        if (array.dtype, array.shape) != (expected.dtype, expected.shape):
            return f"{array.dtype} {array.shape} for {expected.dtype} {expected.shape}"
        numbers, wished = array, expected
        if expected.dtype.name in OF_ML_DTYPES:
            numbers, wished = array.astype(np.float32), expected.astype(np.float32)
        if any(node.op_type in DRAWING for node in case.model.graph.node):
            if not np.isin(numbers, (0, 1)).all():
                return "a draw that is neither 0 nor 1"
            continue
        if trains and "Dropout" in (node.op_type for node in case.model.graph.node):
            if why := _not_dropped(array, [*given.values()]):
                return why
            continue
        rtol = max(case.rtol, 2 * STEPS.get(expected.dtype.name, 0.0))
        if not np.allclose(numbers, wished, rtol=rtol, atol=case.atol, equal_nan=True):
            return "values"
    return ""


def _not_dropped(array: Any, given: list[Any]) -> str:
    """Each framework drops others: what stays must be scaled, what goes be 0."""
    if array.dtype == bool:
        return ""
    ratio = float(given[1]) if len(given) > 2 else 0.5
    kept = np.zeros_like(array) if ratio == 1 else given[0] / (1 - ratio)
    return "" if (np.isclose(array, 0) | np.isclose(array, kept, rtol=1e-5)).all() else "no scaled input"


def types_in(graph: onnx.GraphProto) -> set[str]:
    """The operator types of a graph, and of what stands within its nodes."""
    found = set()
    for node in graph.node:
        found.add(node.op_type)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= types_in(attribute.g)
    return found


@cache
def _types() -> dict[str, set[str]]:
    return {case.name: types_in(case.model.graph) for case in _collected()}


def operator_of(verdict: Verdict) -> str:
    """The operator type of the case that the reason names; the longest one of several.

    Where a function of ONNX's is written out, it is one of those that its body has.
    """
    types = _types()[verdict.name]
    named = [each for each in types if re.search(rf"\b{each}\b", verdict.why)]
    if not named and len(types) == 1 and re.search(r"the node .* \(\w+\)", verdict.why):
        return next(iter(types))
    return max(named, key=len, default="")


def page(found: Mapping[str, list[Verdict]]) -> str:
    """What the docs show: how many cases are right, and all that is refused, with the reason."""
    lines = [
        "Operators of ONNX",
        "=================",
        "",
        f"ONNX's project has {len(_collected()):,} cases of nodes (onnx {onnx.__version__}). Each is loaded",
        "as a network and run under every framework; it is right, or refused before anything runs. What",
        "draws at random is held to its type, its shape and its range. ``make test-full`` compares this",
        "page, which ``python -m tests.networks.graph.node_cases`` writes.",
        "",
        *_table([("Framework", "right", "share", "refused"), *_counts(found)]),
        "Refused",
        "-------",
        "",
        *_table([("Operator", "cases", "under", "because"), *_refused(found)]),
    ]
    return "\n".join(lines)


def _counts(found: Mapping[str, list[Verdict]]) -> Iterator[tuple[str, ...]]:
    for framework, each in found.items():
        count = Counter(verdict.kind for verdict in each)
        share = f"{count['right'] / len(each):.1%}"
        yield NAMES[framework], f"{count['right']:,}", share, str(count["refused"])


def _refused(found: Mapping[str, list[Verdict]]) -> Iterator[tuple[str, ...]]:
    where: dict[tuple[str, str], dict[str, int]] = {}
    for framework, verdicts_ in found.items():
        for verdict in verdicts_:
            if verdict.kind == "refused":
                key = operator_of(verdict), _plain(verdict.why)
                counts = where.setdefault(key, {})
                counts[framework] = counts.get(framework, 0) + 1
    for (operator, why), counts in sorted(where.items()):
        under = "all" if len(counts) == len(found) else ", ".join(NAMES[each] for each in counts)
        yield operator, str(max(counts.values())), under, why


def _plain(why: str) -> str:
    """A reason without the names of one network, and without advice."""
    why = re.sub(r"'[^']*'", "…", why).partition("; register")[0].partition("; networks have")[0]
    why = re.sub(r"the node \S+ \(", "the node … (", why)
    return re.sub(r"\s+", " ", why.replace("*", r"\*").replace("`", "").replace("|", "/")).partition(
        ": make it"
    )[0]


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows:
        for place, cell in enumerate(row):
            text = textwrap.wrap(cell, 100, break_long_words=False, break_on_hyphens=False) or [""]
            lines += [f"   {'*' if not place else ' '} - {text[0]}", *(f"       {more}" for more in text[1:])]
    return [*lines, ""]


def main() -> None:
    """Write the page."""
    PAGE.write_text(
        page({framework: list(verdicts(framework)) for framework in FRAMEWORKS}), encoding="utf-8"
    )


if __name__ == "__main__":
    main()
