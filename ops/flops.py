"""How floating-point operations are counted, type by type

Conventions. A multiplication and an addition are two operations; so are comparisons, divisions and functions
such as exp one each, whatever they take on the hardware. What moves, selects or converts elements takes none.

- Element by element: one for each element of the output; of n operands n − 1, and n for a Mean.
- Products: 2·M·N·K, as DeepBench counts (https://github.com/baidu-research/DeepBench); a bias one more.
- Convolutions: 2·batch·features·windows·(channels / groups)·kernel, as DeepBench, whatever the algorithm.
- Pooling: one for each element of each window; the norm two.
- Softmax: five (maximum, difference, exp, sum, quotient).
- Normalization with statistics: five to standardize (mean, difference, square, sum, quotient), two for scale
  and shift; with given statistics two.
- Recurrent: 2·T·B·G·H·(I + H) for each direction, and for each hidden unit what the equations say: three a
  gate (both products, bias, activation), and GRU five, LSTM five more, peepholes six.
- Attention: two products for each head, full also where it is causal; for each score six more for scale and
  softmax, one for a bias, three for a softcap.
- Backwards: products and convolutions twice the forward ones, one for either operand; element by element two
  for each operand (the slope, and its product with the gradient).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.site import Site
from d5ray.operators.tensor_descriptor import TensorDescriptor
from d5ray.ops.catalogue import GROUPS, TYPES
from d5ray.ops.equation import Equation


@final
@dataclass(frozen=True)
class Counted:
    """A site whose tensors are known: one descriptor for each name, None for an optional one left out."""

    site: Site
    inputs: tuple[TensorDescriptor | None, ...]
    outputs: tuple[TensorDescriptor | None, ...]

    def input(self, index: int) -> tuple[int, ...]:
        """The sizes of an input, () where it is left out."""
        return _sizes(self.inputs, index)

    def output(self, index: int = 0) -> tuple[int, ...]:
        """The sizes of an output, () where nobody asks for it."""
        return _sizes(self.outputs, index)

    def has(self, index: int) -> bool:
        """Whether this input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def written(self) -> int:
        """The elements of the first output."""
        return math.prod(self.output())

    @property
    def read(self) -> int:
        """The elements of the first input."""
        return math.prod(self.input(0))


def forward_flops(node: Counted) -> int:
    """The operations that the node takes. Raises `ConfigurationError` for a type that is not known."""
    return _FORWARD[_type(node)](node)


def backward_flops(node: Counted) -> int | None:
    """The operations that the gradients of its inputs take; None where there are none."""
    found = _BACKWARD.get(_type(node))
    return None if found is None else found(node)


def _type(node: Counted) -> str:
    kind = node.site.node.type
    if kind not in TYPES:
        raise ConfigurationError(
            f"how many operations {node.site.node} takes is not known; {nearest(kind, TYPES)}"
        )
    return kind


def _sizes(descriptors: tuple[TensorDescriptor | None, ...], index: int) -> tuple[int, ...]:
    found = descriptors[index] if index < len(descriptors) else None
    return () if found is None else found.sizes


def _none(node: Counted) -> int:
    return 0


def _each_output(count: int) -> Callable[[Counted], int]:
    return lambda node: count * node.written


def _each_input(count: int) -> Callable[[Counted], int]:
    return lambda node: count * node.read


def _operands(node: Counted) -> int:
    return max(1, len(node.inputs) - 1) * node.written


def _mean(node: Counted) -> int:
    return len(node.inputs) * node.written


def _each_operand(node: Counted) -> int:
    return 2 * len(node.inputs) * node.written


def _matmul(node: Counted) -> int:
    return 2 * node.written * node.input(0)[-1]


def _gemm(node: Counted) -> int:
    inner = node.input(0)[0 if node.site.attribute("transA", 0) else 1]
    return 2 * node.written * inner + node.written * node.has(2)


def _einsum_indices(node: Counted) -> int:
    """The size of the space that is summed over and kept: one for each combination of all indices."""
    shapes = [node.input(index) for index in range(len(node.inputs))]
    equation = Equation.parsed(node.site, shapes)
    sizes: dict[str, int] = {}
    for term, shape in zip(equation.terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            sizes[letter] = max(size, sizes.get(letter, 1))
    return math.prod(sizes.values())


def _einsum(node: Counted) -> int:
    space = _einsum_indices(node)
    summed = space != node.written
    return space * (len(node.inputs) - 1 + summed)


def _conv(node: Counted) -> int:
    return 2 * node.written * math.prod(node.input(1)[1:]) + node.written * node.has(2)


def _conv_transpose(node: Counted) -> int:
    return 2 * node.read * math.prod(node.input(1)[1:]) + node.written * node.has(2)


def _pool(count: int) -> Callable[[Counted], int]:
    return lambda node: count * node.written * math.prod(node.site.required("kernel_shape"))


def _batch_normalization(node: Counted) -> int:
    return (7 if _trains(node) else 2) * node.written


def _batch_normalization_back(node: Counted) -> int:
    return (11 if _trains(node) else 5) * node.written


def _trains(node: Counted) -> bool:
    return bool(node.site.attribute("training_mode", 0)) and not node.site.evaluating


def _lrn(node: Counted) -> int:
    return (int(node.site.required("size")) + 5) * node.written


def _dropout(count: int) -> Callable[[Counted], int]:
    return lambda node: 0 if node.site.evaluating or not node.has(2) else count * node.written


def _recurrent_products(node: Counted) -> int:
    weight, recurrence = node.input(1), node.input(2)  # (D, G·H, I), (D, G·H, H)
    steps = math.prod(node.input(0)[:2])
    return 2 * steps * (math.prod(weight) + math.prod(recurrence))


def _recurrent(more: int, of_peepholes: int = 0) -> Callable[[Counted], int]:
    """`more` for each hidden unit beside the gates."""

    def flops(node: Counted) -> int:
        directions, gates_hidden, hidden = node.input(2)
        steps = math.prod(node.input(0)[:2]) * directions
        units = more + (of_peepholes if node.has(7) else 0)
        return _recurrent_products(node) + steps * (3 * gates_hidden + units * hidden)

    return flops


def _attention_scores(node: Counted) -> tuple[int, int]:
    """How many scores there are, and what a product with them takes in all: features of keys and values."""
    query, key, value = node.input(0), node.input(1), node.input(2)
    if len(query) == 3:
        heads, pairs = int(node.site.required("q_num_heads")), int(node.site.required("kv_num_heads"))
        features = query[2] // heads + value[2] // pairs
        batch, queries, keys = query[0], query[1], key[1]
    else:
        batch, heads, queries = query[:3]
        features, keys = query[3] + value[3], key[2]
    keys += node.input(4)[2] if node.has(4) else 0
    return batch * heads * queries * keys, features


def _attention(node: Counted) -> int:
    scores, features = _attention_scores(node)
    attribute = node.site.attribute
    biased = node.has(3) or node.has(6) or bool(attribute("is_causal", 0))
    capped = bool(attribute("softcap", 0.0) > 0)
    return scores * (2 * features + 6 + biased + 3 * capped)


def _attention_back(node: Counted) -> int:
    scores, features = _attention_scores(node)
    capped = bool(node.site.attribute("softcap", 0.0) > 0)
    return scores * (4 * features + 5 + 3 * capped)


def _rotary(node: Counted) -> int:
    shape = node.input(0)
    head = shape[-1] if len(shape) == 4 else shape[-1] // int(node.site.required("num_heads"))
    turned = int(node.site.attribute("rotary_embedding_dim", 0)) or head
    return 3 * node.written * turned // head  # four products and two sums for two elements


def _resize(node: Counted) -> int:
    """Two for each neighbour, axis after axis; an antialiasing filter widens as the image shrinks."""
    radius = {"nearest": 0, "linear": 1, "cubic": 2}[node.site.attribute("mode", "nearest")]
    total, sizes = 0, [*node.input(0)]
    for axis, (old, new) in enumerate(zip(node.input(0), node.output(), strict=True)):
        if old == new:
            continue
        sizes[axis] = new
        stretch = old / new if node.site.attribute("antialias", 0) else 1
        total += 2 * 2 * math.ceil(radius * max(1, stretch)) * math.prod(sizes)
    return total


def _softmax_loss(count: int) -> Callable[[Counted], int]:
    return lambda node: count * node.read + 2 * math.prod(node.input(1))


_FORWARD: Mapping[str, Callable[[Counted], int]] = {
    **dict.fromkeys(GROUPS["arithmetic"], _operands),
    **dict.fromkeys(GROUPS["comparison"], _each_output(1)),
    **dict.fromkeys(GROUPS["activations"], _each_output(1)),
    **dict.fromkeys(GROUPS["reductions"], _each_input(1)),
    **{name: _none for group in ("selection", "shapes", "casting", "constants") for name in GROUPS[group]},
    "Where": _none,
    "Mean": _mean,
    "Softmax": _each_output(5),
    "LogSoftmax": _each_output(5),
    "Hardmax": _each_output(1),
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "AveragePool": _pool(1),
    "MaxPool": _pool(1),
    "LpPool": _pool(2),
    "GlobalAveragePool": _each_input(1),
    "GlobalMaxPool": _each_input(1),
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _each_output(7),
    "InstanceNormalization": _each_output(7),
    "LayerNormalization": _each_output(7),
    "MeanVarianceNormalization": _each_output(5),
    "RMSNormalization": _each_output(4),
    "LpNormalization": _each_output(3),
    "LRN": _lrn,
    "Dropout": _dropout(2),
    "RNN": _recurrent(0),
    "GRU": _recurrent(5),
    "LSTM": _recurrent(5, of_peepholes=6),
    "Attention": _attention,
    "RotaryEmbedding": _rotary,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"), _each_input(2)),
    "Resize": _resize,
    "SoftmaxCrossEntropyLoss": _softmax_loss(5),
    "NegativeLogLikelihoodLoss": _softmax_loss(0),
    "MeanSquaredError": _each_input(3),
}

_BACKWARD: Mapping[str, Callable[[Counted], int]] = {
    **dict.fromkeys(set(GROUPS["arithmetic"]) - {"Ceil", "Floor", "Mod", "Round", "Sign"}, _each_operand),
    **dict.fromkeys(GROUPS["activations"], _each_output(2)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _each_output(4)),
    "MatMul": lambda node: 2 * _matmul(node),
    "Gemm": lambda node: 2 * (_gemm(node) - node.written * node.has(2)) + node.written * node.has(2),
    "Einsum": lambda node: len(node.inputs) * len(node.inputs) * _einsum_indices(node),
    "Conv": lambda node: 2 * (_conv(node) - node.written * node.has(2)) + node.written * node.has(2),
    "ConvTranspose": lambda node: (
        2 * (_conv_transpose(node) - node.written * node.has(2)) + node.written * node.has(2)
    ),
    "AveragePool": _pool(1),
    "MaxPool": _pool(2),
    "LpPool": _pool(4),
    "GlobalAveragePool": _each_input(1),
    "GlobalMaxPool": _each_input(1),
    "BatchNormalization": _batch_normalization_back,
    "GroupNormalization": _each_output(11),
    "InstanceNormalization": _each_output(11),
    "LayerNormalization": _each_output(11),
    "MeanVarianceNormalization": _each_output(7),
    "RMSNormalization": _each_output(8),
    "LpNormalization": _each_output(5),
    "LRN": lambda node: (int(node.site.required("size")) + 8) * node.written,
    "Dropout": _dropout(2),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), lambda node: 2 * _recurrent_products(node)),
    "Attention": _attention_back,
    "RotaryEmbedding": _rotary,
    "Where": _none,
    **dict.fromkeys(set(GROUPS["reductions"]) - {"ArgMax", "ArgMin"}, _each_input(1)),
    **dict.fromkeys(
        ("Compress", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), _none
    ),
    **dict.fromkeys(("OneHot", "TopK"), _none),
    **dict.fromkeys(GROUPS["shapes"], _none),
    **dict.fromkeys(GROUPS["casting"], _none),
    "Resize": _resize,
    "SoftmaxCrossEntropyLoss": _softmax_loss(3),
    "NegativeLogLikelihoodLoss": _softmax_loss(0),
    "MeanSquaredError": _each_input(3),
}
