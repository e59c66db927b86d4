"""Axes of layers: products, convolutions, pooling, normalization, recurrent layers, attention"""

from collections import Counter

from d5ray.networks.axes.axis_map import (
    CHANNELS,
    COLUMNS,
    HEADS,
    INNER,
    INPUTS,
    OUTPUTS,
    ROWS,
    SAMPLES,
    SUM,
    AxisMap,
    CannotDivide,
    Labels,
    rank_of,
    shape_of,
)
from d5ray.operators.nodes.node_context import NodeContext


def matrix_product(context: NodeContext) -> AxisMap:
    """MatMul, (…, rows, inner) by (…, inner, columns); axes of the stack are counted from the last."""
    ranks = rank_of(context, 0), rank_of(context, 1)
    if ranks[0] < 2:
        raise CannotDivide("it multiplies vectors, over whose elements it sums")
    stacks: list[Labels] = [tuple(range(2 - rank, 0)) for rank in ranks]
    left, right = stacks
    stack = max(stacks, key=len)
    if ranks[1] == 1:
        return AxisMap(((*left, ROWS, INNER), (INNER,)), ((*left, ROWS),), "sums over", SUM)
    inputs: tuple[Labels, ...] = (*left, ROWS, INNER), (*right, INNER, COLUMNS)
    return AxisMap(inputs, ((*stack, ROWS, COLUMNS),), "sums over", SUM, broadcasts=True)


def gemm(context: NodeContext) -> AxisMap:
    """A B + C, where A and B may be transposed, and C broadcasts."""
    a, b = (ROWS, INNER), (INNER, COLUMNS)
    inputs: list[Labels] = [
        a[::-1] if context.attribute("transA", 0) else a,
        b[::-1] if context.attribute("transB", 0) else b,
    ]
    if context.has_input(2):
        inputs.append((ROWS, COLUMNS)[2 - rank_of(context, 2) :])
    return AxisMap(tuple(inputs), ((ROWS, COLUMNS),), "sums over", SUM, broadcasts=True)


def einsum(context: NodeContext) -> AxisMap:
    """Einsum: the letters, but for those that stand twice in one term."""
    equation = str(context.required("equation")).replace(" ", "")
    if "." in equation:
        raise CannotDivide(f"its equation {equation!r} does not name all axes")
    inputs, arrow, output = equation.partition("->")
    counts = Counter(inputs.replace(",", ""))
    if not arrow:
        output = "".join(sorted(each for each, count in counts.items() if count == 1))
    terms = [*inputs.split(","), output]
    twice = {each for term in terms for each, count in Counter(term).items() if count > 1}
    *read, made = (tuple(None if each in twice else each for each in term) for term in terms)
    return AxisMap(tuple(read), (made,), "takes the diagonal along", SUM)


def convolution(context: NodeContext) -> AxisMap:
    """Conv and ConvTranspose: (samples, inputs, …) by filters of inputs and outputs, all in one group."""
    rest: Labels = (None,) * (rank_of(context, 0) - 2)
    filters = (OUTPUTS, INPUTS) if context.node.type == "Conv" else (INPUTS, OUTPUTS)
    inputs = (SAMPLES, INPUTS, *rest), (*filters, *rest), (OUTPUTS,)
    return AxisMap(inputs[: len(context.node.inputs)], ((SAMPLES, OUTPUTS, *rest),), reduction=SUM)


def by_channel(context: NodeContext) -> AxisMap:
    """Pooling and normalization: (samples, channels, …), with values for every channel."""
    if context.node.type == "MaxPool" and context.has_output(1):
        raise CannotDivide("its indices are counted from the first sample on")
    own: Labels = (SAMPLES, CHANNELS, *(None,) * (rank_of(context, 0) - 2))
    values = (CHANNELS,) * (len(context.node.inputs) - 1)
    made = [own] + [(CHANNELS,)] * (len(context.node.outputs) - 1)
    return AxisMap((own, *((each,) for each in values)), tuple(made))


def by_sample(context: NodeContext) -> AxisMap:
    """Operators that work along all axes but the samples'."""
    own: Labels = (SAMPLES, *(None,) * (rank_of(context, 0) - 1))
    return AxisMap((own,), (own,) * len(context.node.outputs))


def recurrent(context: NodeContext) -> AxisMap:
    """RNN, GRU, LSTM: (steps, samples, …), or (samples, steps, …) where the layout is 1."""
    if context.attribute("layout", 0):
        own: Labels = (SAMPLES, None, None)
        made: Labels = (SAMPLES, None, None, None)
    else:
        own, made = (None, SAMPLES, None), (None, None, SAMPLES, None)
    inputs = own, (), (), (), (SAMPLES,), own, own
    return AxisMap(inputs[: len(context.node.inputs)], (made, own, own)[: len(context.node.outputs)])


def attention(context: NodeContext) -> AxisMap:
    """Softmax(Q Kᵀ) V, head by head; a mask has its last axes.

    (samples, heads, positions, size), or (samples, positions, heads · size), where heads are attributes.
    """
    apart: Labels = (SAMPLES, HEADS, None, None)
    own: Labels = (SAMPLES, None, HEADS) if rank_of(context, 0) == 3 else apart
    mask = _of_more(context, 3, apart) if context.has_input(3) and rank_of(context, 3) == 4 else ()
    inputs = own, own, own, mask, apart, apart, (SAMPLES,)
    outputs = (own, apart, apart, apart)[: len(context.node.outputs)]
    return AxisMap(inputs[: len(context.node.inputs)], outputs)


def rotary_embedding(context: NodeContext) -> AxisMap:
    """RotaryEmbedding: laid out as attention is; angles are of every position, or of every sample's too."""
    own: Labels = (SAMPLES, None, HEADS) if rank_of(context, 0) == 3 else (SAMPLES, HEADS, None, None)
    angles = [(SAMPLES, None, None) if rank_of(context, slot) == 3 else () for slot in (1, 2)]
    places = _of_more(context, 3, (SAMPLES, None)) if context.has_input(3) else ()
    return AxisMap((own, *angles, places), (own,))


def _of_more(context: NodeContext, slot: int, labels: Labels) -> Labels:
    """The labels of the axes that have more than one element; one stands for all."""
    return tuple(
        None if size == 1 else each for size, each in zip(shape_of(context, slot), labels, strict=True)
    )
