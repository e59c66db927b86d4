"""Operators with inputs and attributes at which TensorFlow's gradients are looked at: one table"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from tests.ops import shared_rows

Array = np.ndarray[Any, Any]
Draw = Callable[[np.random.Generator], Array]


@dataclass(frozen=True)
class Row:
    """One operator at one place. An input is an array, how one is drawn, or None where it is left out."""

    type: str
    inputs: tuple[Array | Draw | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1

    def __str__(self) -> str:
        shapes = " ".join("none" if x is None else f"{x.dtype.kind}{list(x.shape)}" for x in self.drawn())
        return f"{self.type} {shapes} {dict(self.attributes) or ''}".replace(", ", ",").strip()

    @property
    def node(self) -> Node:
        inputs = tuple("" if x is None else f"x{index}" for index, x in enumerate(self.inputs))
        return Node(self.type, inputs, tuple(f"y{index}" for index in range(self.outputs)), self.attributes)

    def context(self, dtype: Any = np.float64) -> NodeContext:
        """In a network that holds all integers and booleans as constants."""
        held = {i: x for i, x in enumerate(self.drawn(dtype)) if x is not None and x.dtype.kind in "iub"}
        return NodeContext(self.node, held, random=np.random.default_rng(0))

    def drawn(self, dtype: Any = np.float64) -> list[Array | None]:
        """The inputs, always the same, the floating-point ones rounded to dtype."""
        generator = np.random.default_rng(zlib.crc32(f"{self.type} {sorted(self.attributes)}".encode()))
        found = [each(generator) if callable(each) else each for each in self.inputs]
        return [None if x is None else x.astype(dtype) if x.dtype.kind == "f" else x for x in found]


def normal(*shape: int, scale: float = 1.0) -> Draw:
    return lambda generator: np.asarray(scale * generator.standard_normal(shape))


def between(low: float, high: float, *shape: int) -> Draw:
    return lambda generator: np.asarray(generator.uniform(low, high, shape))


def apart(*shape: int) -> Draw:
    """All different, so that the greatest in a window stays the greatest."""
    return lambda generator: generator.permutation(int(np.prod(shape))).reshape(shape) / 3 - 2.1


def ints(*values: Any) -> Array:
    return np.array(values, np.int64)


def bits(*values: Any) -> Array:
    return np.array(values, bool)


def scalar(value: float) -> Array:
    return np.array(value)


SMOOTH = {
    "Acos": (-0.9, 0.9),
    "Acosh": (1.2, 3.0),
    "Asin": (-0.9, 0.9),
    "Atanh": (-0.9, 0.9),
    "Log": (0.1, 3.0),
    "Reciprocal": (0.3, 2.0),
    "Sqrt": (0.1, 3.0),
    "Tan": (-1.2, 1.2),
    **dict.fromkeys(
        (
            "Abs",
            "Asinh",
            "Atan",
            "Cos",
            "Cosh",
            "Erf",
            "Exp",
            "Neg",
            "Sin",
            "Sinh",
            "Celu",
            "Elu",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "LeakyRelu",
            "Mish",
            "Relu",
            "Selu",
            "Shrink",
            "Sigmoid",
            "Softplus",
            "Softsign",
            "Swish",
            "Tanh",
            "ThresholdedRelu",
            "Identity",
            "Softmax",
            "LogSoftmax",
        ),
        (-4.0, 4.0),
    ),
}

ELEMENTWISE = (
    *(Row(name, (between(*domain, 3, 5),)) for name, domain in SMOOTH.items()),
    Row("Celu", (normal(3, 4),), {"alpha": 0.4}),
    Row("Elu", (normal(3, 4),), {"alpha": 0.4}),
    Row("Gelu", (normal(3, 4),), {"approximate": "tanh"}),
    Row("Selu", (normal(3, 4),), {"alpha": 2.0, "gamma": 3.0}),
    Row("Shrink", (normal(3, 4),), {"lambd": 0.8, "bias": 0.3}),
    Row("Swish", (normal(3, 4),), {"alpha": 0.5}),
    *(
        Row(name, (normal(2, 1, 3), normal(4, 1)))
        for name in ("Add", "Sub", "Mul", "Max", "Min", "Mean", "Sum")
    ),
    *(Row(name, (normal(2, 3), normal(3), normal(2, 1))) for name in ("Max", "Min", "Mean", "Sum")),
    Row("Div", (normal(2, 3), between(0.5, 2, 3))),
    Row("Pow", (between(0.3, 2, 2, 3), normal(3))),
    Row("Pow", (normal(2, 3), scalar(2.0).astype(np.int64))),
    Row("Mod", (normal(2, 3, scale=5), between(0.7, 2, 3)), {"fmod": 0}),
    Row("Mod", (normal(2, 3, scale=5), between(-2, -0.7, 3)), {"fmod": 1}),
    Row("Where", (bits(True, False, True), normal(2, 3), normal(3))),
    Row("PRelu", (normal(2, 3, 4), normal(3, 1))),
    Row("Clip", (normal(3, 4), scalar(-0.5), scalar(0.7))),
    Row("Clip", (normal(3, 4), None, scalar(0.7))),
    Row("Cast", (normal(3),), {"to": 11}),
    Row("CastLike", (normal(3), normal(1))),
    Row("Dropout", (normal(3, 4), scalar(0.4), np.array(False)), outputs=2),
)

PRODUCTS = (
    Row("MatMul", (normal(2, 3), normal(3, 4))),
    Row("MatMul", (normal(2, 2, 3), normal(3, 4))),
    Row("MatMul", (normal(2, 1, 2, 3), normal(3, 3, 2))),
    Row("MatMul", (normal(3), normal(2, 3, 2))),
    Row("MatMul", (normal(2, 3), normal(3))),
    Row("MatMul", (normal(3), normal(3))),
    Row("Gemm", (normal(2, 3), normal(3, 4), normal(4))),
    Row("Gemm", (normal(3, 2), normal(3, 4), normal(1, 4)), {"transA": 1}),
    Row("Gemm", (normal(2, 3), normal(4, 3), normal(2, 1)), {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    Row("Einsum", (normal(2, 3, 4), normal(2, 4, 2)), {"equation": "bij, bjk -> bik"}),
    Row("Einsum", (normal(2, 3, 3),), {"equation": "...ii"}),
)

CONVOLUTION = (
    Row(
        "Conv", (normal(2, 2, 5, 4), normal(3, 2, 3, 2), normal(3)), {"pads": (1, 0, 2, 1), "strides": (2, 1)}
    ),
    Row("Conv", (normal(1, 4, 4, 4), normal(6, 2, 2, 2)), {"group": 2}),
    Row("Conv", (normal(1, 3, 4, 4), normal(6, 1, 2, 2), normal(6)), {"group": 3, "strides": (2, 2)}),
    Row("Conv", (normal(1, 3, 6, 5), normal(3, 1, 2, 2)), {"group": 3, "dilations": (2, 1)}),
    Row("Conv", (normal(1, 2, 6, 6), normal(2, 2, 2, 3)), {"dilations": (3, 2), "pads": (1, 1, 0, 1)}),
    Row("Conv", (normal(1, 2, 7, 7), normal(2, 2, 2, 3)), {"dilations": (3, 2), "strides": (2, 2)}),
    Row("Conv", (normal(2, 2, 6), normal(3, 2, 3), normal(3)), {"strides": (2,), "auto_pad": "SAME_LOWER"}),
    Row("Conv", (normal(1, 2, 3, 4, 3), normal(2, 2, 2, 2, 2)), {"pads": (1, 0, 0, 0, 1, 0)}),
    Row("Conv", (normal(1, 1, 4, 4, 3), normal(1, 1, 2, 2, 2)), {"dilations": (2, 1, 2)}),
    Row(
        "ConvTranspose",
        (normal(1, 2, 3, 3), normal(2, 3, 3, 2), normal(3)),
        {"strides": (2, 2), "pads": (1, 0, 1, 1)},
    ),
    Row(
        "ConvTranspose",
        (normal(1, 4, 3, 3), normal(4, 2, 2, 2)),
        {"group": 2, "output_padding": (1, 0), "strides": (2, 1)},
    ),
    Row("ConvTranspose", (normal(1, 2, 3, 3), normal(2, 1, 2, 2)), {"dilations": (2, 3)}),
    Row("ConvTranspose", (normal(1, 2, 4), normal(2, 2, 3)), {"strides": (2,), "output_shape": (8,)}),
    Row(
        "ConvTranspose",
        (normal(1, 1, 2, 2, 3), normal(1, 2, 2, 2, 2)),
        {"strides": (2, 1, 2), "pads": (1, 0, 0, 0, 0, 1)},
    ),
    Row("MaxPool", (apart(1, 2, 5, 5),), {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)}),
    Row("MaxPool", (apart(1, 2, 5, 5),), {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}),
    Row("MaxPool", (apart(1, 2, 5, 5),), {"kernel_shape": (2, 2), "dilations": (2, 3)}),
    Row("MaxPool", (apart(2, 2, 4, 4),), {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, outputs=2),
    Row("MaxPool", (apart(1, 2, 6),), {"kernel_shape": (3,), "strides": (2,), "auto_pad": "SAME_UPPER"}),
    Row("MaxPool", (apart(1, 1, 3, 4, 3),), {"kernel_shape": (2, 2, 2), "pads": (0, 1, 0, 0, 0, 1)}),
    Row(
        "AveragePool",
        (normal(1, 2, 5, 5),),
        {"kernel_shape": (3, 2), "strides": (2, 2), "pads": (1, 0, 1, 1)},
    ),
    Row("AveragePool", (normal(1, 2, 5),), {"kernel_shape": (2,), "pads": (1, 0), "count_include_pad": 1}),
    Row("AveragePool", (normal(1, 1, 5, 5),), {"kernel_shape": (2, 2), "strides": (2, 2), "ceil_mode": 1}),
    Row("AveragePool", (normal(1, 1, 5, 5),), {"kernel_shape": (2, 2), "dilations": (2, 2)}),
    Row("AveragePool", (normal(1, 1, 3, 3, 3),), {"kernel_shape": (2, 2, 2)}),
    Row("LpPool", (normal(1, 2, 4, 4),), {"kernel_shape": (2, 3), "p": 2, "pads": (0, 1, 0, 1)}),
    Row("LpPool", (normal(1, 2, 4),), {"kernel_shape": (2,), "p": 3}),
    Row("GlobalAveragePool", (normal(2, 2, 3, 2),)),
    Row("GlobalMaxPool", (apart(2, 2, 3, 2),)),
)

PARAMETERS = (normal(3), normal(3))
NORMALIZATION = (
    Row("BatchNormalization", (normal(2, 3, 2, 2), *PARAMETERS, normal(3), between(0.5, 2, 3))),
    Row(
        "BatchNormalization", (normal(4, 3), *PARAMETERS, normal(3), between(0.5, 2, 3)), {"training_mode": 1}
    ),
    Row(
        "BatchNormalization",
        (normal(2, 3, 2, 2), *PARAMETERS, normal(3), between(0.5, 2, 3)),
        {"training_mode": 1},
    ),
    Row("InstanceNormalization", (normal(2, 3, 4), *PARAMETERS)),
    Row("GroupNormalization", (normal(2, 4, 3), normal(4), normal(4)), {"num_groups": 2}),
    Row("LayerNormalization", (normal(2, 3, 4), normal(4), normal(4)), {}, 3),
    Row("LayerNormalization", (normal(2, 3, 4), normal(3, 4)), {"axis": 1}),
    Row("RMSNormalization", (normal(2, 3, 4), normal(4))),
    Row("LRN", (normal(1, 5, 2, 2),), {"size": 3, "alpha": 0.5, "beta": 0.6}),
    Row("LRN", (normal(1, 5, 2),), {"size": 4, "alpha": 0.5}),
    Row("LpNormalization", (normal(2, 3),), {"p": 2, "axis": 0}),
    Row("LpNormalization", (normal(2, 3),), {"p": 1}),
    Row("MeanVarianceNormalization", (normal(2, 2, 2, 2),)),
)


def recurrent(
    name: str, gates: int, states: int, attributes: Mapping[str, Any], peepholes: bool = False
) -> Row:
    """Three steps, a batch of two, sequences of 3 and 2 steps, two inputs, two hidden units."""
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    inputs: list[Array | Draw | None] = [
        normal(3, 2, 2),
        normal(directions, gates * 2, 2),
        normal(directions, gates * 2, 2),
        normal(directions, gates * 4),
        np.array([3, 2], np.int32),
        *[normal(directions, 2, 2)] * states,
        *([normal(directions, 6)] if peepholes else []),
    ]
    return Row(name, tuple(inputs), {"hidden_size": 2, **attributes}, 1 + states)


SEQUENCES = (
    recurrent("RNN", 1, 1, {"direction": "bidirectional"}),
    recurrent(
        "RNN", 1, 1, {"activations": ("Affine",), "activation_alpha": (0.5,), "activation_beta": (0.1,)}
    ),
    recurrent("GRU", 3, 1, {"direction": "reverse"}),
    recurrent("GRU", 3, 1, {"linear_before_reset": 1, "direction": "bidirectional"}),
    recurrent("LSTM", 4, 2, {"direction": "bidirectional"}, peepholes=True),
    recurrent("LSTM", 4, 2, {"input_forget": 1, "clip": 0.8}),
    Row("Attention", (normal(2, 2, 3, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3))),
    Row(
        "Attention",
        (normal(1, 2, 8), normal(1, 3, 4), normal(1, 3, 4)),
        {"q_num_heads": 4, "kv_num_heads": 2, "softcap": 1.5},
    ),
    Row(
        "Attention",
        (normal(1, 1, 3, 2), normal(1, 1, 3, 2), normal(1, 1, 3, 2)),
        {"is_causal": 1, "left_window_size": 1},
    ),
    Row(
        "Attention",
        (normal(1, 1, 2, 2), normal(1, 1, 3, 2), normal(1, 1, 3, 2), bits([True, False, True], [False] * 3)),
        outputs=4,
    ),
    Row(
        "Attention",
        (
            normal(1, 1, 2, 2),
            normal(1, 1, 3, 2),
            normal(1, 1, 3, 2),
            normal(2, 4),
            normal(1, 1, 1, 2),
            normal(1, 1, 1, 2),
        ),
        {"qk_matmul_output_mode": 2},
        4,
    ),
    Row("RotaryEmbedding", (normal(1, 2, 3, 4), normal(6, 2), normal(6, 2), ints([0, 2, 5]))),
    Row(
        "RotaryEmbedding",
        (normal(1, 3, 8), normal(1, 3, 1), normal(1, 3, 1)),
        {"num_heads": 2, "rotary_embedding_dim": 2, "interleaved": 1},
    ),
)

REDUCTIONS = (
    *(
        Row(name, (between(0.2, 2, 2, 3, 2), axes), {"keepdims": keep})
        for name in (
            "ReduceL1",
            "ReduceL2",
            "ReduceLogSum",
            "ReduceLogSumExp",
            "ReduceMax",
            "ReduceMean",
            "ReduceMin",
            "ReduceProd",
            "ReduceSum",
            "ReduceSumSquare",
        )
        for axes, keep in ((ints(1), 1), (ints(0, -1), 0), (None, 0))
    ),
    Row("CumSum", (normal(3, 4), np.array(1)), {"exclusive": 1}),
    Row("CumSum", (normal(3, 4), np.array(-2)), {"reverse": 1}),
)

SELECTION = (
    Row("Compress", (normal(3, 4), bits(False, True, True)), {"axis": 0}),
    Row("Compress", (normal(3, 2), bits(False, True, True, False, True))),
    Row("Gather", (normal(3, 2, 2), ints([0, -1], [0, 1])), {"axis": 0}),
    Row("Gather", (normal(2, 3), ints(1, 1)), {"axis": -1}),
    Row("GatherElements", (normal(3, 3), ints([0, 0, -1], [2, 1, 0])), {"axis": 0}),
    Row("GatherND", (normal(2, 3, 2), ints([0, 1], [0, 1], [-1, 2]))),
    Row("GatherND", (normal(2, 3, 2), ints([[1], [1]], [[0], [-1]])), {"batch_dims": 1}),
    Row("OneHot", (ints(0, 2, -1), np.array(3), normal(2)), {"axis": 0}),
    Row("ScatterElements", (normal(3, 3), ints([2, -2, 0]), normal(1, 3)), {"axis": 0}),
    *(
        Row(
            "ScatterElements",
            (normal(2, 3), ints([1, 1, 0, -2], [2, 2, 2, 0]), normal(2, 4)),
            {"axis": 1, "reduction": name},
        )
        for name in ("add", "mul", "max", "min")
    ),
    Row("ScatterND", (normal(4, 3), ints([1], [-1]), normal(2, 3))),
    *(
        Row("ScatterND", (normal(4, 3), ints([1], [1], [-1]), normal(3, 3)), {"reduction": name})
        for name in ("add", "mul", "max", "min")
    ),
    Row("TopK", (apart(4, 3), ints(2)), {"axis": 0}, 2),
    Row("TopK", (apart(3, 4), ints(3)), {"largest": 0}, 2),
)

SHAPES = (
    Row("Concat", (normal(2, 1), normal(2, 3)), {"axis": -1}),
    Row("DepthToSpace", (normal(1, 8, 1, 2),), {"blocksize": 2, "mode": "CRD"}),
    Row("DepthToSpace", (normal(1, 8, 1, 2),), {"blocksize": 2}),
    Row("SpaceToDepth", (normal(1, 2, 4, 2),), {"blocksize": 2}),
    Row("Expand", (normal(3, 1), ints(2, 1, 4))),
    Row("Flatten", (normal(2, 3, 2),), {"axis": 2}),
    *(
        Row("Pad", (normal(3, 4), ints(1, 2, 0, 1)), {"mode": mode})
        for mode in ("constant", "edge", "reflect", "wrap")
    ),
    Row("Pad", (normal(3, 4), ints(-1, 2), scalar(0.5), ints(-1))),
    Row("Reshape", (normal(2, 3, 2), ints(0, -1))),
    Row("Slice", (normal(5, 4), ints(-1, 0), ints(-100, 3), ints(0, 1), ints(-2, 1))),
    Row("Split", (normal(2, 5), ints(1, 4)), {"axis": -1}, 2),
    Row("Split", (normal(5, 2),), {"num_outputs": 2}, 2),
    Row("Squeeze", (normal(1, 3, 1), ints(-1))),
    Row("Tile", (normal(2, 3), ints(2, 1))),
    Row("Transpose", (normal(2, 3, 2),), {"perm": (2, 0, 1)}),
    Row("Trilu", (normal(3, 4), np.array(1)), {"upper": 0}),
    Row("Unsqueeze", (normal(2, 3), ints(0, -1))),
)

SCALES = np.array([1.0, 1.0, 2.0, 1.5])
RESIZING = (
    *(
        Row("Resize", (normal(1, 2, 3, 4), None, SCALES), {"mode": mode})
        for mode in ("nearest", "linear", "cubic")
    ),
    Row("Resize", (normal(1, 1, 3, 3), None, None, ints(1, 1, 6, 9))),
    Row("Resize", (normal(1, 1, 4, 5), None, None, ints(1, 1, 2, 3)), {"mode": "linear", "antialias": 1}),
    Row("Resize", (normal(1, 1, 4, 4), None, None, ints(7, 8)), {"mode": "linear", "axes": (2, 3)}),
    Row(
        "Resize",
        (normal(1, 1, 4, 4), None, None, ints(1, 1, 7, 8)),
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
    ),
    Row(
        "Resize",
        (
            normal(
                4,
            ),
            None,
            None,
            ints(7),
        ),
        {"mode": "cubic", "exclude_outside": 1},
    ),
)

LABELS = ints(0, 2, 1, 2)
LOSSES = (
    Row("MeanSquaredError", (normal(3, 2), normal(3, 2))),
    Row("MeanSquaredError", (normal(3, 2), normal(3, 2)), {"reduction": "sum"}),
    *(
        Row(name, (normal(4, 3), LABELS, between(0.5, 2, 3)), {"reduction": reduction, "ignore_index": 1})
        for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for reduction in ("mean", "sum", "none")
    ),
    Row("NegativeLogLikelihoodLoss", (normal(2, 3, 2), ints([0, 1], [2, 2]))),
    Row("SoftmaxCrossEntropyLoss", (normal(2, 3, 2), ints([0, 1], [2, 2])), {}, 2),
    Row("SoftmaxCrossEntropyLoss", (normal(4, 3), LABELS)),
)

SHARED = tuple(
    Row(kind, tuple(between(-0.95, 0.95, *x) if isinstance(x, tuple) else x for x in inputs), attributes)
    for kind, inputs, attributes in shared_rows.ROWS
)

ROWS = (
    *ELEMENTWISE,
    *SHARED,
    *PRODUCTS,
    *CONVOLUTION,
    *NORMALIZATION,
    *SEQUENCES,
    *REDUCTIONS,
    *SELECTION,
    *SHAPES,
    *RESIZING,
    *LOSSES,
)

WITHOUT_GRADIENT = frozenset(
    {
        "And",
        "ArgMax",
        "ArgMin",
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "Ceil",
        "Constant",
        "ConstantOfShape",
        "Equal",
        "EyeLike",
        "Floor",
        "Greater",
        "GreaterOrEqual",
        "Hardmax",
        "IsInf",
        "IsNaN",
        "Less",
        "LessOrEqual",
        "NonZero",
        "Not",
        "Or",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
        "Range",
        "Round",
        "Shape",
        "Sign",
        "Size",
        "Xor",
        *shared_rows.WITHOUT_GRADIENT,
    }
)
