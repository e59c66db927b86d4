"""Operators at small inputs, at which PyTorch's gradients are looked at: one table"""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ops import shared_rows
from tests.ops.torch_case import Array

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """One operator at one place. A shape stands for numbers drawn within the bounds, None for nothing."""

    type: str
    inputs: tuple[Shape | Array | None, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    low: float = -2.0
    high: float = 2.0

    def __str__(self) -> str:
        shapes = " ".join("none" if x is None else f"{list(x.shape)}" for x in self.drawn())
        return f"{self.type} {shapes} {dict(self.attributes) or ''}".replace(", ", ",").strip()

    def drawn(self) -> tuple[Array | None, ...]:
        generator = np.random.default_rng(zlib.crc32(f"{self.type} {self.attributes}".encode()))
        return tuple(
            generator.uniform(self.low, self.high, x) if isinstance(x, tuple) else x for x in self.inputs
        )


def whole(*numbers: Any) -> Array:
    return np.array(numbers, np.int64)


def elementwise() -> Iterator[Row]:
    for name in (
        "Abs", "Asinh", "Atan", "Ceil", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu",
        "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "LogSoftmax", "Mish", "Neg", "Relu", "Round",
        "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax", "Softplus", "Softsign", "Swish",
        "Tanh", "ThresholdedRelu",
    ):  # fmt: skip
        yield Row(name, ((3, 4),))
    for name in ("Acos", "Asin", "Atanh", "Tan"):
        yield Row(name, ((3, 4),), low=-0.9, high=0.9)
    for name in ("Acosh", "Log", "Reciprocal", "Sqrt"):
        yield Row(name, ((3, 4),), low=1.1, high=2.0)
    for name in ("Add", "Max", "Mean", "Min", "Mul", "Sub", "Sum"):
        yield Row(name, ((2, 3), (3,)))
    for name in ("Max", "Mean", "Min", "Sum"):
        yield Row(name, ((2, 3), (3,), (2, 1)))
        yield Row(name, ((2, 3),))
    yield Row("Div", ((2, 3), (3,)), low=0.5)
    yield Row("Mod", ((2, 3), (3,)), {"fmod": 1}, low=0.7)
    yield Row("Mod", ((2, 3), (3,)), low=0.7)
    yield Row("Pow", ((2, 3), (3,)), low=0.5)
    yield Row("Pow", ((2, 3), whole(3, 2, 1)))
    yield Row("Pow", ((2, 3), np.array(2)))
    yield Row("Where", (np.array([True, False, True]), (2, 3), (2, 1)))
    yield Row("Clip", ((3, 4), np.array(-1.0), np.array(1.0)))
    yield Row("Clip", ((3, 4), None, np.array(0.5)))
    yield Row("Gelu", ((3, 4),), {"approximate": "tanh"})
    yield Row("HardSigmoid", ((3, 4),), {"alpha": 1 / 6})
    yield Row("PRelu", ((2, 3, 4), (3, 1)))
    yield Row("PRelu", ((2, 3, 4), (4,)))
    yield Row("Selu", ((3, 4),), {"alpha": 2.0, "gamma": 3.0})
    yield Row("Shrink", ((3, 4),), {"bias": 0.4})
    yield Row("Swish", ((3, 4),), {"alpha": 1.7})
    yield Row("Cast", ((2, 3),), {"to": 11})
    yield Row("CastLike", ((2, 3), np.zeros(1)))


def images() -> Iterator[Row]:
    yield Row("Conv", ((1, 2, 5, 4), (3, 2, 3, 2), (3,)), {"kernel_shape": (3, 2), "pads": (1, 0, 1, 0)})
    yield Row("Conv", ((1, 2, 5), (2, 1, 2), None), {"group": 2, "dilations": (2,), "pads": (2, 0)})
    yield Row("Conv", ((1, 1, 5, 5), (1, 1, 3, 3)), {"strides": (2, 2), "auto_pad": "SAME_LOWER"})
    yield Row("Conv", ((1, 1, 3, 3, 3), (1, 1, 2, 2, 2)))
    yield Row("ConvTranspose", ((1, 2, 3, 3), (2, 1, 3, 3), (1,)), {"strides": (2, 2), "pads": (1, 1, 1, 1)})
    yield Row("ConvTranspose", ((1, 2, 4), (2, 1, 3), (2,)), {"group": 2, "pads": (0, 2)})
    yield Row("ConvTranspose", ((1, 1, 3), (1, 1, 3)), {"strides": (2,), "output_shape": (9,)})
    for name in ("AveragePool", "MaxPool", "LpPool"):
        yield Row(name, ((1, 2, 5, 4),), {"kernel_shape": (3, 2), "strides": (2, 1)}, low=0.2)
        padded = {"kernel_shape": (3, 2), "pads": (2, 0, 0, 1), "ceil_mode": 1, "strides": (2, 2)}
        yield Row(name, ((1, 2, 5, 4),), padded, low=0.2)
        yield Row(name, ((1, 2, 6),), {"kernel_shape": (2,), "dilations": (2,)}, low=0.2)
    yield Row("MaxPool", ((1, 2, 4, 4),), {"kernel_shape": (2, 2)}, outputs=2)
    yield Row("GlobalAveragePool", ((2, 3, 4, 2),))
    yield Row("GlobalMaxPool", ((2, 3, 4, 2),))
    for mode in ("nearest", "linear", "cubic"):
        yield Row("Resize", ((1, 2, 3, 4), None, None, whole(1, 2, 5, 3)), {"mode": mode})
        antialias = int(mode != "nearest")
        yield Row("Resize", ((5, 4), None, np.array([0.6, 1.5])), {"mode": mode, "antialias": antialias})


def normalizations() -> Iterator[Row]:
    statistics = (np.array([0.1, -0.2]), np.array([0.9, 1.3]))
    yield Row("BatchNormalization", ((3, 2, 4), (2,), (2,), *statistics))
    yield Row("BatchNormalization", ((3, 2, 4), (2,), (2,), *statistics), {"training_mode": 1}, outputs=3)
    yield Row("GroupNormalization", ((2, 4, 3), (4,), (4,)), {"num_groups": 2})
    yield Row("InstanceNormalization", ((2, 3, 4), (3,), (3,)))
    for size in (2, 3):
        yield Row("LRN", ((2, 5, 2, 2),), {"size": size, "alpha": 0.5})
    yield Row("LayerNormalization", ((2, 3, 4), (4,), (4,)))
    yield Row("LayerNormalization", ((2, 3, 4), (3, 4), None), {"axis": 1}, outputs=3)
    yield Row("LayerNormalization", ((2, 3, 4), (4,), (3, 1)), {"axis": 1})
    for p in (1, 2):
        yield Row("LpNormalization", ((2, 3),), {"p": p})
    yield Row("MeanVarianceNormalization", ((2, 3, 2, 2),))
    yield Row("RMSNormalization", ((2, 3, 4), (4,)))
    yield Row("RMSNormalization", ((2, 3, 4), (4,)), {"axis": 1})
    yield Row("Dropout", ((4, 5),))
    yield Row("Dropout", ((4, 5), np.array(0.4), np.array(True)))
    yield Row("Dropout", ((4, 5), np.array(0.4), np.array(True)), outputs=2)


def sequences() -> Iterator[Row]:
    """x (3, 2, 2): time, batch, features; 2 hidden units."""
    for name, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        first = (2, 2, 2)
        for more in ({}, {"clip": 0.7}):
            attributes = {"direction": "bidirectional", "hidden_size": 2, **more}
            if name == "GRU" and not more:
                attributes["linear_before_reset"] = 1
            weights = ((2, gates * 2, 2), (2, gates * 2, 2), (2, gates * 4))
            inputs = ((3, 2, 2), *weights, None, *(first,) * states)
            yield Row(name, inputs, attributes, 1 + states)
        weights = ((1, gates * 2, 2), (1, gates * 2, 2), (1, gates * 4))
        lengths = np.array([3, 1], np.int32)
        yield Row(name, ((3, 2, 2), *weights, lengths), {"direction": "reverse"}, 1 + states)
    peepholes = ((3, 2, 2), (1, 8, 2), (1, 8, 2), None, None, None, None, (1, 6))
    yield Row("LSTM", peepholes, {"layout": 1, "input_forget": 1}, 3)
    heads = ((1, 4, 3, 2), (1, 2, 3, 2), (1, 2, 3, 2))
    yield Row("Attention", heads)
    yield Row("Attention", heads, {"is_causal": 1})
    yield Row("Attention", (*heads, (3, 3)), {"softcap": 1.5}, outputs=4)
    yield Row(
        "Attention", (*heads, np.array([[True, False, True]] * 3), (1, 2, 2, 2), (1, 2, 2, 2)), outputs=3
    )
    flat = ((1, 3, 4), (1, 3, 4), (1, 3, 4))
    yield Row("Attention", flat, {"q_num_heads": 2, "kv_num_heads": 2, "left_window_size": 1})
    for interleaved in (0, 1):
        angles = ((1, 3, 2), (1, 3, 2))
        yield Row("RotaryEmbedding", ((1, 2, 3, 4), *angles), {"interleaved": interleaved})
    yield Row(
        "RotaryEmbedding",
        ((1, 3, 8), (5, 1), (5, 1), whole([0, 4, 2])),
        {"num_heads": 2, "rotary_embedding_dim": 2},
    )


def products() -> Iterator[Row]:
    yield Row("MatMul", ((2, 3, 4), (4, 2)))
    yield Row("Gemm", ((2, 3), (4, 3), (4,)), {"transB": 1})
    yield Row("Gemm", ((3, 2), (3, 4), (2, 1)), {"transA": 1, "alpha": 0.5, "beta": 2.0})
    yield Row("Gemm", ((2, 3), (3, 4)), {"alpha": 0.5})
    yield Row("Einsum", ((2, 3, 4), (2, 4, 2)), {"equation": "bij, bjk -> bik"})


def reductions() -> Iterator[Row]:
    for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"):
        for axes in (None, whole(0), whole(-1, 1)):
            yield Row(f"Reduce{name}", ((2, 3, 4), axes), {"keepdims": int(axes is None)}, low=0.3)
        yield Row(f"Reduce{name}", ((2, 3),), {"noop_with_empty_axes": 1}, low=0.3)
    for exclusive in (0, 1):
        yield Row("CumSum", ((2, 3), np.array(1)), {"exclusive": exclusive, "reverse": exclusive})


def selection() -> Iterator[Row]:
    yield Row("Compress", ((3, 4), np.array([True, False, True])), {"axis": 0})
    yield Row("Gather", ((3, 4), whole([0, -1], [2, 2])))
    yield Row("Gather", ((3, 4), whole(0, 3)), {"axis": 1})
    yield Row("Gather", ((3, 4), np.array(-2)), {"axis": 1})
    yield Row("GatherElements", ((3, 4), whole([0, -1], [2, 2])), {"axis": 1})
    yield Row("GatherND", ((2, 3, 4), whole([0, -1], [1, 1])))
    yield Row("GatherND", ((2, 3, 4), whole([[0]], [[2]])), {"batch_dims": 1})
    yield Row("OneHot", (whole(0, 5, -1), np.array(3), (2,)))
    for reduction in ("none", "add", "mul", "max", "min"):
        rows = whole([0, -1, 1])
        yield Row("ScatterElements", ((3, 3), rows, (1, 3)), {"reduction": reduction})
        yield Row("ScatterND", ((3, 3), whole([0], [-1]), (2, 3)), {"reduction": reduction})
    yield Row("TopK", ((3, 4), whole(2)), {"largest": 0}, outputs=2)


def shapes() -> Iterator[Row]:
    yield Row("Concat", ((2, 1), (2, 3)), {"axis": -1})
    for mode in ("DCR", "CRD"):
        yield Row("DepthToSpace", ((1, 8, 1, 2),), {"blocksize": 2, "mode": mode})
        yield Row("SpaceToDepth", ((1, 2, 4, 2),), {"blocksize": 2, "mode": mode})
    yield Row("Expand", ((3, 1), whole(2, 1, 4)))
    yield Row("Flatten", ((2, 3, 2),))
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Row("Pad", ((3, 4), whole(1, 2, 0, -1)), {"mode": mode})
    yield Row("Reshape", ((2, 3, 4), whole(0, -1)))
    yield Row("Slice", ((5, 4), whole(1, 0), whole(4, 2)))
    yield Row("Slice", ((5, 4), whole(-1), whole(-100), whole(0), whole(-2)))
    yield Row("Split", ((5, 2),), {"num_outputs": 2}, outputs=2)
    yield Row("Squeeze", ((1, 3, 1), whole(-1)))
    yield Row("Tile", ((2, 3), whole(2, 3)))
    yield Row("Transpose", ((2, 3, 4),), {"perm": (2, 0, 1)})
    yield Row("Trilu", ((3, 4), np.array(1)))
    yield Row("Unsqueeze", ((2, 3), whole(0, -1)))


def losses() -> Iterator[Row]:
    labels, weights = whole([0, 2], [1, 1], [2, 0]), np.array([0.5, 1.0, 2.0])
    for reduction in ("mean", "sum", "none"):
        for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
            more = {"reduction": reduction, "ignore_index": 1}
            yield Row(name, ((3, 3, 2), labels, weights), more)
    yield Row("SoftmaxCrossEntropyLoss", ((3, 3), whole(0, 2, 1)), outputs=2)
    yield Row("MeanSquaredError", ((3, 2), (3, 2)))


def shared() -> Iterator[Row]:
    for kind, inputs, attributes in shared_rows.ROWS:
        yield Row(kind, inputs, attributes, low=-0.95, high=0.95)


ROWS = (
    *elementwise(), *images(), *normalizations(), *sequences(), *products(), *reductions(), *selection(),
    *shapes(), *losses(), *shared(),
)  # fmt: skip

WITHOUT_GRADIENT = frozenset(  # their outputs do not follow from the values of floating-point inputs
    (
        "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
        "Constant", "ConstantOfShape", "Equal", "EyeLike", "Greater", "GreaterOrEqual", "Hardmax", "IsInf",
        "IsNaN", "Less", "LessOrEqual", "NonZero", "Not", "Or", "RandomNormal", "RandomNormalLike",
        "RandomUniform", "RandomUniformLike", "Range", "Shape", "Size", "Xor",
        *shared_rows.WITHOUT_GRADIENT,
    )
)  # fmt: skip
