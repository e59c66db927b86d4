"""The operators where ONNX's own cases do not look: ends of ranges, ties, empty sets"""

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from torch import Tensor
from torch.nn import functional

from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS
from tests.ops.operator_rows import Row
from tests.ops.running import RUNS, run

FRAMEWORKS = ("numpy", "torch", "tensorflow")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
in_every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@in_every_framework
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_are_divided_towards_zero(dtype: str, framework: str) -> None:
    """All pairs, against exact fractions; their remainders complete them."""
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype)[:, None]
    y = x[x != 0][None, :]
    quotient, rest = run(framework, "Div", x, y), run(framework, "Mod", x, y, fmod=1)
    assert quotient.dtype == rest.dtype == dtype
    for i, j in [(i, j) for i in range(0, 256, 5) for j in range(255)]:
        exact = math.trunc(Fraction(int(x[i, 0]), int(y[0, j])))
        if exact <= info.max:  # but for -128 / -1
            assert quotient[i, j] == exact and rest[i, j] == int(x[i, 0]) - exact * int(y[0, j])
    remainder = run(framework, "Mod", x, y)
    np.testing.assert_array_equal(remainder, x.astype(int) % y.astype(int))  # Python's, signed as y


def test_powers_of_integers_are_exact() -> None:
    """Against Python's own; negative exponents give the fraction, cut off."""
    for base in range(-6, 7):
        for exponent in range(-4 if base else 0, 23):
            exact = math.trunc(Fraction(base) ** exponent)
            for dtype in ("int32", "int64"):
                found = OPERATORS["Pow"].forward(
                    np, NodeContext(Node("Pow", ("a", "b"), ("y",))),
                    [np.array(base, dtype), np.array(exponent, "int8")],
                )[0]  # fmt: skip
                assert found.dtype == dtype and found == np.array(exact).astype(dtype)


@in_every_framework
def test_powers_keep_the_type_of_the_base(framework: str) -> None:
    """Whatever the exponent's is."""
    for base, exponent in ((np.float32, np.int64), (np.int32, np.float32), (np.float64, np.float32)):
        found = run(framework, "Pow", np.array([2, 3], base), np.array([3, 2], exponent))
        assert found.dtype == base and found.tolist() == [8, 9]


@in_every_framework
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", *UNSIGNED])
def test_bits_shifted_out_are_gone(dtype: str, framework: str) -> None:
    """By any number of places, against Python's integers."""
    bits, low, high = 8 * np.dtype(dtype).itemsize, int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    if framework == "tensorflow" and dtype.startswith("i"):
        pytest.skip("ONNX shifts unsigned integers")
    x = np.array([low, low + 1, 0, 1, 3, high // 2, high - 1, high], dtype)
    for places in (0, 1, 2, bits - 1, bits, bits + 1, 100):
        left = [((int(each) << places) - low) % 2**bits + low for each in x]
        right = [int(each) >> places for each in x]
        for direction, expected in (("LEFT", left), ("RIGHT", right)):
            found = run(framework, "BitShift", x, np.full(8, places, dtype), direction=direction)
            np.testing.assert_array_equal(found, np.array(expected, dtype))


INTEGERS: Mapping[str, Any] = {  # against NumPy, which computes modulo the type's size
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Mod": np.mod, "Div": np.floor_divide,
}  # fmt: skip


@in_every_framework
@pytest.mark.parametrize("kind", INTEGERS)
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_unsigned_integers_are_computed_as_they_are(framework: str, kind: str, data: st.DataObject) -> None:
    """All of them, up to 2⁶⁴ − 1."""
    dtype = data.draw(st.sampled_from(UNSIGNED))
    a, b = (data.draw(arrays.arrays(dtype, 3)) for _ in range(2))
    b = np.maximum(b, 1).astype(dtype) if kind in ("Mod", "Div") else b
    found, expected = run(framework, kind, a, b), INTEGERS[kind](a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@in_every_framework
@pytest.mark.parametrize("dtype", UNSIGNED)
def test_great_unsigned_integers_keep_their_order(dtype: str, framework: str) -> None:
    """In what only compares and chooses."""
    compute = partial(run, framework)
    x = np.array([[1, np.iinfo(dtype).max, 0], [np.iinfo(dtype).max // 2 + 1, 7, 3]], dtype)
    np.testing.assert_array_equal(compute("ArgMax", x, axis=1), [[1], [0]])
    np.testing.assert_array_equal(compute("ReduceMax", x, keepdims=0), x.max())
    np.testing.assert_array_equal(compute("ReduceMin", x, np.array([1]), keepdims=0), [0, 3])
    np.testing.assert_array_equal(compute("Clip", x, np.array(2, dtype), x[1, 0]), np.clip(x, 2, x[1, 0]))
    values, places = compute("TopK", x, np.array([2]), outputs=2)
    np.testing.assert_array_equal(values, -np.sort(-x.astype(object))[:, :2])
    np.testing.assert_array_equal(places, [[1, 0], [0, 1]])


@in_every_framework
def test_nothing_overflows_on_the_way(framework: str) -> None:
    """Far from zero the activations and softmaxes have their limits, and finite slopes."""
    far, compute = np.array([-1000, 1000], np.float32), partial(run, framework)
    for kind in ("Sigmoid", "Softmax"):
        assert compute(kind, far).tolist() == [0, 1]
    for kind in ("Softplus", "Mish", "Swish"):
        assert compute(kind, far).tolist() == [0, 1000]
    assert compute("Elu", far).tolist() == [-1, 1000]
    assert compute("Celu", far, alpha=2.0).tolist() == [-2, 1000]
    assert compute("LogSoftmax", far).tolist() == [-2000, 0]
    assert compute("ReduceLogSumExp", far).tolist() == [1000]
    assert compute("Log", np.zeros(1)).tolist() == [-math.inf]
    for kind in ("Sigmoid", "Softplus", "Mish", "Swish", "Elu", "Selu", "Celu", "Gelu", "Softsign", "Tanh"):
        (slope,) = RUNS[framework](Row(kind, (far,)).context, [far]).gradients
        assert slope is not None and np.isfinite(slope).all(), kind


@in_every_framework
def test_small_values_keep_their_digits(framework: str) -> None:
    """Tails that the textbook formula loses: exp(x) for Sigmoid, −φ(x) for Gelu, expm1 for Elu."""
    x = np.array([-30.0])
    np.testing.assert_allclose(run(framework, "Sigmoid", x), np.exp(x), rtol=1e-12)
    np.testing.assert_allclose(run(framework, "Softplus", x), np.exp(x), rtol=1e-12)
    if framework == "numpy":
        np.testing.assert_allclose(run("numpy", "Elu", np.array([-1e-12])), [-1e-12 + 5e-25], rtol=1e-14)
        density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
        np.testing.assert_allclose(run("numpy", "Gelu", x), -density * (1 - x**-2 + 3 * x**-4), rtol=1e-7)


@in_every_framework
@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("ReduceSum", "float32", 0.0), ("ReduceProd", "float32", 1.0), ("ReduceMax", "float32", -math.inf),
        ("ReduceMin", "float32", math.inf), ("ReduceMax", "int8", -128), ("ReduceMin", "uint8", 255),
        ("ReduceMax", "bool", False), ("ReduceMin", "bool", True), ("ReduceLogSumExp", "float64", -math.inf),
        ("ReduceLogSum", "float64", -math.inf), ("ReduceL2", "int32", 0), ("ReduceMean", "float32", math.nan),
    ],
)  # fmt: skip
def test_nothing_reduces_to_the_neutral_number(kind: str, dtype: str, expected: Any, framework: str) -> None:
    """Of the type, one for every place that is left."""
    found = run(framework, kind, np.zeros((2, 0), dtype), np.array([1]), keepdims=0)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [expected, expected])


@in_every_framework
def test_what_is_not_finite_stays_where_it_is(framework: str) -> None:
    """ln Σ exp of −∞ alone is −∞, with ∞ it is ∞; nothing that selects or bounds hides a nan."""
    compute = partial(run, framework)
    both = np.array([[-math.inf, -math.inf], [math.inf, 0.0]])
    assert compute("ReduceLogSumExp", both, np.array([1]), keepdims=0).tolist() == [-math.inf, math.inf]
    x = np.array([math.nan, 1.0])
    for found in (
        compute("Relu", x), compute("Clip", x, -1.0, 1.0), compute("Max", x, 0.0), compute("Min", x, 0.0),
        compute("LeakyRelu", x), compute("HardSigmoid", x), compute("Abs", x), compute("Mod", x, 2.0, fmod=1),
    ):  # fmt: skip
        assert np.isnan(found[0]) and not np.isnan(found[1])
    for kind in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        assert np.isnan(compute(kind, x)).all()
    image = np.array([[np.inf, *[0] * 7]])
    y = run("numpy", "Resize", image, None, np.array([1, 2], np.float32), mode="linear")
    assert np.isfinite(y[0, 4:]).all() and not np.isfinite(y[0, 0])


@in_every_framework
def test_integers_keep_their_type_when_reduced(framework: str) -> None:
    """Means and norms are cut off; integers beyond 2⁵³ stay exact."""
    compute, x = partial(run, framework), np.array([2**60 + 1, 2**60 + 3, 2**60 + 3], np.int64)
    assert compute("ReduceSum", x).tolist() == [3 * 2**60 + 7]
    assert compute("ReduceMean", np.array([-3, 0], np.int32)).tolist() == [-1]
    assert compute("ReduceL2", np.array([100000, 100000], np.int32)).tolist() == [141421]
    assert compute("CumSum", np.array([100, 100], np.int32), np.array(0)).dtype == np.int32
    assert run("numpy", "ReduceMean", x).tolist() == [2**60 + 2]


def sliced(x: Sequence[int], start: int, end: int, step: int) -> list[int]:
    """As ONNX writes it: negative numbers count from the end, then all are moved into range."""
    size = len(x)
    start, end = (start + size if start < 0 else start), (end + size if end < 0 else end)
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return [x[place] for place in range(start, end, step)]


@in_every_framework
@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(0, 5),
    start=st.integers(-9, 9) | st.just(-(2**63)),
    end=st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63)]),
    step=st.sampled_from([-3, -2, -1, 1, 2, 3]),
)
def test_slices_are_onnx_slices(framework: str, size: int, start: int, end: int, step: int) -> None:
    """Wherever they start and end, forwards and backwards."""
    if framework != "numpy":
        start, end = (
            max(start, -size),
            max(end, -9),
        )  # as Python's slices, they start at no element before the first
    found = run(framework, "Slice", np.arange(size), *(np.array([each]) for each in (start, end, 0, step)))
    assert found.tolist() == sliced(range(size), start, end, step)


@in_every_framework
@settings(deadline=None, max_examples=60)
@given(
    mode=st.sampled_from(["edge", "reflect", "wrap", "constant"]),
    widths=st.tuples(*[st.integers(-1, 9)] * 4),
    shape=st.tuples(st.integers(2, 4), st.integers(3, 4)),
)
def test_pads_are_those_of_numpy(
    framework: str, mode: Any, widths: tuple[int, ...], shape: tuple[int, int]
) -> None:
    """Also several times as wide as the tensor; what negative ones cut off is not mirrored."""
    x = np.arange(math.prod(shape)).reshape(shape)
    kept = x[tuple(slice(max(-b, 0), min(e, 0) or None) for b, e in zip(widths[:2], widths[2:], strict=True))]
    if kept.size:
        pairs = [(max(begin, 0), max(end, 0)) for begin, end in zip(widths[:2], widths[2:], strict=True)]
        found = run(framework, "Pad", x, np.array(widths), mode=mode)
        np.testing.assert_array_equal(found, np.pad(kept, pairs, mode=mode))


@in_every_framework
def test_of_equal_elements_the_first_comes_first(framework: str) -> None:
    """Largest and smallest; in NumPy nan counts as the largest."""
    compute, x = partial(run, framework), np.array([1.0, 3.0, 1.0, 3.0])
    for largest, expected in ((1, [1, 3, 0]), (0, [0, 2, 1])):
        values, places = compute("TopK", x, np.array([3]), outputs=2, largest=largest)
        assert places.tolist() == expected and values.tolist() == x[places].tolist()
    assert compute("TopK", np.zeros(40), np.array([5]), outputs=2)[1].tolist() == [0, 1, 2, 3, 4]
    assert compute("ArgMax", x, axis=0, keepdims=0) == 1 == compute("Hardmax", x).argmax()
    assert compute("ArgMax", x, axis=0, keepdims=0, select_last_index=1) == 3
    assert compute("ArgMin", x, axis=0, keepdims=0, select_last_index=1) == 2
    assert run("numpy", "TopK", np.array([*x, math.nan]), np.array([2]), outputs=2)[1].tolist() == [4, 1]


@in_every_framework
def test_indices_may_lie_outside_or_pick_a_part(framework: str) -> None:
    """OneHot counts down to −depth; an index tensor may be smaller than the data; maxima are found again."""
    compute = partial(run, framework)
    found = compute("OneHot", np.array([0, -3, -4, 3]), np.array(3), np.array([7, 9]))
    assert found.tolist() == [[9, 7, 7], [9, 7, 7], [7, 7, 7], [7, 7, 7]]
    if framework != "tensorflow":  # which has not where of a number
        assert compute("NonZero", np.array(5.0)).shape == (0, 1)
        assert compute("NonZero", np.array(0.0)).shape == (0, 0)
    x = np.arange(12).reshape(3, 4)
    assert compute("GatherElements", x, np.array([[3, -1]]), axis=1).tolist() == [[3, 3]]
    found = compute("ScatterElements", x, np.array([[2], [0]]), np.array([[-1], [-2]]), axis=1)
    assert found.tolist() == [[0, 1, -1, 3], [-2, 5, 6, 7], [8, 9, 10, 11]]
    image = np.random.default_rng(0).standard_normal((2, 3, 5, 4))
    for order, counted in ((0, image), (1, image.swapaxes(2, 3))):
        window: Any = {"kernel_shape": (2, 2), "pads": (1, 0, 1, 0), "storage_order": order}
        y, places = compute("MaxPool", image, outputs=2, **window)
        np.testing.assert_array_equal(counted.ravel()[places], y)


@in_every_framework
@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_padding_that_is_found_is_not_rounded_up(kind: str, framework: str) -> None:
    """With ceil_mode, too: (size − extent) // stride + 1 windows for VALID, size / stride for SAME."""
    x = np.random.default_rng(0).random((1, 1, 7, 8))
    for auto_pad, sizes in (("VALID", (3, 3)), ("SAME_UPPER", (4, 4))):
        window: Any = {"kernel_shape": (2, 3), "strides": (2, 2), "auto_pad": auto_pad, "ceil_mode": 1}
        assert run(framework, kind, x, **window).shape[2:] == sizes


@in_every_framework
def test_whole_numbers_stay_in_their_range(framework: str) -> None:
    """Padding is smaller than any of them; cubic overshoots, and uint8 ends at 255."""
    x = np.full((1, 1, 3, 3), -128, np.int8)
    y = run(framework, "MaxPool", x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    assert y.dtype == np.int8 and (y == -128).all()
    image, scales = np.array([[0, 0, 255, 255, 0, 0]], np.uint8), np.array([1, 3], np.float32)
    y = run(framework, "Resize", image, None, scales, mode="cubic")
    exact = run("numpy", "Resize", image.astype(float), None, scales, mode="cubic")
    assert exact.max() > 255 and exact.min() < 0
    np.testing.assert_array_equal(y, np.clip(np.rint(exact), 0, 255).astype(np.uint8))
    whole = [np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)]
    y = run(framework, "Gemm", *whole, alpha=2.0)
    assert y.dtype == np.int64 and y.tolist() == (2 * whole[0] @ whole[1]).tolist()


@in_every_framework
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_losses_are_computed_wide(dtype: Any, framework: str) -> None:
    """exp of a thousand is no number of float32; the sum of many is none of float16."""
    scores = np.array([[1000, 0], [0, 1000]], dtype)
    assert run(framework, "SoftmaxCrossEntropyLoss", scores, np.array([0, 1])) == 0
    mean = run(framework, "MeanSquaredError", np.full(100_000, 2, dtype), np.zeros(100_000, dtype))
    assert mean == 4 and mean.dtype == dtype


zero, one, ends = np.zeros(1), np.ones(1), np.array([-1.0, 1.0])
KINKS: Mapping[str, tuple[Row, Callable[..., Tensor]]] = {
    "Abs": (Row("Abs", (zero,)), torch.abs),
    "Relu": (Row("Relu", (zero,)), torch.relu),
    "LeakyRelu": (Row("LeakyRelu", (zero,), {"alpha": 0.3}), lambda x: functional.leaky_relu(x, 0.3)),
    "PRelu": (Row("PRelu", (zero, np.array([0.3]))), torch.prelu),
    "Elu": (Row("Elu", (zero,), {"alpha": 0.3}), lambda x: functional.elu(x, 0.3)),
    "Celu": (Row("Celu", (zero,), {"alpha": 0.3}), lambda x: functional.celu(x, 0.3)),
    "HardSwish": (Row("HardSwish", (3 * ends,)), functional.hardswish),
    "HardSigmoid": (  # PyTorch's alpha is 1/6
        Row("HardSigmoid", (4 * ends,), {"alpha": 0.125}), lambda x: functional.hardsigmoid(0.75 * x),
    ),
    "Shrink": (Row("Shrink", (0.5 * ends,), {"bias": 0.5}), lambda x: functional.softshrink(x, 0.5)),
    "ThresholdedRelu": (Row("ThresholdedRelu", (one,)), lambda x: functional.threshold(x, 1.0, 0.0)),
    "Clip": (Row("Clip", (ends, np.array(-1.0), np.array(1.0))), torch.clamp),
    "Max": (Row("Max", (one, one)), torch.maximum),
    "Min": (Row("Min", (one, one)), torch.minimum),
    "Pow": (Row("Pow", (np.zeros(3), np.array([0.0, 1.0, 2.0]))), torch.pow),
    "ReduceL1": (Row("ReduceL1", (np.array([0.0, 1.0]),)), lambda x: torch.linalg.vector_norm(x, 1)),
    "ReduceL2": (Row("ReduceL2", (np.zeros(2),)), lambda x: torch.linalg.vector_norm(x)),
    "ReduceMax": (Row("ReduceMax", (np.array([1.0, 2.0, 2.0]),)), torch.amax),
    "ReduceMin": (Row("ReduceMin", (np.array([1.0, 1.0, 2.0]),)), torch.amin),
    "ReduceProd, two zeros": (Row("ReduceProd", (np.array([0.0, 0.0, 3.0]),)), torch.prod),
    "Softmax": (Row("Softmax", (np.ones(2),)), lambda x: torch.softmax(x, -1)),
    "MaxPool": (
        Row("MaxPool", (np.zeros((1, 1, 4, 4)),), {"kernel_shape": (2, 2)}),
        lambda x: functional.max_pool2d(x, 2, 1),
    ),
    "GlobalMaxPool": (
        Row("GlobalMaxPool", (np.zeros((1, 1, 2, 2)),)), lambda x: functional.adaptive_max_pool2d(x, 1),
    ),
}  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("kind", KINKS)
def test_slopes_at_kinks_are_those_of_pytorch(kind: str) -> None:
    """One-sided slopes, equal shares, the first of equal ones, or 0."""
    row, function = KINKS[kind]
    inputs = row.drawn(np.float64)
    found = RUNS["numpy"](row.context, inputs).gradients
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = function(*tensors)
    y.backward(torch.sin(1 + 2.3 * torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape))  # type: ignore[no-untyped-call]
    for x, gradient in zip(tensors, found, strict=True):
        assert x.grad is not None
        given = np.zeros(x.shape) if gradient is None else gradient
        np.testing.assert_allclose(given, x.grad.numpy(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_range_of_16_bits_is_rounded_once(dtype: Any) -> None:
    """Steps of 1 beyond the numbers that the type can tell apart still advance."""
    start, limit, delta = (np.array(each, dtype) for each in (0, 3000, 1))
    found = run("numpy", "Range", start, limit, delta)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.arange(float(limit)).astype(dtype))


@in_every_framework
def test_ranges_of_integers_are_python_ranges(framework: str) -> None:
    """Of every integer type that ONNX counts in; TensorFlow refuses what is empty."""
    for bounds in ((10, 4, -2), (1, 5, 2), (0, 7, 3), (-4, 3, 1), *[(5, 1, 2)] * (framework != "tensorflow")):
        for dtype in (np.int16, np.int32, np.int64):
            found = run(framework, "Range", *(np.array(each, dtype) for each in bounds))
            assert found.dtype == dtype and found.tolist() == list(range(*bounds))


@in_every_framework
@pytest.mark.parametrize(
    ("attributes", "dtype", "expected"),
    [
        ({"value": np.array([[1, 2]], np.uint8)}, np.uint8, [[1, 2]]),
        ({"value_float": 1.5}, np.float32, 1.5),
        ({"value_floats": (1.5, 2.5)}, np.float32, [1.5, 2.5]),
        ({"value_int": 3}, np.int64, 3),
        ({"value_ints": ()}, np.int64, []),
    ],
)
def test_a_constant_is_what_the_node_says(attributes: Any, dtype: Any, expected: Any, framework: str) -> None:
    """Numbers are float32 or int64."""
    found = run(framework, "Constant", **attributes)
    assert found.dtype == dtype and found.tolist() == expected


def test_what_the_network_holds_is_read_there() -> None:
    """A new shape among the node's constants is not fetched from the device again."""

    class OnDevice:
        ndim = 1

        def get(self) -> Any:
            raise AssertionError("it was fetched")

    context = NodeContext(Node("Reshape", ("x", "shape"), ("y",)), constants={1: np.array([3, -1])})
    (found,) = OPERATORS["Reshape"].forward(np, context, [np.zeros((2, 6)), OnDevice()])
    assert found.shape == (3, 4)


def test_the_nearest_element_is_the_same_a_little_beside() -> None:
    """GridSample's image gets the gradients of what is taken from it, and the places get zeros."""
    image, places = np.arange(3.0).reshape(1, 1, 3), np.array([-0.7, -0.6, 0.1]).reshape(1, 3, 1)
    found = RUNS["numpy"](Row("GridSample", (image, places), {"mode": "nearest"}).context, [image, places])
    of_image, of_places = found.gradients
    assert of_image is not None and of_places is not None and not of_places.any()
    assert (of_image == 0).ravel().tolist() == [False, False, True]
