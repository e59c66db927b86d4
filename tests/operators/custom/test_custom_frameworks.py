"""Operators of one's own inside a computation that PyTorch or TensorFlow differentiates, in graphs too"""

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks import numpy
from d5ray.ops.torch.types import array_of, tensor_of
from tests.operators.custom.listings import QUICK, BothOp, IPowOp, KeepingOp, both, ipowop

Array = np.ndarray[Any, Any]
Found = tuple[list[Array], list[Array]]
REAL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}
KINDS: dict[str, Callable[[str], d5.CustomOp]] = {"python": lambda dtype: IPowOp(3), "cpp": ipowop}
PAIRS: dict[str, Callable[[str], d5.CustomOp]] = {"python": BothOp, "cpp": both}
each_kind = pytest.mark.parametrize("kind", KINDS)
each_world = pytest.mark.parametrize(
    "world", [pytest.param("torch", marks=pytest.mark.every_case), "tensorflow", "tensorflow graph"]
)


def differentiated(world: str, op: d5.CustomOp, function: Any, *arrays: Array) -> Found:
    """function(operation, *tensors) gives tensors: all of them, and the gradients of the sum of the last."""
    operation = import_module(f"d5ray.frameworks.{world.partition(' ')[0]}").custom_op(op)
    floating = [each.dtype.kind != "i" for each in arrays]
    if world == "torch":
        tensors = [tensor_of(x).requires_grad_(real) for x, real in zip(arrays, floating, strict=True)]
        outputs = function(operation, *tensors)
        sources = [x for x, real in zip(tensors, floating, strict=True) if real]
        found = torch.autograd.grad(outputs[-1].sum(), sources)
        return [array_of(y.detach()) for y in outputs], [array_of(x) for x in found]
    tf = pytest.importorskip("tensorflow")

    def whole(*tensors: Any) -> Any:
        sources = [x for x, real in zip(tensors, floating, strict=True) if real]
        with tf.GradientTape() as tape:
            tape.watch(sources)
            outputs = function(operation, *tensors)
            total = tf.reduce_sum(outputs[-1])
        return outputs, tape.gradient(total, sources)

    made = (tf.function(whole) if "graph" in world else whole)(*map(tf.constant, arrays))
    outputs, gradients = ([np.asarray(x) for x in each] for each in made)
    return outputs, gradients


@each_kind
@pytest.mark.parametrize("dtype", [*REAL, "int64"])
def test_arrays_of_numpy_have_outputs_and_gradients(kind: str, dtype: str) -> None:
    """As the slides have them, in the order of the inputs and outputs; whole numbers have no gradient."""
    a = (np.arange(6).reshape(2, 3) % 4 + 1).astype(d5.TensorDescriptor(dtype).dtype)
    b = a + a.dtype.type(2)
    power, pair = (numpy.custom_op(each[kind](dtype)) for each in (KINDS, PAIRS))
    for operation, given, outputs, gradients, near in (
        (power, [a], [a**3], [3 * a**3], REAL.get(dtype, 0.0)),
        (pair, [a, b], [a * b, a + b], [a * b + b, a * a + b], 0.0),
    ):
        found = operation.forward(given)
        slopes = operation.backward(given, given, found)
        assert [each.dtype for each in found] == [a.dtype] * len(outputs)
        expected = [*outputs, *(gradients if dtype != "int64" else [])]
        for each, wanted in zip((*found, *filter(lambda x: x is not None, slopes)), expected, strict=True):
            np.testing.assert_allclose(each.astype(float), wanted.astype(float), rtol=near)


@each_world
@each_kind
@pytest.mark.parametrize("dtype", REAL)
def test_an_operator_is_the_power_that_it_says(kind: str, dtype: str, world: str) -> None:
    """Values and gradients in the middle of a computation, for every type of floating-point numbers."""
    x = np.linspace(0.5, 2, 12).reshape(3, 4).astype(d5.TensorDescriptor(dtype).dtype)

    def function(power: Any, x: Any) -> Any:
        y = power(x * 2)
        return y, y * 3

    (found, _), (slope,) = differentiated(world, KINDS[kind](dtype), function, x)
    assert found.dtype == slope.dtype == x.dtype
    exact = x.astype("float64")
    np.testing.assert_allclose(found.astype("float64"), 8 * exact**3, rtol=4 * REAL[dtype])
    np.testing.assert_allclose(slope.astype("float64"), 72 * exact**2, rtol=8 * REAL[dtype])


@each_world
@each_kind
def test_several_inputs_and_outputs_and_unused_ones(kind: str, world: str) -> None:
    """Of (a b, a + b) both are used, and then one alone."""
    a, b = np.array([[2.0, 3.0]]), np.array([[5.0, 7.0]])

    def together(pair: Any, a: Any, b: Any) -> Any:
        product, total = pair(a, b)
        return product, total, product * total

    (product, total, _), gradients = differentiated(world, PAIRS[kind]("float64"), together, a, b)
    np.testing.assert_array_equal([product, total], [a * b, a + b])
    np.testing.assert_array_equal(gradients, [2 * a * b + b**2, 2 * a * b + a**2])
    _, gradients = differentiated(world, PAIRS[kind]("float64"), lambda pair, a, b: [pair(a, b)[0]], a, b)
    np.testing.assert_array_equal(gradients, [b, a])


class Taken(d5.CustomPythonOp):
    def forward(self, x: Any, index: Any) -> Any:
        return x[index]

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        gradient = np.zeros_like(fwd_inputs[0])
        np.add.at(gradient, fwd_inputs[1], grads[0])
        return gradient, None


@each_world
def test_whole_numbers_have_no_gradient(world: str) -> None:
    """An index beside a tensor of numbers."""
    x, index = np.array([1.0, 2.0, 3.0]), np.array([2, 2, 0])
    outputs, gradients = differentiated(world, Taken(), lambda taken, *given: [taken(*given)], x, index)
    np.testing.assert_array_equal(outputs, [[3, 3, 1]])
    np.testing.assert_array_equal(gradients, [[1, 0, 2]])


class Doubled(d5.CustomPythonOp):
    def forward(self, x: Any) -> Any:
        return 2 * x


def doubled_in_cpp() -> d5.CustomOp:
    code = "struct Doubled : deep500::CustomOperator { void forward(const double *x, double *y) {%s} };"
    three = d5.TensorDescriptor("float64", (3,))
    body = "for (int i = 0; i < 3; ++i) y[i] = 2 * x[i];"
    return d5.compile_custom_cppop("Doubled", code % body, [three], [three], flags=QUICK)


@pytest.mark.parametrize("make", [Doubled, pytest.param(doubled_in_cpp, marks=pytest.mark.full)])
@pytest.mark.parametrize("world", ["numpy", "torch", "tensorflow"])
def test_a_missing_backward_is_told_when_a_gradient_is_needed(world: str, make: Any) -> None:
    """Not by the forward pass, not for what needs none."""
    seen: list[Any] = []

    def function(doubled: Any, x: Any) -> Any:
        seen.append(doubled(x))
        return seen

    with pytest.raises(ConfigurationError, match="the operator Doubled has no backward"):
        if world == "numpy":
            doubled = numpy.custom_op(make())
            doubled.backward([np.ones(3)], [np.ones(3)], function(doubled, np.ones(3)))
        differentiated(world, make(), function, np.ones(3))
    assert [bool(each == 2) for each in seen[0]] == [True] * 3


@each_world
def test_each_call_goes_backwards_with_what_its_own_forward_pass_kept(world: str) -> None:
    """Of one operator in two places, as of a framework's function, each call of which has a context."""
    x, y = np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])
    op = KeepingOp()

    def function(square: Any, x: Any, y: Any) -> Any:
        return [square(x) * square(square(y))]

    _, (of_x, of_y) = differentiated(world, op, function, x, y)
    np.testing.assert_allclose(of_x, 2 * x * y**4)
    np.testing.assert_allclose(of_y, 4 * x**2 * y**3)
    if world != "tensorflow graph":  # which chooses the order itself
        np.testing.assert_array_equal(op.kept, y**2)  # as the last forward pass left it
