"""Operators with inputs and attributes at which their derivatives are looked at: one table"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext

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
        drawn = self.drawn(np.float64)
        shapes = " ".join("none" if x is None else f"{x.dtype.kind}{list(x.shape)}" for x in drawn)
        return f"{self.type} {shapes} {dict(self.attributes) or ''}".replace(", ", ",").strip()

    @property
    def node(self) -> Node:
        inputs = tuple("" if x is None else f"x{index}" for index, x in enumerate(self.inputs))
        return Node(self.type, inputs, tuple(f"y{index}" for index in range(self.outputs)), self.attributes)

    @property
    def context(self) -> NodeContext:
        """Where the node stands, of which nothing is known but itself."""
        return NodeContext(self.node, random=np.random.default_rng(0))

    @property
    def generator(self) -> np.random.Generator:
        """One of its own: what is drawn does not change with the other rows."""
        return np.random.default_rng(zlib.crc32(f"{self.type} {sorted(self.attributes)}".encode()))

    def drawn(self, dtype: Any) -> list[Array | None]:
        """The inputs, the floating-point ones rounded to dtype, none of which may be written to."""
        generator, found = self.generator, []
        for each in self.inputs:
            x = each(generator) if callable(each) else each
            if x is not None:
                x = x.astype(dtype) if x.dtype.kind == "f" else x.copy()
                x.setflags(write=False)
            found.append(x)
        return found


def normal(*shape: int, scale: float = 1.0) -> Draw:
    return lambda generator: np.asarray(scale * generator.standard_normal(shape))


def between(low: float, high: float, *shape: int) -> Draw:
    return lambda generator: np.asarray(generator.uniform(low, high, shape))


def apart(*shape: int) -> Draw:
    """Numbers that lie far apart, so that a small step changes no maximum, and none near 0."""
    size = int(np.prod(shape))
    return lambda generator: ((generator.permutation(size) + 0.5 - size / 2) / size * 4).reshape(shape)


def ints(*values: Any) -> Array:
    return np.array(values, np.int64)


def bits(*values: Any) -> Array:
    return np.array(values, bool)


def floats(*values: Any) -> Array:
    return np.array(values, np.float64)


def functions() -> Iterator[Row]:
    """Of one operand, where they are smooth."""
    domains = {
        "Acos": (-0.9, 0.9), "Acosh": (1.2, 3.0), "Asin": (-0.9, 0.9), "Atanh": (-0.9, 0.9),
        "Log": (0.1, 3.0), "Reciprocal": (0.3, 2.0), "Sqrt": (0.1, 3.0), "Tan": (-1.2, 1.2),
    }  # fmt: skip
    everywhere = (
        "Abs", "Asinh", "Atan", "Cos", "Cosh", "Erf", "Exp", "Neg", "Sin", "Sinh", "Celu", "Elu", "Gelu",
        "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus",
        "Softsign", "Swish", "Tanh", "ThresholdedRelu", "Identity",
    )  # fmt: skip
    for name, domain in {**domains, **dict.fromkeys(everywhere, (-4.0, 4.0))}.items():
        yield Row(name, (between(*domain, 3, 5),))
        yield Row(name, (between(*domain),))
    variants: Mapping[str, tuple[Mapping[str, Any], ...]] = {
        "Celu": ({"alpha": 0.4}, {"alpha": 2.0}),
        "Elu": ({"alpha": 0.4}, {"alpha": -2.0}),
        "Gelu": ({"approximate": "tanh"},),
        "HardSigmoid": ({"alpha": 0.5, "beta": 0.3},),
        "LeakyRelu": ({"alpha": 0.3}, {"alpha": -0.2}),
        "Selu": ({"alpha": 2.0, "gamma": 3.0},),
        "Shrink": ({"lambd": 1.5, "bias": 1.0},),
        "Swish": ({"alpha": 0.5}, {"alpha": -2.0}),
        "ThresholdedRelu": ({"alpha": 0.5}, {"alpha": -1.0}),
    }
    for name, several in variants.items():
        for attributes in several:
            yield Row(name, (between(-4, 4, 3, 5),), attributes)


PAIRS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1, 3), (4, 1)), ((3, 1), (1, 4)), ((), (2, 3)),
    ((2, 3), ()), ((), ()), ((1, 1, 1), (2,)), ((0, 3), (3,)),
)  # fmt: skip


def arithmetic() -> Iterator[Row]:
    """Of two operands and more, in shapes that are broadcast."""
    for left, right in PAIRS:
        for name in ("Add", "Mul", "Sub"):
            yield Row(name, (normal(*left), normal(*right)))
        yield Row("Div", (normal(*left), between(0.5, 2, *right)))
        yield Row("Pow", (between(0.3, 2, *left), normal(*right)))
        for fmod in (0, 1):
            yield Row("Mod", (normal(*left, scale=5), between(0.7, 2, *right)), {"fmod": fmod})
            yield Row("Mod", (normal(*left, scale=5), between(-2, -0.7, *right)), {"fmod": fmod})
        for name in ("Max", "Mean", "Min", "Sum"):
            yield Row(name, (normal(*left), normal(*right)))
        yield Row("Where", (bits(True, False, True), normal(*left[:-1], 3), normal(*right[:-1], 3)))
    yield Row("Pow", (normal(5), ints(0, 1, 2, 3, 5)))
    yield Row("Pow", (floats(0, 0, 0, -2, -2), floats(1, 2, 3, 2, 3).astype(np.int32)))
    for name in ("Max", "Mean", "Min", "Sum"):
        yield Row(name, (normal(2, 3),))
        yield Row(name, (normal(2, 1), normal(3), normal(4, 1, 1), normal()))
    for slope in ((1,), (4,), (3, 1), (2, 3, 4)):
        yield Row("PRelu", (normal(2, 3, 4), normal(*slope)))
    for low, high in ((None, None), (-0.5, None), (None, 0.5), (-0.5, 0.5), (0.5, -0.5)):
        bounds = [None if bound is None else np.array(bound) for bound in (low, high)]
        yield Row("Clip", (normal(3, 4), *bounds))
    yield Row("Clip", (normal(),))


def reductions() -> Iterator[Row]:
    for axis in (0, 1, -1):
        yield Row("Softmax", (normal(3, 4, 2),), {"axis": axis})
        yield Row("LogSoftmax", (normal(3, 4, 2),), {"axis": axis})
    names = (
        "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
        "ReduceSum", "ReduceSumSquare", "ReduceLogSum",
    )  # fmt: skip
    for name in names:
        draw = (lambda *shape: between(0.1, 2, *shape)) if name == "ReduceLogSum" else normal
        for keepdims in (0, 1):
            for axes in (None, ints(0), ints(1), ints(-1), ints(2, 0), ints(1, -1)):
                yield Row(name, (draw(2, 3, 4), axes), {"keepdims": keepdims})
        yield Row(name, (draw(2, 3),))
        yield Row(name, (draw(),))
        yield Row(name, (draw(2, 3), ints()), {"noop_with_empty_axes": 1})
    yield Row("ReduceProd", (floats([2, 0, 3], [0, 5, 0], [1, 2, 4]), ints(1)))  # with zeros
    for exclusive in (0, 1):
        for reverse in (0, 1):
            for axis in (0, -1):
                attributes = {"exclusive": exclusive, "reverse": reverse}
                yield Row("CumSum", (normal(3, 4), np.array(axis)), attributes)


def selection() -> Iterator[Row]:
    """Places are named twice, and from the end, where they may be."""
    for axis in (0, 1, -1):
        for chosen in (np.array(1), ints(1, 0, 1, -1), ints([0, 1], [-1, 0])):
            yield Row("Gather", (normal(2, 3, 4), chosen), {"axis": axis})
        yield Row("GatherElements", (normal(3, 3), ints([0, 0, -1], [2, 1, 0])), {"axis": axis})
    yield Row("GatherND", (normal(2, 3, 4), ints([0, 1], [0, 1], [-1, 2])))
    yield Row("GatherND", (normal(2, 3, 4), ints([0, 1, 3], [0, 1, 3])))
    yield Row("GatherND", (normal(2, 3, 4), ints([[1], [1]], [[0], [-1]])), {"batch_dims": 1})
    yield Row("Compress", (normal(3, 2), bits(True, False, True)), {"axis": 0})
    yield Row("Compress", (normal(3, 4), bits(False, True)), {"axis": -1})
    yield Row("Compress", (normal(3, 2), bits(False, True, True, False, True)))
    for axis in (0, -1):
        yield Row("ScatterElements", (normal(3, 3), ints([2, -2, 0]), normal(1, 3)), {"axis": axis})
    for reduction in ("add", "mul", "max", "min"):
        attributes = {"axis": 1, "reduction": reduction}
        updates = ints([1, 1, 0, -2], [2, 2, 2, 0])
        yield Row("ScatterElements", (normal(2, 3), updates, normal(2, 4)), attributes)
        yield Row("ScatterND", (normal(4, 3), ints([1], [1], [-1]), normal(3, 3)), {"reduction": reduction})
    yield Row(  # factors that are zero: in the data alone, in an update, in both, in two updates
        "ScatterElements",
        (floats(0, 2, 0, 3, 5), ints(0, 1, 2, 3, 3, 1), floats(4, 0, 0, 0, 0, 7)),
        {"reduction": "mul"},
    )
    yield Row("ScatterND", (normal(2, 3, 2), ints([0, 1], [1, 2]), normal(2, 2)))
    for largest in (0, 1):
        for axis in (0, -1):
            attributes = {"largest": largest, "axis": axis}
            yield Row("TopK", (normal(4, 5), ints(3)), attributes, outputs=2)
    yield Row("TopK", (normal(3), ints(0)), outputs=2)
    for axis in (0, -1):
        inputs = (ints([0, -1], [3, 5]), np.array(4), normal(2))
        yield Row("OneHot", inputs, {"axis": axis})


def shapes() -> Iterator[Row]:
    yield Row("Concat", (normal(2, 3),), {"axis": 0})
    yield Row("Concat", (normal(2, 2), normal(2, 3), normal(2, 0), normal(2, 1)), {"axis": -1})
    for mode in ("DCR", "CRD"):
        yield Row("DepthToSpace", (normal(2, 8, 1, 2),), {"blocksize": 2, "mode": mode})
        yield Row("SpaceToDepth", (normal(1, 2, 4, 2),), {"blocksize": 2, "mode": mode})
    for shape in (ints(2, 3, 4), ints(4), ints(1, 1, 1, 1), ints(3, 1)):
        yield Row("Expand", (normal(3, 1), shape))
    for axis in (0, 1, 2, -1):
        yield Row("Flatten", (normal(2, 3, 2),), {"axis": axis})
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Row("Pad", (normal(3, 4), ints(1, 2, 0, 2)), {"mode": mode})
        yield Row("Pad", (normal(3, 4), ints(2, 3), None, ints(-1)), {"mode": mode})
        yield Row("Pad", (normal(3, 4), ints(-1, 1, 2, -2)), {"mode": mode})
    yield Row("Pad", (normal(2), ints(1, 2), np.array(0.5)))
    yield Row("Reshape", (normal(2, 3, 4), ints(0, -1)))
    yield Row("Reshape", (normal(2, 6), ints(3, 4)))
    yield Row("Reshape", (normal(0, 3), ints(3, 0)), {"allowzero": 1})
    yield Row("Slice", (normal(5, 4), ints(1, 0), ints(4, 2)))
    yield Row("Slice", (normal(5, 4), ints(-1), ints(-100), ints(0), ints(-2)))
    yield Row("Slice", (normal(5, 4), ints(-100), ints(-200), ints(0), ints(-1)))
    yield Row("Slice", (normal(5, 4), ints(0, -3), ints(100, -1), ints(-1, 0), ints(3, 1)))
    yield Row("Split", (normal(5, 2),), {"num_outputs": 2}, outputs=2)
    yield Row("Split", (normal(2, 5), ints(1, 0, 4)), {"axis": -1}, outputs=3)
    for axes in (None, ints(0), ints(-1, 0)):
        yield Row("Squeeze", (normal(1, 3, 1), axes))
    yield Row("Tile", (normal(2, 3), ints(2, 3)))
    yield Row("Tile", (normal(2, 3), ints(0, 1)))
    for order in ((0, 2, 1), (2, 0, 1)):
        yield Row("Transpose", (normal(2, 3, 4),), {"perm": order})
    yield Row("Transpose", (normal(2, 3, 4),))
    for upper in (0, 1):
        for k in (None, np.array(1), np.array(-2)):
            yield Row("Trilu", (normal(2, 3, 4), k), {"upper": upper})
    yield Row("Unsqueeze", (normal(2, 3), ints(0, -1)))
    yield Row("Cast", (normal(2, 3),), {"to": 11})
    yield Row("CastLike", (normal(2, 3), floats(0)))


def products() -> Iterator[Row]:
    matrices = (
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (3, 4, 5)), ((4,), (2, 4, 5)), ((2, 3, 4), (4,)),
    )  # fmt: skip
    for left, right in matrices:
        yield Row("MatMul", (normal(*left), normal(*right)))
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        for shape in ((3, 5), (5,), (3, 1), (1,), ()):
            sides = normal(*((4, 3) if a else (3, 4))), normal(*((5, 4) if b else (4, 5)))
            yield Row(
                "Gemm", (*sides, normal(*shape)), {"transA": a, "transB": b, "alpha": 0.5, "beta": -2.0}
            )
    yield Row("Gemm", (normal(3, 4), normal(4, 5)))
    equations: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
        ("ij,jk->ik", ((2, 3), (3, 4))), ("bij, bjk -> bik", ((2, 2, 3), (2, 3, 4))), ("ij->i", ((2, 3),)),
        ("ij->", ((2, 3),)), ("ij->ji", ((2, 3),)), ("ii->i", ((3, 3),)), ("iij->j", ((3, 3, 2),)),
        ("ii", ((3, 3),)), ("ba", ((2, 3),)), ("i,i", ((3,), (3,))), ("i,j->ij", ((3,), (2,))),
        ("...ij,...jk->...ik", ((2, 1, 2, 3), (4, 3, 2))), ("...i,j...->...", ((2, 3), (4, 2))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))), ("ij,jj->i", ((2, 3), (3, 3))),
        ("bhwd,hkd->bhwk", ((1, 2, 2, 3), (2, 3, 3))), ("...ii", ((2, 3, 3),)),
    )  # fmt: skip
    for equation, shapes in equations:
        yield Row("Einsum", tuple(normal(*shape) for shape in shapes), {"equation": equation})


def windows() -> Iterator[Row]:
    """Convolutions with a bias, strided, dilated, padded and grouped, along one to three axes; pooling."""
    convolutions: tuple[tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]], ...] = (
        ((2, 3, 6), (4, 3, 3), {}),
        ((2, 3, 7), (4, 3, 3), {"strides": (2,), "pads": (1, 0), "dilations": (2,)}),
        ((2, 2, 5, 4), (3, 2, 3, 2), {}),
        ((1, 2, 5, 6), (3, 2, 3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 1)}),
        ((1, 2, 6, 6), (2, 2, 2, 2), {"dilations": (2, 3), "pads": (0, 1, 2, 0)}),
        ((1, 2, 7, 7), (2, 2, 2, 3), {"dilations": (3, 2), "strides": (2, 2)}),
        ((1, 4, 5, 5), (6, 2, 3, 3), {"group": 2, "pads": (1, 1, 1, 1)}),
        ((1, 3, 5, 5), (6, 1, 3, 3), {"group": 3, "strides": (2, 2)}),
        ((1, 3, 6, 5), (3, 1, 2, 2), {"group": 3, "dilations": (2, 1)}),
        ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "SAME_UPPER", "strides": (2, 2)}),
        ((1, 2, 5, 6), (2, 2, 2, 2), {"auto_pad": "SAME_LOWER"}),
        ((1, 2, 5, 6), (2, 2, 3, 2), {"auto_pad": "VALID", "strides": (3, 1)}),
        ((1, 2, 4, 4), (3, 2, 1, 1), {}),
        ((1, 2, 3, 4, 3), (2, 2, 2, 2, 2), {"pads": (1, 0, 0, 0, 1, 0)}),
        ((1, 1, 4, 4, 3), (1, 1, 2, 2, 2), {"dilations": (2, 1, 2)}),
    )
    for image, weight, attributes in convolutions:
        yield Row("Conv", (normal(*image), normal(*weight), normal(weight[0])), attributes)
    transposed: tuple[tuple[tuple[int, ...], tuple[int, ...], Mapping[str, Any]], ...] = (
        ((2, 3, 4), (3, 2, 3), {"strides": (2,), "pads": (1, 0)}),
        ((1, 2, 3, 3), (2, 3, 3, 2), {}),
        ((1, 2, 3, 3), (2, 3, 3, 3), {"strides": (3, 2), "output_padding": (1, 1), "pads": (1, 1, 1, 1)}),
        ((1, 2, 3, 3), (2, 2, 2, 2), {"dilations": (2, 3)}),
        ((1, 4, 3, 3), (4, 2, 2, 2), {"group": 2, "strides": (2, 2)}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_UPPER"}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "auto_pad": "SAME_LOWER"}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (3, 2), "output_shape": (10, 8)}),
        ((1, 2, 3, 3), (2, 2, 3, 3), {"strides": (2, 2), "output_shape": (6, 5)}),
        ((1, 2, 2, 2, 2), (2, 1, 2, 2, 2), {"strides": (2, 2, 2)}),
    )
    for image, weight, attributes in transposed:
        bias = weight[1] * attributes.get("group", 1)
        yield Row("ConvTranspose", (normal(*image), normal(*weight), normal(bias)), attributes)
    pools: tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...] = (
        ((2, 2, 7), {"kernel_shape": (3,), "strides": (2,)}),
        ((1, 2, 6, 5), {"kernel_shape": (2, 3)}),
        ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
        ((1, 2, 6, 6), {"kernel_shape": (3, 3), "strides": (2, 2), "ceil_mode": 1}),
        ((1, 1, 7, 7), {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1, "pads": (0, 0, 1, 1)}),
        ((1, 1, 7, 7), {"kernel_shape": (2, 3), "dilations": (2, 2)}),
        ((1, 1, 6, 5), {"kernel_shape": (3, 2), "strides": (2, 2), "auto_pad": "SAME_UPPER"}),
        ((1, 1, 6, 5), {"kernel_shape": (3, 2), "strides": (2, 2), "auto_pad": "SAME_LOWER"}),
        ((1, 1, 4, 4, 4), {"kernel_shape": (2, 2, 2), "strides": (2, 2, 2)}),
    )
    for shape, attributes in pools:
        yield Row("MaxPool", (apart(*shape),), attributes, outputs=2)
        for counted in (0, 1):
            yield Row("AveragePool", (apart(*shape),), {**attributes, "count_include_pad": counted})
        for p in (1, 2, 3):
            yield Row("LpPool", (apart(*shape),), {**attributes, "p": p})
    columns = {"kernel_shape": (2, 2), "pads": (1, 0, 1, 0), "storage_order": 1}
    yield Row("MaxPool", (apart(2, 3, 5, 4),), columns, outputs=2)
    for kind in ("GlobalAveragePool", "GlobalMaxPool"):
        for shape in ((2, 3, 4), (2, 2, 3, 4), (1, 2, 2, 2, 3)):
            yield Row(kind, (apart(*shape),))


def normalizations() -> Iterator[Row]:
    for shape in ((4, 3), (3, 2, 4), (2, 3, 2, 3)):
        parameters = (*(normal(shape[1]),) * 3, between(0.5, 2, shape[1]))
        yield Row("BatchNormalization", (normal(*shape), *parameters), {"epsilon": 1e-2})
        training = {"training_mode": 1, "momentum": 0.8}
        yield Row("BatchNormalization", (normal(*shape), *parameters), training, outputs=3)
        yield Row("BatchNormalization", (normal(*shape), *parameters), {"training_mode": 1})
    for axis in (-1, 1, 0, -2):
        attributes, shape = {"axis": axis, "epsilon": 1e-2}, (2, 3, 4)
        for scale in (shape[axis:], (4,), (1,)):
            yield Row("LayerNormalization", (normal(*shape), normal(*scale), normal(*scale)), attributes)
            yield Row("RMSNormalization", (normal(*shape), normal(*scale)), attributes)
    yield Row("LayerNormalization", (normal(2, 3, 4), normal(3, 4)), {"axis": 1, "stash_type": 11}, outputs=3)
    for shape in ((2, 4, 5), (2, 4, 2, 3)):
        yield Row("GroupNormalization", (normal(*shape), normal(4), normal(4)), {"num_groups": 2})
        yield Row("InstanceNormalization", (normal(*shape), normal(4), normal(4)), {"epsilon": 1e-2})
    for axes in ({}, {"axes": (0,)}, {"axes": (1, 2)}, {"axes": (0, 1, 2, 3)}):
        yield Row("MeanVarianceNormalization", (normal(3, 2, 2, 3),), axes)
    for axis in (-1, 0, 1):
        for p in (1, 2):
            yield Row("LpNormalization", (normal(3, 4, 2),), {"p": p, "axis": axis})
    for size in (1, 2, 3, 4, 7):
        yield Row("LRN", (normal(2, 5, 2, 2),), {"size": size, "alpha": 0.3, "beta": 0.6, "bias": 1.5})
    yield Row("Dropout", (normal(4, 5),))
    for outputs in (1, 2):
        yield Row("Dropout", (normal(4, 5), np.array(0.4), np.array(True)), outputs=outputs)


STATES = {"RNN": (1, 1), "GRU": (3, 1), "LSTM": (4, 2)}  # gates, and states


def recurrent() -> Iterator[Row]:
    """Sequences of 4, 1 and 3 steps with all that can be given, or with nothing that need not be."""
    variants: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("RNN", {}), ("RNN", {"clip": 0.8}),
        ("RNN", {"activations": ("Affine",), "activation_alpha": (0.5,), "activation_beta": (0.1,)}),
        *(("RNN", {"activations": (name,)}) for name in (
            "Relu", "sigmoid", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "Elu", "Softsign", "Softplus")),
        ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("GRU", {"linear_before_reset": 1, "clip": 0.9}),
        ("GRU", {"activations": ("HardSigmoid", "Softsign")}),
        ("LSTM", {}), ("LSTM", {"input_forget": 1}), ("LSTM", {"clip": 0.7}),
        ("LSTM", {"activations": ("Sigmoid", "ScaledTanh", "Elu"), "activation_alpha": (0.9, 1.1),
                  "activation_beta": (0.8,)}),
    )  # fmt: skip
    for kind, more in variants:
        for direction in ("forward", "reverse"):
            yield recurrence(kind, {"direction": direction, **more}, np.array([4, 1, 3], np.int32))
    for kind in STATES:
        both = {"direction": "bidirectional", "linear_before_reset": 1}
        yield recurrence(kind, both, np.array([4, 1, 3], np.int32))
        yield recurrence(kind, both, peepholes=False)
        yield recurrence(kind, {**both, "layout": 1}, peepholes=False)
        whole = recurrence(kind, {})
        yield Row(kind, whole.inputs[:3], {"hidden_size": 3}, whole.outputs)


def recurrence(
    kind: str, attributes: Mapping[str, Any], lengths: Array | None = None, peepholes: bool = True
) -> Row:
    """Four steps, a batch of three, two features, three hidden units; peepholes of an LSTM."""
    (gates, states), directions = STATES[kind], 2 if attributes.get("direction") == "bidirectional" else 1
    batch_first = attributes.get("layout")
    inputs: list[Array | Draw | None] = [
        normal(3, 4, 2) if batch_first else normal(4, 3, 2),
        normal(directions, 3 * gates, 2), normal(directions, 3 * gates, 3), normal(directions, 6 * gates),
        lengths, *[normal(3, directions, 3) if batch_first else normal(directions, 3, 3)] * states,
    ]  # fmt: skip
    if kind == "LSTM" and peepholes:
        inputs.append(normal(directions, 9))
    return Row(kind, tuple(inputs), {"hidden_size": 3, **attributes}, 1 + states)


def attention() -> Iterator[Row]:
    """Two heads of queries for one of keys: (batch, heads, length, features)."""
    heads = (normal(2, 2, 3, 2), normal(2, 1, 4, 2), normal(2, 1, 4, 3))
    past = (normal(2, 1, 2, 2), normal(2, 1, 2, 3))
    generator = np.random.default_rng(0)
    forbidden = np.where(generator.random((3, 4)) < 0.3, -np.inf, 0.0)
    truths = generator.random((2, 1, 3, 4)) < 0.7
    finite: tuple[tuple[tuple[Array | Draw | None, ...], Mapping[str, Any]], ...] = (
        (heads, {}), (heads, {"scale": 0.3}), (heads, {"softcap": 1.5}), ((*heads, normal(3, 4)), {}),
        ((*heads, normal(2, 1, 4)), {"softcap": 2.0}),
    )  # fmt: skip
    for inputs, attributes in finite:
        for mode in range(4):
            yield Row("Attention", inputs, {**attributes, "qk_matmul_output_mode": mode}, outputs=4)
    masked: tuple[tuple[tuple[Array | Draw | None, ...], Mapping[str, Any]], ...] = (
        (heads, {"is_causal": 1}), (heads, {"left_window_size": 1, "right_window_size": 2}),
        (heads, {"left_window_size": 1, "is_causal": 1}), ((*heads, normal(2, 1, 3, 3)), {}),
        ((*heads, forbidden), {"is_causal": 1}), ((*heads, truths), {}),
        ((*heads, None, *past), {"is_causal": 1}), ((*heads, normal(3, 6), *past), {"is_causal": 1}),
        ((*heads, None, None, None, ints(4, 2)), {"is_causal": 1}),
    )  # fmt: skip
    for inputs, attributes in masked:
        yield Row("Attention", inputs, attributes, outputs=3)
    for of_queries, of_keys in ((4, 2), (2, 2), (2, 1)):
        flat = (normal(2, 3, 2 * of_queries), normal(2, 4, 2 * of_keys), normal(2, 4, 3 * of_keys))
        yield Row("Attention", flat, {"q_num_heads": of_queries, "kv_num_heads": of_keys})
    rotations: tuple[tuple[tuple[int, ...], Mapping[str, Any]], ...] = (
        ((2, 3, 4, 6), {}), ((2, 3, 4, 6), {"interleaved": 1}), ((2, 3, 4, 6), {"rotary_embedding_dim": 4}),
        ((2, 3, 4, 6), {"rotary_embedding_dim": 4, "interleaved": 1}), ((2, 4, 18), {"num_heads": 3}),
    )  # fmt: skip
    for shape, attributes in rotations:
        half = attributes.get("rotary_embedding_dim", 6) // 2
        yield Row("RotaryEmbedding", (normal(*shape), *(normal(2, 4, half),) * 2), attributes)
        chosen = ints([0, 1, 2, 3], [6, 2, 2, 0])
        yield Row("RotaryEmbedding", (normal(*shape), *(normal(7, half),) * 2, chosen), attributes)


def resizing() -> Iterator[Row]:
    """Larger and smaller, in every mode, with every way to find the coordinates."""
    ways = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
    modes: tuple[Mapping[str, Any], ...] = (
        {"mode": "nearest"}, {"mode": "linear"}, {"mode": "cubic"}, {"mode": "cubic", "exclude_outside": 1},
    )  # fmt: skip
    for attributes in modes:
        for way in ways:
            for scales in ((1.6, 2.0), (0.6, 0.5)):
                every = {**attributes, "axes": (2, 3), "coordinate_transformation_mode": way}
                yield Row("Resize", (normal(1, 2, 5, 4), None, np.array(scales, np.float32)), every)
    for mode in ("linear", "cubic"):
        antialias = {"mode": mode, "antialias": 1, "axes": (2, 3)}
        yield Row("Resize", (normal(1, 1, 7, 8), None, None, ints(3, 5)), antialias)
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        attributes = {"nearest_mode": nearest, "coordinate_transformation_mode": "asymmetric"}
        yield Row("Resize", (normal(6, 4), None, np.array((0.5, 1.5), np.float32)), attributes)
    for mode in ("nearest", "linear", "cubic"):
        crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
        part = np.array((0, 0, 0.2, -0.4, 1, 1, 0.9, 1.3), np.float32)
        yield Row("Resize", (normal(1, 1, 4, 4), part, None, ints(1, 1, 3, 5)), {"mode": mode, **crop})
    for policy in ("not_larger", "not_smaller"):
        attributes = {"mode": "linear", "keep_aspect_ratio_policy": policy}
        yield Row("Resize", (normal(4, 2), None, None, ints(6, 5)), attributes)
    one = {"mode": "cubic", "coordinate_transformation_mode": "pytorch_half_pixel"}
    yield Row("Resize", (normal(1, 3), None, None, ints(1, 1)), one)


def losses() -> Iterator[Row]:
    yield Row("MeanSquaredError", (normal(3, 2), normal(3, 2)))
    for reduction in ("mean", "sum", "none"):
        for shape in ((4, 3), (2, 3, 4), (2, 3, 2, 2)):
            labels = np.random.default_rng(0).integers(0, 3, (shape[0], *shape[2:]))
            ignoring = labels.copy()
            ignoring.flat[:2] = -100
            attributes = {"reduction": reduction}
            for kind, outputs in (("NegativeLogLikelihoodLoss", 1), ("SoftmaxCrossEntropyLoss", 2)):
                yield Row(kind, (normal(*shape), labels), attributes, outputs)
                weights = between(0.5, 2, 3)
                yield Row(kind, (normal(*shape), labels, weights), {**attributes, "ignore_index": 1}, outputs)
                yield Row(kind, (normal(*shape), ignoring), {**attributes, "ignore_index": -100}, outputs)


def others() -> Iterator[Row]:
    """Of which a shape stands for numbers that are drawn."""
    levels = np.arange(-6, 6, dtype=np.int8).reshape(3, 4)
    index = np.array([[[[1, 7], [8, 14]]]])
    pixels = np.array([[1.2, 0.7, 4.1, 3.9], [0.0, 0.4, 2.2, 4.6]])
    rows: tuple[tuple[str, tuple[tuple[int, ...] | Array | None, ...], Mapping[str, Any]], ...] = (
        ("CumProd", ((2, 3), np.array(1)), {}),
        ("CumProd", ((2, 3), np.array(0)), {"exclusive": 1, "reverse": 1}),
        ("Det", ((2, 3, 3),), {}),
        ("DequantizeLinear", (levels[:2, :3], (3,), np.array([1, 0, 2], np.int8)), {}),
        ("DequantizeLinear", (levels, (2, 4)), {"axis": 0, "block_size": 2}),
        ("Col2Im", ((1, 8, 6), ints(3, 4), ints(2, 2)), {}),
        ("Col2Im", ((1, 4, 6), ints(4, 4), ints(2, 2)), {"strides": (2, 2), "pads": (1, 0, 1, 1)}),
        ("DeformConv", ((1, 2, 4, 4), (2, 1, 2, 2), (1, 16, 3, 3), (2,), (1, 8, 3, 3)),
         {"group": 2, "offset_group": 2}),
        ("GridSample", ((1, 2, 3, 4), (1, 2, 3, 2)), {}),
        ("GridSample", ((1, 1, 3, 4), (1, 2, 2, 2)), {"mode": "cubic", "padding_mode": "reflection"}),
        ("GridSample", ((1, 1, 3, 2, 3), (1, 1, 2, 2, 3)), {"padding_mode": "border", "align_corners": 1}),
        ("GridSample", ((1, 1, 5), (1, 3, 1)), {"padding_mode": "border"}),
        ("MaxUnpool", ((1, 1, 2, 2), index), {"kernel_shape": (2, 2), "strides": (2, 2)}),
        ("RoiAlign", ((1, 2, 5, 5), pixels, ints(0, 0)), {"output_height": 2, "output_width": 2}),
        ("RoiAlign", ((1, 1, 5, 5), pixels, ints(0, 0)), {"output_height": 2, "sampling_ratio": 2,
         "coordinate_transformation_mode": "output_half_pixel"}),
        ("DFT", ((1, 5, 2),), {}),
        ("DFT", ((1, 4, 1), np.array(6), np.array(1)), {"onesided": 1}),
        ("DFT", ((2, 4, 2), None, np.array(0)), {"inverse": 1}),
        ("DFT", ((1, 4, 2), np.array(6)), {"inverse": 1, "onesided": 1}),
        ("STFT", ((1, 8, 1), np.array(2), (4,)), {"onesided": 1}),
        ("STFT", ((1, 8, 2), np.array(3), None, np.array(4)), {"onesided": 0}),
        ("Unique", ((6,),), {"sorted": 0}),
        ("Unique", ((3, 2),), {"axis": 0}),
        ("ReverseSequence", ((4, 3, 2), ints(2, 4, 1)), {}),
        ("TensorScatter", ((2, 1, 5, 2), (2, 1, 2, 2), ints(1, 3)), {}),
        ("TensorScatter", ((2, 5, 2), (2, 3, 2), ints(1, 4)), {"mode": "circular"}),
    )  # fmt: skip
    for kind, inputs, attributes in rows:
        drawn = tuple(between(-0.95, 0.95, *each) if isinstance(each, tuple) else each for each in inputs)
        yield Row(kind, drawn, attributes)


ROWS = (
    *functions(), *arithmetic(), *reductions(), *selection(), *shapes(), *products(), *windows(),
    *normalizations(), *recurrent(), *attention(), *resizing(), *losses(), *others(),
)  # fmt: skip
WITHOUT_GRADIENT = frozenset(  # their outputs do not follow from floating-point inputs, or in steps only
    (
        "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil",
        "Constant", "ConstantOfShape", "Equal", "EyeLike", "Floor", "Greater", "GreaterOrEqual", "Hardmax",
        "IsInf", "IsNaN", "Less", "LessOrEqual", "NonZero", "Not", "Or", "RandomNormal", "RandomNormalLike",
        "RandomUniform", "RandomUniformLike", "Range", "Round", "Shape", "Sign", "Size", "Xor",
        "BitCast", "ConvInteger", "MatMulInteger", "MelWeightMatrix", "NonMaxSuppression", "QLinearConv",
        "QLinearMatMul", "QuantizeLinear", "TfIdfVectorizer",
    )
)  # fmt: skip
