"""The operator types that d5ray knows, and where every framework's implementation of them is."""

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

DOMAIN = "d5ray"  # of the types that ONNX has not

GROUPS: Mapping[str, tuple[str, ...]] = {
    "elementwise": (
        "Abs", "Acos", "Acosh", "Add", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Div", "Erf",
        "Exp", "Floor", "Log", "Max", "Mean", "Min", "Mod", "Mul", "Neg", "Pow", "Reciprocal", "Round",
        "Sign", "Sin", "Sinh", "Sqrt", "Sub", "Sum", "Tan",
    ),
    "comparison": (
        "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal", "Greater",
        "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Where", "Xor",
    ),
    "activations": (
        "Celu", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu",
        "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu",
    ),
    "softmaxes": ("Hardmax", "LogSoftmax", "Softmax"),
    "products": ("Det", "Einsum", "Gemm", "MatMul"),
    "convolution": ("Conv", "ConvTranspose"),
    "pooling": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool"),
    "normalization": (
        "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN", "LayerNormalization",
        "LpNormalization", "MeanVarianceNormalization", "RMSNormalization",
    ),
    "dropout": ("Dropout",),
    "recurrent": ("GRU", "LSTM", "RNN"),
    "attention": ("Attention", "RotaryEmbedding"),
    "reductions": (
        "ArgMax", "ArgMin", "CumProd", "CumSum", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    ),
    "selection": (
        "Compress", "Gather", "GatherElements", "GatherND", "NonZero", "OneHot", "ScatterElements",
        "ScatterND", "TopK",
    ),
    "shapes": (
        "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape", "Slice", "SpaceToDepth",
        "Split", "Squeeze", "Tile", "Transpose", "Trilu", "Unsqueeze",
    ),
    "casting": ("BitCast", "Cast", "CastLike"),
    "constants": (
        "Constant", "ConstantOfShape", "EyeLike", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike", "Range", "Shape", "Size",
    ),
    "resizing": ("Resize",),
    "quantization": (
        "ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QuantizeLinear",
    ),
    "regions": ("Col2Im", "DeformConv", "GridSample", "MaxUnpool", "RoiAlign"),
    "spectra": ("DFT", "MelWeightMatrix", "STFT"),
    "sets": ("NonMaxSuppression", "TfIdfVectorizer", "Unique"),
    "sequences": ("ReverseSequence", "TensorScatter"),
    "losses": ("MeanSquaredError", "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
}  # fmt: skip

TYPES: frozenset[str] = frozenset(name for names in GROUPS.values() for name in names)


def tables(package: str, table: str) -> dict[str, Any]:
    """The tables of this name in the modules of a package, as one table."""
    names = [each.name for each in iter_modules(import_module(package).__path__)]
    modules = [import_module(f"{package}.{name}") for name in names]
    return {kind: entry for module in modules for kind, entry in getattr(module, table, {}).items()}
