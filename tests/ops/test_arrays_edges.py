"""The array operators where ONNX's own cases do not look: ends of ranges, ties, empty sets, wrong input"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import OPERATORS

Array = np.ndarray[Any, Any]


def context(kind: str, inputs: int, attributes: Mapping[str, Any], outputs: int = 1) -> NodeContext:
    names = tuple(f"x{index}" for index in range(inputs))
    return NodeContext(Node(kind, names, tuple(f"y{index}" for index in range(outputs)), attributes, "here"))


def run(kind: str, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one node under NumPy."""
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    found = OPERATORS[kind].forward(np, context(kind, len(inputs), attributes, outputs), arrays)
    return found[0] if outputs == 1 else found


def backward(kind: str, dy: Any, *inputs: Any, **attributes: Any) -> Sequence[Any]:
    here, arrays = context(kind, len(inputs), attributes), [np.asarray(x) for x in inputs]
    outputs = OPERATORS[kind].forward(np, here, arrays)
    return OPERATORS[kind].backward(np, here, [np.asarray(dy)], arrays, outputs)


def all_of(dtype: str) -> Array:
    info = np.iinfo(dtype)
    return np.arange(info.min, info.max + 1).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_integers_are_divided_towards_zero(dtype: str) -> None:
    """All pairs, against exact fractions; their remainders complete them."""
    x, y = all_of(dtype)[:, None], all_of(dtype)[None, :]
    y = y[y != 0][None, :]
    quotient = run("Div", x, y)
    assert quotient.dtype == dtype
    for i, j in [(i, j) for i in range(0, 256, 5) for j in range(255)]:
        exact = math.trunc(Fraction(int(x[i, 0]), int(y[0, j])))
        assert quotient[i, j] == np.array(exact).astype(dtype)  # -128 / -1 wraps
    whole = x.astype(int) - run("Div", x, y).astype(int) * y.astype(int)
    wraps = (x == -128) & (y == -1)
    np.testing.assert_array_equal(run("Mod", x, y, fmod=1)[~wraps], whole[~wraps])
    np.testing.assert_array_equal(run("Mod", x, y), x.astype(int) % y.astype(int))  # Python's, signed as y


def test_powers_of_integers_are_exact() -> None:
    """Against Python's own; negative exponents give the fraction, cut off."""
    for base in range(-6, 7):
        for exponent in range(-4, 23):
            if base == 0 and exponent < 0:
                continue
            exact = math.trunc(Fraction(base) ** exponent)
            for dtype in ("int32", "int64"):
                found = run("Pow", np.array(base, dtype), np.array(exponent, "int8"))
                assert found.dtype == dtype
                assert found == np.array(exact).astype(dtype)
    assert run("Pow", np.array([9], "int32"), np.array([0.5])).tolist() == [3]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_bits_shifted_out_are_gone(dtype: str) -> None:
    """By any number of places, against Python's integers; a negative number counts as too many."""
    bits, signed = 8 * np.dtype(dtype).itemsize, dtype[0] == "i"
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for x in {low, low + 1, low // 2, 0, 1, 3, high // 2, high - 1, high} | ({-1, -2} if signed else set()):
        for places in {0, 1, 2, bits - 1, bits, bits + 1, high} | ({-1, low} if signed else set()):
            outside = not 0 <= places < bits
            left = 0 if outside else (x << places) & (2**bits - 1)
            left -= 2**bits if left > high else 0
            right = -(x < 0) if outside else x >> places
            for direction, expected in (("LEFT", left), ("RIGHT", right)):
                found = run("BitShift", np.array(x, dtype), np.array(places, dtype), direction=direction)
                assert found.dtype == dtype and int(found) == expected


def test_nothing_overflows_on_the_way() -> None:
    """Far from zero the activations and softmaxes have their limits, and warn of nothing."""
    far = np.array([-1000, 1000], np.float32)
    assert run("Sigmoid", far).tolist() == [0, 1]
    assert run("Softplus", far).tolist() == [0, 1000]
    assert run("Mish", far).tolist() == [0, 1000]
    assert run("Swish", far).tolist() == [0, 1000]
    assert run("Elu", far).tolist() == [-1, 1000]
    assert run("Celu", far, alpha=2.0).tolist() == [-2, 1000]
    assert run("Softmax", far).tolist() == [0, 1]
    assert run("LogSoftmax", far).tolist() == [-2000, 0]
    assert run("ReduceLogSumExp", far).tolist() == [1000]
    assert run("Log", np.zeros(1)).tolist() == [-math.inf]
    for kind in ("Sigmoid", "Softplus", "Mish", "Swish", "Elu", "Selu", "Celu", "Gelu", "Softsign", "Tanh"):
        (slope,) = backward(kind, np.ones(2, np.float32), far)
        assert np.isfinite(slope).all()


def test_small_values_keep_their_digits() -> None:
    """Tails that the textbook formula loses: exp(x) for Sigmoid, −φ(x) for Gelu, expm1 for Elu."""
    x = np.array([-30.0])
    np.testing.assert_allclose(run("Sigmoid", x), np.exp(x), rtol=1e-12)
    np.testing.assert_allclose(run("Softplus", x), np.exp(x), rtol=1e-12)
    density = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(run("Gelu", x), -density * (1 - x**-2 + 3 * x**-4), rtol=1e-7)
    np.testing.assert_allclose(run("Elu", np.array([-1e-12])), [-1e-12 + 5e-25], rtol=1e-14)


@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_operands_that_tie_share_the_gradient(kind: str) -> None:
    """In equal parts: the subgradient that the central difference of two has."""
    parts = backward(kind, [6.0], [2.0], [2.0], [2.0])
    assert [part.tolist() for part in parts] == [[2.0], [2.0], [2.0]]
    (whole,) = backward(f"Reduce{kind}", [[6.0]], [[1.0, 1.0]])
    assert whole.tolist() == [[3.0, 3.0]]
    data, _, updates = backward(
        "ScatterElements", [6.0], [2.0], np.array([0, 0]), [2.0, 2.0], reduction=kind.lower()
    )
    assert data.tolist() == [2.0] and updates.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("kind", "dtype", "expected"),
    [
        ("ReduceSum", "float32", 0.0), ("ReduceProd", "float32", 1.0), ("ReduceMax", "float32", -math.inf),
        ("ReduceMin", "float32", math.inf), ("ReduceMax", "int8", -128), ("ReduceMin", "uint8", 255),
        ("ReduceMax", "bool", False), ("ReduceMin", "bool", True), ("ReduceLogSumExp", "float64", -math.inf),
        ("ReduceLogSum", "float64", -math.inf), ("ReduceL2", "int32", 0), ("ReduceMean", "float32", math.nan),
    ],
)  # fmt: skip
def test_nothing_reduces_to_the_neutral_number(kind: str, dtype: str, expected: Any) -> None:
    """Of the type, one for every place that is left."""
    found = run(kind, np.zeros((2, 0), dtype), np.array([1]), keepdims=0)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, [expected, expected])


def test_infinities_are_summed_as_they_are() -> None:
    """ln Σ exp of nothing but −∞ is −∞, and of anything with ∞ it is ∞."""
    found = run("ReduceLogSumExp", [[-math.inf, -math.inf], [math.inf, 0.0]], np.array([1]), keepdims=0)
    assert found.tolist() == [-math.inf, math.inf]


def test_integers_keep_their_type_when_reduced() -> None:
    """Means and norms are cut off; integers beyond 2⁵³ stay exact."""
    x = np.array([2**60 + 1, 2**60 + 3, 2**60 + 3], np.int64)
    assert run("ReduceMean", x).tolist() == [2**60 + 2]
    assert run("ReduceMean", np.array([-3, 0], np.int32)).tolist() == [-1]
    assert run("ReduceSum", x).tolist() == [3 * 2**60 + 7]
    assert run("ReduceL2", np.array([100000, 100000], np.int32)).tolist() == [141421]
    assert run("CumSum", np.array([100, 100], np.int32), np.array(0)).dtype == np.int32


def sliced(x: Sequence[int], start: int, end: int, step: int) -> list[int]:
    """As ONNX writes it: negative numbers count from the end, then all are moved into range."""
    size = len(x)
    start, end = (start + size if start < 0 else start), (end + size if end < 0 else end)
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
    return [x[place] for place in range(start, end, step)]


@settings(deadline=None)
@given(
    st.integers(0, 5),
    st.integers(-9, 9) | st.just(-(2**63)),
    st.integers(-9, 9) | st.sampled_from([2**63 - 1, -(2**63)]),
    st.sampled_from([-3, -2, -1, 1, 2, 3]),
)
def test_slices_are_onnx_slices(size: int, start: int, end: int, step: int) -> None:
    """Wherever they start and end, forwards and backwards."""
    found = run("Slice", np.arange(size), *(np.array([each]) for each in (start, end, 0, step)))
    assert found.tolist() == sliced(range(size), start, end, step)


def test_of_equal_elements_the_first_comes_first() -> None:
    """Largest and smallest; nan counts as the largest."""
    x = np.array([1.0, 3.0, 1.0, 3.0, math.nan])
    values, places = run("TopK", x, np.array([4]), outputs=2)
    assert places.tolist() == [4, 1, 3, 0]
    np.testing.assert_array_equal(values, x[places])
    _, places = run("TopK", x, np.array([4]), outputs=2, largest=0)
    assert places.tolist() == [0, 2, 1, 3]
    assert run("ArgMax", x[:4], axis=0, keepdims=0) == 1
    assert run("ArgMax", x[:4], axis=0, keepdims=0, select_last_index=1) == 3
    assert run("ArgMin", x[:4], axis=0, keepdims=0, select_last_index=1) == 2


@settings(deadline=None)
@given(
    st.sampled_from(["edge", "reflect", "wrap", "constant"]),
    st.tuples(*[st.integers(0, 9)] * 4),
    st.tuples(st.integers(1, 4), st.integers(1, 4)),
)
def test_pads_are_those_of_numpy(mode: str, widths: tuple[int, ...], shape: tuple[int, int]) -> None:
    """Also several times as wide as the tensor."""
    x = np.arange(math.prod(shape)).reshape(shape)
    pairs = ((widths[0], widths[2]), (widths[1], widths[3]))
    found = run("Pad", x, np.array(widths), mode=mode)
    np.testing.assert_array_equal(found, np.pad(x, pairs, mode=mode))  # type: ignore[call-overload]


def test_an_index_out_of_range_is_on_nowhere() -> None:
    """OneHot counts from the end down to −depth."""
    found = run("OneHot", np.array([0, -3, -4, 3]), np.array(3), np.array([7, 9]))
    assert found.tolist() == [[9, 7, 7], [9, 7, 7], [7, 7, 7], [7, 7, 7]]


def test_a_number_has_no_coordinates() -> None:
    """NonZero of a scalar: no axes, one column or none."""
    assert run("NonZero", np.array(5.0)).shape == (0, 1)
    assert run("NonZero", np.array(0.0)).shape == (0, 0)


def test_an_index_tensor_may_be_smaller_than_the_data() -> None:
    """The elements that it picks stand where the index stands, and nothing is broadcast."""
    x = np.arange(12).reshape(3, 4)
    assert run("GatherElements", x, np.array([[3, -1]]), axis=1).tolist() == [[3, 3]]
    found = run("ScatterElements", x, np.array([[2], [0]]), np.array([[-1], [-2]]), axis=1)
    assert found.tolist() == [[0, 1, -1, 3], [-2, 5, 6, 7], [8, 9, 10, 11]]


def test_nan_stays_nan() -> None:
    """Nothing that selects or bounds hides it."""
    x = np.array([math.nan, 1.0])
    for found in (
        run("Relu", x), run("Clip", x, -1.0, 1.0), run("Max", x, 0.0), run("Min", x, 0.0),
        run("LeakyRelu", x), run("HardSigmoid", x), run("Abs", x), run("Mod", x, 2.0),
    ):  # fmt: skip
        assert np.isnan(found[0]) and not np.isnan(found[1])
    for kind in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        assert np.isnan(run(kind, x)).all()


WRONG: Mapping[str, tuple[str, tuple[Any, ...], Mapping[str, Any], str]] = {
    "sizes that do not fit": ("Reshape", (np.zeros((2, 3)), np.array([4])), {}, "makes (4,) of a tensor"),
    "a rest that is none": ("Reshape", (np.zeros((2, 3)), np.array([4, -1])), {}, "they have 4 and 6"),
    "a 0 for no axis": ("Reshape", (np.zeros(2), np.array([2, 0])), {}, "there is no such axis"),
    "an axis that is not 1": ("Squeeze", (np.zeros((2, 3)), np.array([0])), {}, "makes (3,) of a tensor"),
    "an axis twice": ("Unsqueeze", (np.zeros(2), np.array([0, 0])), {}, "names an axis twice"),
    "an axis too many": ("ReduceSum", (np.zeros(2), np.array([1])), {}, "must be from -1 up to 0"),
    "a permutation": ("Transpose", (np.zeros((2, 3)),), {"perm": (0, 0)}, "must name each of them once"),
    "parts": ("Split", (np.zeros(4), np.array([1, 2])), {}, "splits 4 elements into parts of (1, 2)"),
    "shapes": ("Expand", (np.zeros(4), np.array([3])), {}, "expands a tensor of shape (4,) to (3,)"),
    "repeats": ("Tile", (np.zeros(4), np.array([3, 3])), {}, "must have one each"),
    "pads": ("Pad", (np.zeros(4), np.array([3, 3, 1])), {}, "has 3 pads for 1 axes"),
    "a mode": ("Pad", (np.zeros(4), np.array([1, 1])), {"mode": "mirror"}, "edge, reflect and wrap"),
    "K": ("TopK", (np.zeros(4), np.array([5])), {}, "asks for 5 of 4 elements"),
    "two depths": ("OneHot", (np.array([0]), np.array([1, 2]), np.zeros(2)), {}, "must have one"),
    "a reduction": (
        "ScatterND", (np.zeros(2), np.array([[0]]), np.zeros(1)), {"reduction": "sum"}, "none, add, mul, max",
    ),
    "starts": ("Slice", (np.zeros(2), np.array([0]), np.array([1, 2])), {}, "has 1 starts, 2 ends, 1 axes"),
    "text": ("Cast", (np.zeros(2),), {"to": 8}, "element type 8"),
    "no type": ("Cast", (np.zeros(2),), {}, "lacks the attribute 'to'"),
    "a step of 0": ("Range", (0, 3, 0), {}, "counts in steps of 0"),
    "no value": ("Constant", (), {"value_string": "a"}, "has no value that d5ray knows"),
    "no axes": ("Unsqueeze", (np.zeros(2),), {}, "lacks its input 1, the axes"),
    "no generator": ("RandomNormal", (), {"shape": (2,)}, "there is no generator"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_refused(what: str) -> None:
    """The error names the node, what was found and what is expected."""
    kind, inputs, attributes, words = WRONG[what]
    with pytest.raises(ConfigurationError) as caught:
        run(kind, *inputs, **attributes)
    assert f"here ({kind})" in str(caught.value) and words in str(caught.value)
