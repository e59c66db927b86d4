"""The formulas behind `d5ray.ops.counting.flops`: operations from sizes and attributes"""

import math
from collections.abc import Callable

from d5ray.ops.counting.counted_context import Counted
from d5ray.ops.equation import Equation


def none(node: Counted) -> int:
    """0, for operators that move, select or convert elements."""
    return 0


def each_output(count: int) -> Callable[[Counted], int]:
    """This many operations for each element of the first output."""
    return lambda node: count * node.written


def each_input(count: int) -> Callable[[Counted], int]:
    """This many operations for each element of the first input."""
    return lambda node: count * node.read


def operands(node: Counted) -> int:
    """The operations on operands, element by element: one less than there are operands."""
    return max(1, len(node.inputs) - 1) * node.written


def mean(node: Counted) -> int:
    """The operations of a mean: the sum of the operands, and its division."""
    return len(node.inputs) * node.written


def each_operand(node: Counted) -> int:
    """Backwards, the slope with respect to each operand and its product with the gradient."""
    return 2 * len(node.inputs) * node.written


def matmul(node: Counted) -> int:
    """2·M·N·K for each pair of matrices."""
    return 2 * node.written * node.input(0)[-1]


def gemm(node: Counted) -> int:
    """2·M·N·K, and one for each element that C is added to."""
    inner = node.input(0)[0 if node.context.attribute("transA", 0) else 1]
    return 2 * node.written * inner + node.written * node.has(2)


def einsum_indices(node: Counted) -> int:
    """The size of the space that is summed over and kept: one for each combination of all indices."""
    shapes = [node.input(index) for index in range(len(node.inputs))]
    equation = Equation.parsed(node.context, shapes)
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values())


def einsum(node: Counted) -> int:
    """The products of the operands for each combination of indices, and a sum where indices vanish."""
    space = einsum_indices(node)
    summed = space != node.written
    return space * (len(node.inputs) - 1 + summed)


def conv(node: Counted) -> int:
    """2·batch·features·windows·(channels / groups)·kernel, and the bias."""
    return 2 * node.written * math.prod(node.input(1)[1:]) + node.written * node.has(2)


def conv_transpose(node: Counted) -> int:
    """The operations of the Conv whose gradient it is, and the bias."""
    return 2 * node.read * math.prod(node.input(1)[1:]) + node.written * node.has(2)


def pool(count: int) -> Callable[[Counted], int]:
    """This many operations for each element of each window."""
    return lambda node: count * node.written * math.prod(node.context.required("kernel_shape"))


def batch_normalization(node: Counted) -> int:
    """The operations by the batch's statistics, or by given ones."""
    return (7 if trains(node) else 2) * node.written


def batch_normalization_back(node: Counted) -> int:
    """The way back from either."""
    return (11 if trains(node) else 5) * node.written


def trains(node: Counted) -> bool:
    """True if a BatchNormalization takes the batch's statistics."""
    return bool(node.context.attribute("training_mode", 0)) and not node.context.evaluating


def lrn(node: Counted) -> int:
    """The squares and their sums over the neighbours, scale, offset, power and quotient."""
    return (int(node.context.required("size")) + 5) * node.written


def dropout(count: int) -> Callable[[Counted], int]:
    """This many operations for each element in training."""
    return lambda node: 0 if node.context.evaluating or not node.has(2) else count * node.written


def recurrent_products(node: Counted) -> int:
    """2·T·B·G·H·(I + H) for each direction."""
    weight, recurrence = node.input(1), node.input(2)  # (D, G·H, I), (D, G·H, H)
    steps = math.prod(node.input(0)[:2])
    return 2 * steps * (math.prod(weight) + math.prod(recurrence))


def recurrent(more: int, of_peepholes: int = 0) -> Callable[[Counted], int]:
    """`more` for each hidden unit beside the gates."""

    def flops(node: Counted) -> int:
        directions, gates_hidden, hidden = node.input(2)
        steps = math.prod(node.input(0)[:2]) * directions
        units = more + (of_peepholes if node.has(7) else 0)
        return recurrent_products(node) + steps * (3 * gates_hidden + units * hidden)

    return flops


def attention_scores(node: Counted) -> tuple[int, int]:
    """The number of scores, and the cost of a product with them in all: features of keys and values."""
    query, key, value = node.input(0), node.input(1), node.input(2)
    if len(query) == 3:
        heads, pairs = int(node.context.required("q_num_heads")), int(node.context.required("kv_num_heads"))
        features = query[2] // heads + value[2] // pairs
        batch, queries, keys = query[0], query[1], key[1]
    else:
        batch, heads, queries = query[:3]
        features, keys = query[3] + value[3], key[2]
    keys += node.input(4)[2] if node.has(4) else 0
    return batch * heads * queries * keys, features


def attention(node: Counted) -> int:
    """The operations of both products, the scale, the softmax, and what the attributes add."""
    scores, features = attention_scores(node)
    attribute = node.context.attribute
    biased = node.has(3) or node.has(6) or bool(attribute("is_causal", 0))
    capped = bool(attribute("softcap", 0.0) > 0)
    return scores * (2 * features + 6 + biased + 3 * capped)


def attention_back(node: Counted) -> int:
    """Four products, and the way back through the softmax."""
    scores, features = attention_scores(node)
    capped = bool(node.context.attribute("softcap", 0.0) > 0)
    return scores * (4 * features + 5 + 3 * capped)


def rotary(node: Counted) -> int:
    """Four products and two sums for each pair of elements."""
    shape = node.input(0)
    head = shape[-1] if len(shape) == 4 else shape[-1] // int(node.context.required("num_heads"))
    turned = int(node.context.attribute("rotary_embedding_dim", 0)) or head
    return 3 * node.written * turned // head


def resize(node: Counted) -> int:
    """The operations of Resize: two for each neighbour, axis after axis; antialiasing widens the filter."""
    radius = {"nearest": 0, "linear": 1, "cubic": 2}[node.context.attribute("mode", "nearest")]
    total, sizes = 0, [*node.input(0)]
    for axis, (old, new) in enumerate(zip(node.input(0), node.output(), strict=True)):
        if old == new:
            continue
        sizes[axis] = new
        stretch = old / new if node.context.attribute("antialias", 0) else 1
        total += 2 * 2 * math.ceil(radius * max(1, stretch)) * math.prod(sizes)
    return total


def softmax_loss(count: int) -> Callable[[Counted], int]:
    """This many operations for each score, and two for each label."""
    return lambda node: count * node.read + 2 * math.prod(node.input(1))


def determinant(node: Counted) -> int:
    """2·n³ / 3 for each matrix, by elimination."""
    size = node.input(0)[-1]
    return int(node.read * size * 2 // 3)


def quantized_conv(node: Counted) -> int:
    """2·batch·features·windows·(channels / groups)·kernel, the bias, and three to come back to the grid."""
    return node.written * (2 * math.prod(node.input(3)[1:]) + node.has(8) + 3)


def neighbours(node: Counted, axes: int) -> int:
    """The number of elements around a point that its value comes from."""
    mode = str(node.context.attribute("mode", "linear"))
    return int({"nearest": 1, "cubic": 4}.get(mode.removeprefix("bi"), 2) ** axes)


def grid_sample(node: Counted) -> int:
    """The operations of GridSample: two for each neighbour of each point."""
    return 2 * node.written * neighbours(node, len(node.input(0)) - 2)


def regions(node: Counted) -> int:
    """The operations of RoiAlign: two for each of four neighbours of each point in a bin."""
    points = max(int(node.context.attribute("sampling_ratio", 0)), 1) ** 2
    return 8 * points * node.written


def deformed_conv(node: Counted) -> int:
    """The convolution, and two for each neighbour of every element that a window sees."""
    kernel, axes = math.prod(node.input(1)[2:]), len(node.input(1)) - 2
    seen = node.input(0)[0] * node.input(0)[1] * kernel * math.prod(node.output()[2:])
    convolution = 2 * node.written * math.prod(node.input(1)[1:]) + node.written * node.has(3)
    return int(convolution + 2 * seen * 2**axes)


def transform(node: Counted) -> int:
    """5·n·log₂ n for each one of n numbers that come out."""
    length = node.output()[-2]
    return int(5 * math.ceil(math.log2(max(length, 2))) * node.written // 2)
