"""Operators with inputs and attributes at which their derivatives are looked at: one table"""

import zlib
from collections.abc import Callable, Iterator, Mapping
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


def shared() -> Iterator[Row]:
    for kind, inputs, attributes in shared_rows.ROWS:
        drawn = tuple(between(-0.95, 0.95, *each) if isinstance(each, tuple) else each for each in inputs)
        if kind != "Det":  # which stands among the products
            yield Row(kind, drawn, attributes)


ROWS = (*functions(), *arithmetic(), *reductions(), *selection(), *shapes(), *shared())

WITHOUT_GRADIENT = {  # why there are no rows for them
    **dict.fromkeys(shared_rows.WITHOUT_GRADIENT, "in steps, or of what is no floating-point number"),
    **dict.fromkeys(("Ceil", "Floor", "Round", "Sign"), "constant between their steps"),
    **dict.fromkeys(
        (
            "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Equal", "Greater",
            "GreaterOrEqual", "IsInf", "IsNaN", "Less", "LessOrEqual", "Not", "Or", "Xor", "ArgMax", "ArgMin",
            "Hardmax", "NonZero", "Shape", "Size", "EyeLike", "ConstantOfShape", "Constant", "Range",
            "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
        ),
        "their outputs do not follow from the values of floating-point inputs",
    ),
}  # fmt: skip
