"""Operators under PyTorch: what is PyTorch's own function, and what ONNX says that no case of it shows"""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.geometry.interpolation import axis_plans
from d5ray.ops.torch import FACTORIES
from d5ray.ops.torch.resizing import _by_interpolate, _by_matrices
from d5ray.ops.torch.types import ONNX_TYPES, array_of, tensor_of
from tests.ops.torch_case import Array, call, known, node, one_thread, result  # noqa: F401 - one thread

FLOATS = (np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.ones(2, np.float32))
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


@pytest.mark.parametrize(
    ("type", "count", "own", "function"),
    [
        ("Relu", 1, {}, torch.relu), ("Tanh", 1, {}, torch.tanh), ("Sigmoid", 1, {}, torch.sigmoid),
        ("Gelu", 1, {}, F.gelu), ("HardSwish", 1, {}, F.hardswish), ("Swish", 1, {}, F.silu),
        ("Selu", 1, {}, torch.selu), ("Add", 2, {}, torch.add), ("Sub", 2, {}, torch.sub),
        ("Mul", 2, {}, torch.mul), ("Div", 2, {}, torch.div), ("Pow", 2, {}, torch.pow),
        ("Max", 2, {}, torch.maximum), ("Sum", 2, {}, torch.add), ("Exp", 1, {}, torch.exp),
        ("MatMul", 2, {}, torch.matmul), ("Gemm", 3, {"transB": 1}, F.linear), ("Equal", 2, {}, torch.eq),
        ("Abs", 1, {}, torch.abs), ("MeanSquaredError", 2, {}, F.mse_loss),
    ],
)  # fmt: skip
def test_what_is_built_is_pytorchs_own_function(
    type: str, count: int, own: dict[str, Any], function: object
) -> None:
    """Nothing is called around it where the types of the inputs are known."""
    inputs = FLOATS[:count]
    assert FACTORIES[type](known(node(type, inputs, **own), inputs)) is function


INTEGERS = {  # against NumPy, which computes modulo the type's size
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
    "BitwiseAnd": np.bitwise_and, "BitwiseOr": np.bitwise_or, "BitwiseXor": np.bitwise_xor,
    "Equal": np.equal, "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "Less": np.less,
    "LessOrEqual": np.less_equal, "Mod": np.mod, "Div": np.floor_divide,
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("type", INTEGERS)
@settings(max_examples=15, deadline=None)
@given(st.data())
def test_unsigned_integers_are_computed_as_they_are(type: str, data: st.DataObject) -> None:
    """All of them, up to 2⁶⁴ − 1, for which PyTorch has no functions."""
    kind = data.draw(st.sampled_from(UNSIGNED))
    a, b = (data.draw(arrays.arrays(kind, 3)) for _ in range(2))
    b = np.maximum(b, 1).astype(kind) if type in ("Mod", "Div") else b
    found = result(type, a, b)
    expected = INTEGERS[type](a, b)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", UNSIGNED)
def test_great_unsigned_integers_keep_their_order(kind: str) -> None:
    """In what only compares and chooses."""
    x = np.array([[1, np.iinfo(kind).max, 0], [np.iinfo(kind).max // 2 + 1, 7, 3]], kind)
    np.testing.assert_array_equal(result("ArgMax", x, axis=1), [[1], [0]])
    np.testing.assert_array_equal(result("ReduceMax", x, keepdims=0), x.max())
    np.testing.assert_array_equal(result("ReduceMin", x, np.array([1]), keepdims=0), [0, 3])
    np.testing.assert_array_equal(result("Clip", x, np.array(2, kind), x[1, 0]), np.clip(x, 2, x[1, 0]))
    values, places = result("TopK", x, np.array([2]), outputs=2)
    np.testing.assert_array_equal(values, -np.sort(-x.astype(object))[:, :2])
    np.testing.assert_array_equal(places, [[1, 0], [0, 1]])


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64", *UNSIGNED])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_more_bits_than_there_are_end_in_the_sign(kind: str, direction: str) -> None:
    """As many single shifts do, bit by bit."""
    limits = np.iinfo(kind)
    x = np.array([limits.min, limits.max, 1, limits.max // 3], kind)
    for bits in (0, 1, limits.bits - 1, limits.bits, 100):
        expected = [int(each) << bits if direction == "LEFT" else int(each) >> bits for each in x]
        wrapped = [(each - limits.min) % 2**limits.bits + limits.min for each in expected]
        found = result("BitShift", x, np.full(4, bits, kind), direction=direction)
        np.testing.assert_array_equal(found, np.array(wrapped, kind))


def test_powers_keep_the_type_of_the_base() -> None:
    """Whatever the exponent's is, which is read once where it is one constant number."""
    for base, exponent in ((np.float32, np.int64), (np.int32, np.float32), (np.float64, np.float32)):
        found = result("Pow", np.array([2, 3], base), np.array([3, 2], exponent))
        assert found.dtype == base
        np.testing.assert_array_equal(found, [8, 9])
    x = np.array([2.0, 3.0], np.float32)
    one = node("Pow", (x, x))
    built = FACTORIES["Pow"](
        NodeContext(one, {1: np.array(2.0, np.float32)}, (TensorDescriptor("float32", (2,)),) * 2)
    )
    np.testing.assert_array_equal(built(tensor_of(x), None), [4, 9])


@pytest.mark.parametrize(("number", "greatest"), [(17, 448.0), (18, 240.0), (19, 57344.0), (20, 57344.0)])
@pytest.mark.parametrize("type", ["Cast", "CastLike"])
def test_8_bit_types_saturate_where_they_are_told_to(type: str, number: int, greatest: float) -> None:
    """What lies beyond becomes the greatest number, or else NaN or ∞, as NumPy's types have it."""
    numbers = [0.0, 1.0625, -3.0, greatest, 1.03 * greatest, 1e6, -torch.inf, torch.nan]
    x = torch.tensor(numbers)
    like = torch.zeros(1).to(ONNX_TYPES[number])
    for saturate in (1, 0):
        own: dict[str, Any] = {"saturate": saturate, "to": number if type == "Cast" else None}
        one = node(type, (x,) if type == "Cast" else (x, x), **own)
        found = FACTORIES[type](NodeContext(one))(*((x,) if type == "Cast" else (x, like)))
        assert found.dtype == ONNX_TYPES[number]
        given = np.clip(numbers, -greatest, greatest) if saturate else np.array(numbers)
        with np.errstate(over="ignore", invalid="ignore"):
            expected = given.astype(np.float32).astype(getattr(ml_dtypes, str(found.dtype)[6:]))
        np.testing.assert_array_equal(found.float().numpy(), expected.astype(np.float32))


def test_equal_elements_come_in_their_order() -> None:
    """The first of the greatest, and the first k of many that are equal."""
    x = np.zeros((2, 40), np.float32)
    _, places = result("TopK", x, np.array([5]), outputs=2)
    np.testing.assert_array_equal(places, [[0, 1, 2, 3, 4]] * 2)
    np.testing.assert_array_equal(result("ArgMax", x, axis=1), [[0], [0]])
    np.testing.assert_array_equal(result("ArgMax", x, axis=1, select_last_index=1), [[39], [39]])
    np.testing.assert_array_equal(result("Hardmax", x)[:, 0], [1, 1])


@pytest.mark.parametrize("type", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_indices_out_of_range_are_refused(type: str) -> None:
    """By PyTorch; they are not taken from the other end."""
    x, wrong = np.ones((3, 3), np.float32), np.array([[5]])
    updates = np.ones((1, 3) if type == "ScatterND" else (1, 1), np.float32)
    inputs = (x, wrong, updates) if type.startswith("Scatter") else (x, wrong)
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        call(known(node(type, inputs), inputs), inputs)


@pytest.mark.parametrize("outputs", [1, 3])
def test_batch_normalization_trains_as_pytorchs_layer(outputs: int) -> None:
    """The same outputs and gradients; the running variance is that of the population."""
    random = np.random.default_rng(0)
    x, scale, bias = random.normal(3, 2, (8, 3, 5)), random.normal(size=3), random.normal(size=3)
    mean, variance = random.normal(size=3), random.uniform(1, 2, 3)
    inputs = (x, scale, bias, mean, variance)
    built = FACTORIES["BatchNormalization"](
        known(node("BatchNormalization", inputs, outputs, training_mode=1, momentum=0.8), inputs)
    )
    layer = torch.nn.BatchNorm1d(3, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(tensor_of(scale))
        layer.bias.copy_(tensor_of(bias))
    own, theirs = (tensor_of(x.copy()).requires_grad_() for _ in range(2))
    found = built(own, *map(tensor_of, inputs[1:]))
    y = found if outputs == 1 else found[0]
    expected = layer(theirs)
    torch.testing.assert_close(y, expected)
    for outcome in (y, expected):
        (outcome**3).sum().backward()
    torch.testing.assert_close(own.grad, theirs.grad)
    if outputs == 3:
        np.testing.assert_allclose(found[1], 0.8 * mean + 0.2 * x.mean((0, 2)), rtol=1e-12)
        np.testing.assert_allclose(found[2], 0.8 * variance + 0.2 * x.var((0, 2)), rtol=1e-9)
        assert not found[1].requires_grad and not found[2].requires_grad


def test_batch_normalization_of_single_values_has_no_variance() -> None:
    """One sample of one element a channel: the bias comes out, and the running statistics stay finite."""
    x, ones, mean, variance = np.array([[3.0, -1.0]]), np.ones(2), np.array([1.0, 1.0]), np.array([4.0, 9.0])
    given: dict[str, Any] = {"training_mode": 1, "momentum": 0.75, "outputs": 3}
    y, next_mean, next_variance = result("BatchNormalization", x, ones, ones, mean, variance, **given)
    np.testing.assert_allclose(y, [[1.0, 1.0]])
    np.testing.assert_allclose(next_mean, [1.5, 0.5])
    np.testing.assert_allclose(next_variance, [3.0, 6.75])


def test_batch_normalization_evaluates_with_its_running_statistics() -> None:
    """Though its training_mode is on; they stay as they are."""
    x = np.random.default_rng(0).normal(size=(4, 2, 3))
    ones, mean, variance = np.ones(2), np.array([1.0, 2.0]), np.array([4.0, 9.0])
    inputs = (x, ones, ones, mean, variance)
    context = known(
        node("BatchNormalization", inputs, 3, training_mode=1, epsilon=0.0), inputs, evaluating=True
    )
    y, next_mean, next_variance = call(context, inputs)
    np.testing.assert_allclose(y, (x - mean[:, None]) / variance[:, None] ** 0.5 + 1, rtol=1e-12)
    np.testing.assert_array_equal(next_mean, mean)
    np.testing.assert_array_equal(next_variance, variance)


def test_dropout_drops_its_share_and_makes_up_for_it() -> None:
    """Drawn by PyTorch's generator: the same after the same seed, other elements otherwise."""
    x = np.ones(100_000, np.float32)
    inputs = (x, np.array(0.3, np.float32), np.array(True))
    context = known(node("Dropout", inputs, 2), inputs)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        y, mask = call(context, inputs)
        draws.append(y)
        assert abs(mask.mean() - 0.7) < 0.01  # 7 standard deviations
        np.testing.assert_allclose(y, mask / np.float32(0.7), rtol=1e-6)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize("outputs", [1, 2])
def test_dropout_lets_everything_pass_in_evaluation(outputs: int) -> None:
    """Whatever its training_mode says."""
    inputs = (np.ones((3, 4), np.float32), np.array(0.5, np.float32), np.array(True))
    y, *mask = call(known(node("Dropout", inputs, outputs), inputs, evaluating=True), inputs)
    np.testing.assert_array_equal(y, inputs[0])
    assert all(each.all() for each in mask) and len(mask) == outputs - 1


@pytest.mark.parametrize("type", ["RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"])
def test_random_numbers_have_their_distribution_and_come_from_pytorch(type: str) -> None:
    """Mean and spread, the type that is asked for, and PyTorch's seed."""
    like = type.endswith("Like")
    inputs = (np.zeros((100, 1000), np.float32),) if like else ()
    own: dict[str, Any] = {"dtype": 11} | ({} if like else {"shape": (100, 1000)})
    own |= {"mean": 3.0, "scale": 2.0} if "Normal" in type else {"low": 2.0, "high": 5.0}
    context = known(node(type, inputs, **own), inputs)
    draws: list[Array] = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.extend(call(context, inputs))
    assert draws[0].shape == (100, 1000) and draws[0].dtype == np.float64
    mean, spread = (3.0, 2.0) if "Normal" in type else (3.5, 3 / 12**0.5)
    assert draws[0].mean() == pytest.approx(mean, abs=0.05) and draws[0].std() == pytest.approx(
        spread, abs=0.05
    )
    if "Uniform" in type:
        assert draws[0].min() >= 2 and draws[0].max() <= 5
    np.testing.assert_array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[0], draws[2])


@pytest.mark.parametrize(
    ("type", "own"),
    [("Constant", {"value_int": 3}), ("RandomNormal", {"shape": (2,)}), ("RandomUniform", {"shape": (2,)})],
)
def test_what_is_made_of_nothing_is_made_on_the_default_device(type: str, own: dict[str, Any]) -> None:
    """Of which "meta" is one that every machine has."""
    built = FACTORIES[type](NodeContext(node(type, (), **own)))
    assert built().device.type == "cpu"
    with torch.device("meta"):
        assert built().device.type == "meta"


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_pytorchs_interpolation_is_used_where_it_is_the_same(
    mode: str, rounding: str, coordinates: str
) -> None:
    """It and the matrices, two ways of computing, agree for many sizes of images."""
    one = node("Resize", (), mode=mode, coordinate_transformation_mode=coordinates, nearest_mode=rounding)
    context, used = NodeContext(one), 0
    for size, target in ((3, 6), (4, 12), (5, 3), (7, 4), (2, 8), (4, 1), (1, 4), (6, 9), (5, 40)):
        x = torch.randn(2, 3, size, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
        plans = axis_plans(context, x.shape, None, None, [2, 3, target, 4])
        built = _by_interpolate(context, plans, tuple(x.shape))
        if built is not None:
            used += 1
            torch.testing.assert_close(built(x), _by_matrices(context, plans)(x), rtol=1e-9, atol=1e-9)
    assert used or mode == "nearest" or coordinates == "asymmetric"


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap", "constant"])
@settings(max_examples=40, deadline=None)
@given(size=st.integers(1, 5), begin=st.integers(0, 9), end=st.integers(0, 9))
def test_padding_is_that_of_numpy(mode: Any, size: int, begin: int, end: int) -> None:
    """Also where an image is mirrored, or goes round, more than once."""
    x = np.arange(float(size))
    expected = np.pad(x, (begin, end), mode)
    np.testing.assert_array_equal(result("Pad", x, np.array([begin, end]), mode=mode), expected)
    cut = result("Pad", x, np.array([-1, end]), mode=mode) if size > 1 else None
    if cut is not None:
        np.testing.assert_array_equal(cut, np.pad(x[1:], (0, end), mode))


def test_a_mean_squared_error_is_over_all_elements() -> None:
    """Σ (y − t)² / n"""
    y, target = np.random.default_rng(0).normal(size=(2, 3, 4))
    assert result("MeanSquaredError", y, target) == pytest.approx(((y - target) ** 2).mean(), rel=1e-14)


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "bool"])
def test_arrays_and_tensors_become_each_other(kind: str) -> None:
    """Of every type that both have, bit by bit; arrays without axes and of other orders too."""
    x = np.array([[0, 1, 3], [5, 0, 2]]).astype(TensorDescriptor(kind).dtype)
    for array in (x, x.T, x[0, 1], x[:, ::2], x[:0]):
        found = array_of(tensor_of(np.asarray(array)))
        assert found.dtype == array.dtype and found.shape == array.shape
        np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("type", "inputs", "own", "words"),
    [
        (
            "Cast",
            FLOATS[:1],
            {"to": 8},
            "the node Cast asks for ONNX's element type 8, which PyTorch has not",
        ),
        ("Cast", FLOATS[:1], {}, "the node Cast lacks the attribute 'to'"),
        (
            "Pad",
            (FLOATS[0], np.array([1, 1, 1, 1])),
            {"mode": "mirror"},
            "pads by 'mirror': it must be one of",
        ),
        ("Resize", (FLOATS[0], None, None, np.array([4, 6])), {"mode": "best"}, "mode='best': give one of"),
        ("Constant", (), {"value_string": "a"}, "holds value_string: PyTorch takes dense numbers"),
        ("Constant", (), {}, "holds nothing"),
    ],
)
def test_what_cannot_be_built_is_refused(
    type: str, inputs: tuple[Array | None, ...], own: dict[str, Any], words: str
) -> None:
    """When it is built, with the node and what was found."""
    with pytest.raises(ConfigurationError, match=words):
        FACTORIES[type](known(node(type, inputs, **own), inputs))


def test_arrays_of_other_things_are_refused() -> None:
    """With their type."""
    with pytest.raises(ConfigurationError, match="PyTorch has no elements of type object"):
        tensor_of(np.array(["a", None], object))
