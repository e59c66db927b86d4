"""Axes of the samples in a network's tensors, and which operators mix them"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from d5ray.networks.axes.axis_map import CannotDivide
from d5ray.networks.microbatch.rules import RULES, after_reduction, collective
from d5ray.networks.microbatch.samples import (
    AVERAGE,
    SHARED,
    SIZES,
    SUM,
    UNKNOWN,
    Kind,
    Kinds,
    MixesSamples,
    SampleAxis,
)
from d5ray.networks.network import Network
from d5ray.operators import collectives
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension


@final
@dataclass(frozen=True)
class SampleAxes:
    """The kind of each tensor, by name; and, by the name of a node, why it mixes samples."""

    kinds: Mapping[str, Kind]
    mixing: Mapping[str, str]


def whereabouts(network: Network, nodes: Iterable[Node], *, training: bool) -> SampleAxes:
    """The axis of the samples in every tensor that these nodes of a network read or make, in their order."""
    open_sizes = {shape[0] for each in network.inputs.values() if (shape := each.shape) and _open(shape[0])}
    kinds: dict[str, Kind] = {name: SampleAxis(0) for name in sample_inputs(network)}
    mixing: dict[str, str] = {}
    for node in nodes:
        context = network.site(node, evaluating=not training)
        held = tuple(kinds.get(name, SHARED) for name in node.inputs)
        try:
            made = _held_by(context, held, open_sizes)
        except CannotDivide as error:
            mixing[node.name] = str(error)
            made = error.kind if isinstance(error, MixesSamples) else UNKNOWN
        for place, name in enumerate(node.outputs):
            if name:
                kinds[name] = made[place] if isinstance(made, tuple) else made
    return SampleAxes(kinds, mixing)


def sample_inputs(network: Network) -> tuple[str, ...]:
    """The inputs with a slice for every sample: whose first axis is open, or as long as the first one's."""
    shapes = {name: each.shape for name, each in network.inputs.items() if each.shape is None or each.shape}
    first = {name: None if shape is None else shape[0] for name, shape in shapes.items()}
    if any(_open(size) for size in first.values()):
        return tuple(name for name, size in first.items() if _open(size))
    return tuple(name for name, size in first.items() if size == next(iter(first.values())))


def _held_by(context: NodeContext, held: Kinds, open_sizes: set[Dimension]) -> Kind | Kinds:
    """The kinds of a node's outputs. Raises `MixesSamples`."""
    node = context.node
    if UNKNOWN in held:
        name = node.inputs[held.index(UNKNOWN)]
        raise MixesSamples(f"its input {name!r} is made of several samples")
    if node.type in ("Shape", "Size") and not node.domain and isinstance(held[0], SampleAxis):
        return SIZES
    if node.domain == collectives.DOMAIN:
        return collective(context, held)
    if all(kind in (SHARED, SIZES) for kind in held):
        return _without_samples(context, held, open_sizes)
    if AVERAGE in held or SUM in held:
        return after_reduction(context, held)
    if node.type not in RULES or node.domain not in ("", "ai.onnx", "d5ray"):
        raise MixesSamples("nothing is known about whether it mixes samples")
    return RULES[node.type](context, held)


def _without_samples(context: NodeContext, held: Kinds, open_sizes: set[Dimension]) -> Kind:
    """The kinds of sizes: of sizes come sizes, or a row for each sample, all of which are alike."""
    if SIZES not in held:
        return SHARED
    made = context.outputs[0] if context.outputs else None
    if context.node.type in ("Expand", "ConstantOfShape") and made is not None and made.shape is not None:
        places = [axis for axis, size in enumerate(made.shape) if size in open_sizes and size is not None]
        if len(places) == 1:
            return SampleAxis(places[0])
    return SIZES


def _open(size: Dimension) -> bool:
    return not isinstance(size, int)
