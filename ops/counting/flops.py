"""Counts of floating-point operations, type by type

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
- Sampling between elements: two for each neighbour; a DeformConv besides as the convolution.
- Fourier transforms: 5·n·log₂ n for each one of n numbers, as FFTW counts; determinants 2·n³ / 3.
- Attention: two products for each head, full also where it is causal; for each score six more for scale and
  softmax, one for a bias, three for a softcap.
- Backwards: products and convolutions twice the forward ones, one for either operand; element by element two
  for each operand (the slope, and its product with the gradient).
"""

from collections.abc import Callable, Mapping

from d5ray.errors import ConfigurationError, nearest
from d5ray.ops.catalogue import DOMAIN, GROUPS, TYPES
from d5ray.ops.counting import operation_counts as count
from d5ray.ops.counting.counted_context import Counted


def forward_flops(node: Counted) -> int:
    """The operations that the node takes. Raises `ConfigurationError` for a type that is not known."""
    return _FORWARD[_type(node)](node)


def backward_flops(node: Counted) -> int | None:
    """The operations that the gradients of its inputs take; None where there are none."""
    found = _BACKWARD.get(_type(node))
    return None if found is None else found(node)


def _type(node: Counted) -> str:
    kind = node.context.node.type
    if kind not in TYPES or node.context.node.domain not in ("", "ai.onnx", DOMAIN):
        raise ConfigurationError(
            f"how many operations {node.context.node} takes is not known; {nearest(kind, TYPES)}"
        )
    return kind


_FORWARD: Mapping[str, Callable[[Counted], int]] = {
    **dict.fromkeys(GROUPS["elementwise"], count.operands),
    **dict.fromkeys(GROUPS["comparison"], count.each_output(1)),
    **dict.fromkeys(GROUPS["activations"], count.each_output(1)),
    **dict.fromkeys(GROUPS["reductions"], count.each_input(1)),
    **{
        name: count.none
        for group in ("selection", "shapes", "casting", "constants")
        for name in GROUPS[group]
    },
    "Where": count.none,
    "Mean": count.mean,
    "Softmax": count.each_output(5),
    "LogSoftmax": count.each_output(5),
    "Hardmax": count.each_output(1),
    "MatMul": count.matmul,
    "Gemm": count.gemm,
    "Einsum": count.einsum,
    "Conv": count.conv,
    "ConvTranspose": count.conv_transpose,
    "AveragePool": count.pool(1),
    "MaxPool": count.pool(1),
    "LpPool": count.pool(2),
    "GlobalAveragePool": count.each_input(1),
    "GlobalMaxPool": count.each_input(1),
    "BatchNormalization": count.batch_normalization,
    "GroupNormalization": count.each_output(7),
    "InstanceNormalization": count.each_output(7),
    "LayerNormalization": count.each_output(7),
    "MeanVarianceNormalization": count.each_output(5),
    "RMSNormalization": count.each_output(4),
    "LpNormalization": count.each_output(3),
    "LRN": count.lrn,
    "Dropout": count.dropout(2),
    "RNN": count.recurrent(0),
    "GRU": count.recurrent(5),
    "LSTM": count.recurrent(5, of_peepholes=6),
    "Attention": count.attention,
    "RotaryEmbedding": count.rotary,
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp"), count.each_input(2)),
    "Resize": count.resize,
    **{name: count.none for group in ("sequences", "sets") for name in GROUPS[group]},
    "Det": count.determinant,
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), count.each_output(2)),
    "MatMulInteger": count.matmul,
    "QLinearMatMul": count.matmul,
    "ConvInteger": lambda node: count.conv(node) - node.written * node.has(2),
    "QLinearConv": count.quantized_conv,
    "Col2Im": count.each_input(1),
    "MaxUnpool": count.none,
    "GridSample": count.grid_sample,
    "RoiAlign": count.regions,
    "DeformConv": count.deformed_conv,
    **dict.fromkeys(("DFT", "STFT"), count.transform),
    "MelWeightMatrix": count.none,
    "SoftmaxCrossEntropyLoss": count.softmax_loss(5),
    "NegativeLogLikelihoodLoss": count.softmax_loss(0),
    "MeanSquaredError": count.each_input(3),
}

_BACKWARD: Mapping[str, Callable[[Counted], int]] = {
    **dict.fromkeys(
        set(GROUPS["elementwise"]) - {"Ceil", "Floor", "Mod", "Round", "Sign"}, count.each_operand
    ),
    **dict.fromkeys(GROUPS["activations"], count.each_output(2)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), count.each_output(4)),
    "MatMul": lambda node: 2 * count.matmul(node),
    "Gemm": lambda node: 2 * (count.gemm(node) - node.written * node.has(2)) + node.written * node.has(2),
    "Einsum": lambda node: len(node.inputs) * len(node.inputs) * count.einsum_indices(node),
    "Conv": lambda node: 2 * (count.conv(node) - node.written * node.has(2)) + node.written * node.has(2),
    "ConvTranspose": lambda node: (
        2 * (count.conv_transpose(node) - node.written * node.has(2)) + node.written * node.has(2)
    ),
    "AveragePool": count.pool(1),
    "MaxPool": count.pool(2),
    "LpPool": count.pool(4),
    "GlobalAveragePool": count.each_input(1),
    "GlobalMaxPool": count.each_input(1),
    "BatchNormalization": count.batch_normalization_back,
    "GroupNormalization": count.each_output(11),
    "InstanceNormalization": count.each_output(11),
    "LayerNormalization": count.each_output(11),
    "MeanVarianceNormalization": count.each_output(7),
    "RMSNormalization": count.each_output(8),
    "LpNormalization": count.each_output(5),
    "LRN": lambda node: (int(node.context.required("size")) + 8) * node.written,
    "Dropout": count.dropout(2),
    **dict.fromkeys(("RNN", "GRU", "LSTM"), lambda node: 2 * count.recurrent_products(node)),
    "Attention": count.attention_back,
    "RotaryEmbedding": count.rotary,
    "Where": count.none,
    **dict.fromkeys(set(GROUPS["reductions"]) - {"ArgMax", "ArgMin"}, count.each_input(1)),
    **dict.fromkeys(
        ("Compress", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), count.none
    ),
    **dict.fromkeys(("OneHot", "TopK"), count.none),
    **dict.fromkeys(GROUPS["shapes"], count.none),
    **dict.fromkeys(("Cast", "CastLike"), count.none),
    "Resize": count.resize,
    "Det": lambda node: 2 * count.determinant(node),
    "DequantizeLinear": count.each_output(2),
    **dict.fromkeys(("Col2Im", "MaxUnpool", "ReverseSequence", "TensorScatter", "Unique"), count.none),
    "GridSample": lambda node: 2 * count.grid_sample(node),
    "RoiAlign": count.regions,
    "DeformConv": lambda node: 2 * count.deformed_conv(node),
    **dict.fromkeys(("DFT", "STFT"), count.transform),
    "SoftmaxCrossEntropyLoss": count.softmax_loss(3),
    "NegativeLogLikelihoodLoss": count.softmax_loss(0),
    "MeanSquaredError": count.each_input(3),
}
