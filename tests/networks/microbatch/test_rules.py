"""Claims about which operators mix samples: what is let through is, sample by sample, what it is whole"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.executor import MicroBatched
from d5ray.networks.microbatch.rules import RULES
from d5ray.networks.microbatch.sample_axes import whereabouts
from d5ray.networks.microbatch.samples import AVERAGE, SUM, SampleAxis
from d5ray.networks.microbatch.transform import DRAWING
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import Array, executor
from tests.ops.onnx_cases import Case, one_node

UNSEEN = (  # draw at random, are not ONNX's, or fix or mix the samples in all of ONNX's cases
    "Dropout", "MeanSquaredError", "RandomNormalLike", "RandomUniformLike",
    "Reshape", "Tile", "Trilu",
)  # fmt: skip
A_TYPE = 5  # cases


def cases() -> list[Case]:
    """ONNX's own, the first of each type."""
    seen: Counter[str] = Counter()
    found = []
    for case in one_node():
        seen[case.node.type] += 1
        if case.node.type not in DRAWING and seen[case.node.type] <= A_TYPE:
            found.append(case)
    return found


def readings(case: Case) -> Iterator[tuple[Network, dict[str, Array]]]:
    """The case as networks in which axis 0 or 1 of its first input, or of all that fit, are the samples."""
    given = {
        name: value
        for name, value in zip(case.node.inputs, case.inputs, strict=False)
        if name and isinstance(value, np.ndarray)
    }
    if not given:
        return
    first, value = next(iter(given.items()))
    for axis in range(min(2, value.ndim)):
        size = value.shape[axis]
        fitting = [name for name, each in given.items() if each.ndim > axis and each.shape[axis] == size]
        choices: list[tuple[dict[str, Array], tuple[str, ...]]]
        if size == 1 and value.dtype.kind == "f":  # most images of ONNX's cases are single ones
            more = np.concatenate([value, value * value.dtype.type(0.5), -value], axis)
            choices = [({**given, first: more}, (first,))]
        else:
            choices = [(given, sampled) for sampled in {(first,), tuple(fitting)}]
        for each, sampled in choices:
            try:
                yield read(case.node, each, sampled, axis)
            except ConfigurationError:
                continue  # older forms of an operator, and shapes that ONNX's inference cannot follow


def read(
    node: Node, given: dict[str, Array], sampled: tuple[str, ...], axis: int
) -> tuple[Network, dict[str, Array]]:
    """A network that takes samples along axis 0, and puts them where the case has them."""
    network, fed = Network("case"), {}
    with network.changes():
        for name, value in given.items():
            if name not in sampled:
                network.add_constant(name, value)
                continue
            order = (axis, *(each for each in range(value.ndim) if each != axis))
            fed[f"{name}_in"] = np.ascontiguousarray(value.transpose(order))
            sizes = fed[f"{name}_in"].shape[1:]
            network.add_input(f"{name}_in", TensorDescriptor(value.dtype, ("n", *sizes)))
            back = tuple(int(each) for each in np.argsort(order))
            network.add_node(Node("Transpose", (f"{name}_in",), (name,), {"perm": back}))
        network.add_node(Node(node.type, node.inputs, node.outputs, node.attributes, domain=node.domain))
        for name in filter(None, node.outputs):
            network.add_output(name)
    return network, fed


def let_through(network: Network) -> bool:
    """Whether every output can be put together from parts."""
    found = whereabouts(network, network.nodes, training=False)
    kinds = [found.kinds[name] for name in filter(None, network.nodes[-1].outputs)]
    return not found.mixing and all(isinstance(each, SampleAxis) or each in (AVERAGE, SUM) for each in kinds)


def compare(case: Case) -> int:
    """How many readings of a case are let through; each is computed as a whole, and sample by sample."""
    compared = 0
    for network, fed in readings(case):
        if not let_through(network):
            continue
        whole: dict[str, Any] = executor("numpy", network).inference(fed)
        parts = MicroBatched(executor("numpy", network), 1).inference(fed)
        for name, value in whole.items():
            assert parts[name].shape == value.shape, (case.name, name)
            np.testing.assert_allclose(
                parts[name], value, rtol=1e-4, atol=1e-5, err_msg=f"{case.name} {name}", equal_nan=True
            )
        compared += 1
    return compared


@pytest.mark.full
def test_what_is_let_through_does_not_mix_samples() -> None:
    """Under ONNX's own cases; every type that has a rule is let through in one of them, but for a few."""
    seen: Counter[str] = Counter()
    for case in cases():
        seen[case.node.type] += compare(case)
    through = {kind for kind, count in seen.items() if count}
    assert set(RULES) - through <= set(UNSEEN)
