"""Nodes of a split network: what each exchanges, its group, and the types and shapes of its outputs"""

from collections.abc import Callable

from d5ray.errors import ConfigurationError
from d5ray.operators.collectives import DOMAIN as DOMAIN
from d5ray.operators.collectives import Exchanging
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

Described = tuple[TensorDescriptor | None]

# Forwards and backwards, for a tensor that every part holds whole, divided along an axis, or as a summand:
ALL_REDUCE = "AllReduce"  # summands to their sum; the gradient as it is
ALL_REDUCE_GRADIENT = "AllReduceGradient"  # the tensor as it is; its gradients are summands of one
ALL_GATHER = "AllGather"  # parts to the whole; of the gradient the own part, of `sums_gradients` its sum
SCATTER = "Scatter"  # the own part of a whole; the gradient's parts to the whole
REDUCE_SCATTER = "ReduceScatter"  # of the summands' sum the own part; the gradient's parts to the whole
DROPOUT = "Dropout"  # the mask of the whole is drawn, and its part used
EXCHANGING = (ALL_REDUCE, ALL_REDUCE_GRADIENT, ALL_GATHER, SCATTER, REDUCE_SCATTER)


def group_of(context: NodeContext) -> Exchanging:
    """The communicator for a node of `DOMAIN`, now.

    Raises `ConfigurationError` where the executor was given none, or one of another part.
    """
    index, parts = int(context.required("index")), int(context.required("parts"))
    group: Exchanging | None = None if context.collectives is None else context.collectives.communicator
    if group is None:
        raise ConfigurationError(
            f"the node {context.node} exchanges tensors with the other parts of a split network: give the "
            "executor collectives=Collectives(communicator) of their group, before its first pass"
        )
    if (group.rank, group.size) != (index, parts):
        raise ConfigurationError(
            f"the node {context.node} belongs to part {index} of {parts}, and the communicator is that of "
            f"rank {group.rank} of {group.size}: make the network with split(network, plan, "
            f"index={group.rank}, parts={group.size})"
        )
    return group


def unchanged(context: NodeContext) -> Described:
    """The type and shape of the input."""
    return (context.inputs[0],)


def gathered(context: NodeContext) -> Described:
    """The axis is `parts` times as long."""
    parts = int(context.required("parts"))
    return _along_axis(context, lambda size: whole_size(size, parts))


def divided(context: NodeContext) -> Described:
    """The axis is a `parts`-th as long."""
    parts, blocks = int(context.required("parts")), int(context.attribute("blocks", 1))
    return _along_axis(context, lambda size: part_size(size, parts, blocks))


def part_size(size: Dimension, parts: int, blocks: int = 1) -> Dimension:
    """The size of a part's axis, from that of the whole; an open one has a name that says so.

    >>> part_size(12, 3), part_size("batch", 3)
    (4, 'batch/3')
    """
    if isinstance(size, str):
        return f"{size}/{parts}"
    if size is not None and size % (parts * blocks):
        of_blocks = f" in {blocks} blocks" if blocks > 1 else ""
        raise ConfigurationError(f"{size} elements{of_blocks} cannot be divided into {parts} equal parts")
    return None if size is None else size // parts


def whole_size(size: Dimension, parts: int) -> Dimension:
    """The size of the whole's axis, from that of a part.

    >>> whole_size(4, 3), whole_size("batch/3", 3)
    (12, 'batch')
    """
    if isinstance(size, str):
        return size.removesuffix(f"/{parts}") if size.endswith(f"/{parts}") else None
    return None if size is None else size * parts


def _along_axis(context: NodeContext, changed: Callable[[Dimension], Dimension]) -> Described:
    given = context.inputs[0]
    if given is None or given.shape is None:
        return (given,)
    axis = int(context.required("axis"))
    if not 0 <= axis < len(given.shape):
        raise ConfigurationError(f"it has no axis {axis}")
    shape = list(given.shape)
    shape[axis] = changed(shape[axis])
    return (TensorDescriptor(given.dtype, shape),)
