"""Differences of networks: the first node that differs, in structure or values, with error norms"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from d5ray.checks import check_kind, check_rate
from d5ray.errors import ConfigurationError, ValidationError
from d5ray.networks.graph.fingerprints import fingerprints, same_attributes, tensor_fingerprints
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.validation.error_norms import ErrorNorms, error_norms

Arrays = Mapping[str, np.ndarray[Any, Any]]


@final
@dataclass(frozen=True)
class StructuralDifference:
    """The first node, in the order of the first network, that the second has not, and what there is instead.

    node is None where the second network has all nodes of the first and more; other where it has nothing in
    the node's place. Both are None where only the outputs differ.
    """

    node: Node | None
    other: Node | None
    why: str

    def __str__(self) -> str:
        return self.why


@final
@dataclass(frozen=True)
class TensorDifference:
    """The difference between a tensor of one run and that of another.

    node: what makes it, None for what comes from outside. norms: None where the tensors cannot be subtracted,
    and why says what is between them.
    """

    node: Node | None
    tensor: str
    norms: ErrorNorms | None
    why: str = ""

    @property
    def passed(self) -> bool:
        """True if the tensors can be subtracted and differ by no more than rounding."""
        return self.norms is not None and self.norms.passed

    def __str__(self) -> str:
        place = f"the node {self.node}" if self.node else "from outside"
        return f"{place}: {self.norms or self.why}"


@final
@dataclass(frozen=True)
class Comparison:
    """Every tensor that two runs have, in the order in which they were computed."""

    tensors: tuple[TensorDifference, ...]

    @property
    def first(self) -> TensorDifference | None:
        """The first tensor that differs by more than rounding, None where none does."""
        return next((each for each in self.tensors if not each.passed), None)

    def __str__(self) -> str:
        count = sum(not each.passed for each in self.tensors)
        if self.first is None:
            return f"all {len(self.tensors)} tensors agree"
        return f"{count} of {len(self.tensors)} tensors differ, first {self.first}"


def structural_difference(first: Network, second: Network) -> StructuralDifference | None:
    """The first node where two networks part, whatever their names are; None if they compute the same.

    Values of parameters and state do not count, those of constants do.
    """
    for name, network in (("first", first), ("second", second)):
        check_kind(name, network, Network, "a Network, such as Network.from_onnx(path)")
    marks, others = fingerprints(first.graph), fingerprints(second.graph)
    unmatched = _unmatched(second, others, marks)
    for node in _unmatched(first, marks, others):
        other = _counterpart(node, unmatched)
        return StructuralDifference(node, other, _why(first, second, node, other))
    if unmatched:
        return StructuralDifference(
            None,
            unmatched[0],
            f"the second network has one more node: {unmatched[0]}, of {len(unmatched)} more",
        )
    ends, other_ends = (
        [tensor_fingerprints(each.graph).get(name) for name in each.outputs] for each in (first, second)
    )
    if ends != other_ends:
        return StructuralDifference(
            None,
            None,
            f"the nodes are the same, and the outputs are others: {', '.join(first.outputs)}, and "
            f"{', '.join(second.outputs)}",
        )
    return None


def compare_values(
    network: Network,
    found: Arrays,
    expected: Arrays,
    *,
    other: Network | None = None,
    tolerance: float | None = None,
) -> Comparison:
    """The differences between the tensors of one run and those of another, node by node.

    found, expected: tensors by name, such as all that two executors computed; those that only one has are
    left out. other: the network of which `expected` are, where it is another: tensors are then paired by
    what computes them, and where that differs by their names. tolerance: a relative one; by default that of
    the tensors' type. Raises `ConfigurationError` where there is nothing to compare.
    """
    check_kind("network", network, Network, "a Network, such as Network.from_onnx(path)")
    check_kind("other", other, Network | None, "a Network, such as Network.from_onnx(path)")
    for name, arrays in (("found", found), ("expected", expected)):
        check_kind(name, arrays, Mapping, "a dictionary of arrays by the tensors' names")
    if tolerance is not None:
        check_rate("tolerance", tolerance, zero=True)
    pairs = list(_pairs(network, network if other is None else other))
    compared = tuple(
        _compared(node, name, found[name], expected[partner], tolerance)
        for node, name, partner in pairs
        if name in found and partner in expected
    )
    if not compared:
        raise ConfigurationError(
            f"there is nothing to compare in the network {network.name!r}: it has none of the tensors "
            f"{', '.join(map(repr, list(found)[:6]))}, or they are not in both runs"
        )
    return Comparison(compared)


def _pairs(network: Network, other: Network) -> Iterator[tuple[Node | None, str, str]]:
    """The tensors of one network with those of another: (what makes it, its name, the other's)."""
    marks = tensor_fingerprints(network.graph)
    names: dict[str, list[str]] = {}
    if other is not network:
        for name, mark in tensor_fingerprints(other.graph).items():
            names.setdefault(mark, []).append(name)
    outside = (*network.inputs, *network.parameters, *network.state_values, *network.constants)
    yield from ((None, name, name) for name in outside)
    for node in network.nodes:
        for name in node.outputs:
            if name:
                same = names.get(marks[name], [])
                yield node, name, name if name in same or not same else same.pop(0)


def _compared(
    node: Node | None, name: str, found: Any, expected: Any, tolerance: float | None
) -> TensorDifference:
    try:
        norms = error_norms(name, np.asarray(found), np.asarray(expected), tolerance)
    except ValidationError as error:
        return TensorDifference(node, name, None, str(error))
    return TensorDifference(node, name, norms)


def _unmatched(network: Network, own: Mapping[str, str], others: Mapping[str, str]) -> list[Node]:
    """The nodes of a network that another has not, as many as are too many."""
    left = Counter(others.values())
    found = []
    for node in network.nodes:
        if left[own[node.name]] > 0:
            left[own[node.name]] -= 1
        else:
            found.append(node)
    return found


def _counterpart(node: Node, candidates: list[Node]) -> Node | None:
    for same in (
        [each for each in candidates if each.name == node.name],
        [each for each in candidates if each.outputs == node.outputs],
        candidates,
    ):
        if same:
            return same[0]
    return None


def _why(first: Network, second: Network, node: Node, other: Node | None) -> str:
    if other is None:
        return f"the second network has no node like {node}"
    begin = f"the first node that differs is {node}, and {other} in the second network"
    if (node.domain, node.type) != (other.domain, other.type):
        return f"{begin}: they are of different types"
    if not same_attributes(node, other):
        apart = [
            f"{name}={node.attributes.get(name)!r} and {other.attributes.get(name)!r}"
            for name in sorted({*node.attributes, *other.attributes})
            if repr(node.attributes.get(name)) != repr(other.attributes.get(name))
        ]
        return f"{begin}: their attributes differ: {', '.join(apart)}"
    marks, others = tensor_fingerprints(first.graph), tensor_fingerprints(second.graph)
    for slot in range(max(len(node.inputs), len(other.inputs))):
        name, partner = (each.inputs[slot] if slot < len(each.inputs) else "" for each in (node, other))
        if marks[name] != others[partner]:
            shown = (
                f"{tensor!r} ({each.descriptors.get(tensor)})" if tensor else "nothing"
                for each, tensor in ((first, name), (second, partner))
            )
            return f"{begin}: as input {slot} they read {' and '.join(shown)}"
    return begin
