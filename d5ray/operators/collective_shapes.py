"""Types and shapes of the outputs of a split network's nodes"""

from collections.abc import Callable

from d5ray.errors import ConfigurationError
from d5ray.operators import collectives as types
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import Dimension, TensorDescriptor

Described = tuple[TensorDescriptor | None]


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


for _type, _rule in {
    types.ALL_REDUCE: unchanged,
    types.ALL_REDUCE_GRADIENT: unchanged,
    types.ALL_GATHER: gathered,
    types.SCATTER: divided,
    types.REDUCE_SCATTER: divided,
    types.DROPOUT: unchanged,
}.items():
    inference.register(types.DOMAIN, _type, _rule)  # type: ignore[arg-type]  # None: nothing is known
