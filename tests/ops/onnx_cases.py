"""The ONNX project's own cases for its operators, as data"""

import contextlib
import pickle
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.catalogue import TYPES

CACHE = Path(__file__).parents[2] / ".pytest_cache"
CHANGED = {"DFT": 20}  # the operator set in which the axis became an input
KINDS = "fiub"  # of element types: float, signed and unsigned integers, boolean
WIDTHS = (
    np.dtype("float32"),
    np.dtype("float64"),
)  # of the floating-point ones; the others are reported apart


@dataclass(frozen=True)
class Case:
    """One node with its inputs and what ONNX expects of it."""

    name: str
    node: Node
    version: int  # of ONNX's operator set
    inputs: tuple[Any, ...]  # NumPy arrays, None where one is left out
    expected: tuple[Any, ...]  # NumPy arrays, None where nobody asks
    rtol: float
    atol: float

    @property
    def context(self) -> NodeContext:
        """Where the node stands, of which nothing is known but itself."""
        return NodeContext(self.node, random=np.random.default_rng(0))

    def __str__(self) -> str:
        return self.name


@cache
def one_node() -> tuple[Case, ...]:
    """The cases of one operator of the catalogue, of float32, float64, integer and boolean types."""
    return tuple(case for case in _cases() if all(map(_covered, _arrays(case))))


@cache
def of_halves() -> tuple[Case, ...]:
    """The cases that `one_node` leaves out because of float16 or bfloat16, and for nothing else."""
    return tuple(
        case
        for case in _cases()
        if any(map(_is_half, _arrays(case)))
        and all(_is_half(array) or _covered(array) for array in _arrays(case))
    )


def _arrays(case: Case) -> tuple[object, ...]:
    return tuple(array for array in (*case.inputs, *case.expected) if array is not None)


@cache
def _cases() -> tuple[Case, ...]:
    """The cases of one operator of the catalogue, of all types."""
    found = []
    for case in _collected():
        graph = case.model.graph
        if len(graph.node) != 1 or graph.node[0].op_type not in TYPES or graph.node[0].domain:
            continue
        version = max(entry.version for entry in case.model.opset_import if entry.domain in ("", "ai.onnx"))
        proto = graph.node[0]
        if version < CHANGED.get(proto.op_type, 0):
            continue  # a network has it converted
        for inputs, outputs in case.data_sets:
            given = dict(zip((value.name for value in graph.input), map(_array, inputs), strict=False))
            wanted = dict(zip((value.name for value in graph.output), map(_array, outputs), strict=False))
            found.append(
                Case(
                    case.name,
                    node(proto),
                    version,
                    tuple(given.get(name) for name in proto.input),
                    tuple(wanted.get(name) for name in proto.output),
                    case.rtol,
                    case.atol,
                )
            )
    return tuple(found)


def node(proto: onnx.NodeProto) -> Node:
    """The node as d5ray has it."""
    return Node(
        proto.op_type,
        tuple(proto.input),
        tuple(proto.output),
        {each.name: _attribute(each) for each in proto.attribute},
        proto.name,
        proto.domain,
    )


def check(case: Case, found: Mapping[int, Any] | tuple[Any, ...]) -> None:
    """Every output that the case expects is there, of its type and shape, and as near as ONNX asks."""
    for index, expected in enumerate(case.expected):
        if expected is None:
            continue
        array = np.asarray(found[index])
        assert array.dtype == expected.dtype
        assert array.shape == expected.shape
        if _is_half(expected):  # NumPy compares bfloat16 in float32 only
            array, expected = array.astype(np.float32), expected.astype(np.float32)
        np.testing.assert_allclose(array, expected, rtol=case.rtol, atol=case.atol)


def _array(value: object) -> object:
    """The value as an array, where it is a scalar of NumPy or a tensor of ONNX."""
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, np.generic) else value


def _is_half(array: object) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.name in ("float16", "bfloat16")


def _covered(array: object) -> bool:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in KINDS:
        return False
    return array.dtype.kind != "f" or array.dtype in WIDTHS


def _attribute(proto: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(proto)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, (list, tuple)) or (hasattr(value, "__iter__") and not isinstance(value, str)):
        return tuple(each.decode() if isinstance(each, bytes) else each for each in value)
    return value


@cache
def _collected() -> list[Any]:
    """All of ONNX's cases: computing them takes ten seconds, so pytest's cache keeps them."""
    kept = CACHE / f"onnx_cases_{onnx.__version__}.pickle"
    with contextlib.suppress(FileNotFoundError):
        cases: list[Any] = pickle.loads(kept.read_bytes())
        return cases
    cases = _computed()
    CACHE.mkdir(exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=CACHE, delete=False) as file:  # several processes do this at once
        pickle.dump(cases, file, protocol=5)
    Path(file.name).rename(kept)
    return cases


def _computed() -> list[Any]:
    """ONNX's own code warns where it computes outside a domain."""
    import warnings  # noqa: PLC0415

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases  # noqa: PLC0415

        return collect_testcases()


@cache
def listed(of: str) -> Mapping[str, str]:
    """What cannot pass, with the reason: a framework's cases, or, by pattern of the name, whole models."""
    with Path(__file__).with_name("exceptions.toml").open("rb") as file:
        return dict(tomllib.load(file)[of])
