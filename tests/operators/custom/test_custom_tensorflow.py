"""Operators of one's own in TensorFlow: gradient tapes, graphs, what goes wrong"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import d5ray as d5
import d5ray.frameworks.tensorflow as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import BothOp, IPowOp, KeepingOp, both, ipowop

tf = pytest.importorskip("tensorflow")
REAL = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14}
KINDS: dict[str, Callable[[str], d5.CustomOp]] = {"python": lambda dtype: IPowOp(3), "cpp": ipowop}
PAIRS: dict[str, Callable[[str], d5.CustomOp]] = {"python": BothOp, "cpp": both}
each_kind = pytest.mark.parametrize("kind", list(KINDS))
in_graphs_too = pytest.mark.parametrize("mode", ["eager", "graph"])


def called(mode: str, function: Any) -> Any:
    """At once, or as a part of a graph."""
    return tf.function(function) if mode == "graph" else function


@in_graphs_too
@each_kind
@pytest.mark.parametrize("dtype", list(REAL))
def test_an_operator_equals_tensorflows_own_power(kind: str, dtype: str, mode: str) -> None:
    """Values and gradients in the middle of a computation, for every type of floating-point numbers."""
    x = tf.cast(tf.reshape(tf.linspace(0.5, 2.0, 12), (3, 4)), dtype)
    power = d5fw.custom_op(KINDS[kind](dtype))
    results = []
    for function in (power, lambda each: tf.pow(each, tf.constant(3, dtype))):

        def whole(given: Any, function: Any = function) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(given)
                output = function(given * 2)
                loss = tf.reduce_sum(output * 3)
            return output, tape.gradient(loss, given)

        results.append([np.asarray(each) for each in called(mode, whole)(x)])
    for found, expected, factor in zip(*results, (4, 8), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(
            found.astype("float64"), expected.astype("float64"), rtol=factor * REAL[dtype]
        )


@in_graphs_too
@each_kind
def test_several_inputs_and_outputs_and_unused_ones(kind: str, mode: str) -> None:
    """Of (a b, a + b) both are used, and then one alone."""
    a, b = tf.constant([[2.0, 3.0]], tf.float64), tf.constant([[5.0, 7.0]], tf.float64)
    pair = d5fw.custom_op(PAIRS[kind]("float64"))

    def gradients(a: Any, b: Any) -> Any:
        with tf.GradientTape(persistent=True) as tape:
            tape.watch([a, b])
            product, total = pair(a, b)
            every = tf.reduce_sum(product * total)
            one = tf.reduce_sum(product)
        return *tape.gradient(every, [a, b]), *tape.gradient(one, [a, b])

    found = [each.numpy() for each in called(mode, gradients)(a, b)]
    x, y = a.numpy(), b.numpy()
    for got, expected in zip(found, [2 * x * y + y**2, 2 * x * y + x**2, y, x], strict=True):
        np.testing.assert_array_equal(got, expected)


@in_graphs_too
def test_shapes_are_known_in_graphs(mode: str) -> None:
    """As far as the descriptors say them, also for sizes that are open."""
    seen = []
    pair = d5fw.custom_op(both("float64"))

    def look(x: Any) -> Any:
        product, _ = pair(x, x)
        seen.append(product.shape.as_list())
        return product

    signature = [tf.TensorSpec((None, 3), tf.float64)]
    function = tf.function(look, input_signature=signature) if mode == "graph" else look
    np.testing.assert_array_equal(function(tf.ones((2, 3), tf.float64) * 2), np.full((2, 3), 4.0))
    assert seen == [[None, 3] if mode == "graph" else [2, 3]]


@each_kind
def test_a_variable_is_trained_through_an_operator(kind: str) -> None:
    """Gradient descent on (v^3 - 8)^2 finds 2."""
    variable = tf.Variable([1.5], dtype=tf.float64)
    power = d5fw.custom_op(KINDS[kind]("float64"))
    for _ in range(40):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum((power(variable) - 8) ** 2)
        variable.assign_sub(0.003 * tape.gradient(loss, variable))
    np.testing.assert_allclose(variable.numpy(), 2, rtol=1e-6)


def test_whole_numbers_have_no_gradient() -> None:
    """An index beside a tensor of numbers."""

    class Taken(d5.CustomPythonOp):
        def forward(self, x: Any, index: Any) -> Any:
            return x[index]

        def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
            gradient = np.zeros_like(fwd_inputs[0])
            np.add.at(gradient, fwd_inputs[1], grads[0])
            return gradient, None

    x, index = tf.constant([1.0, 2.0, 3.0]), tf.constant([2, 2, 0])
    taken = d5fw.custom_op(Taken())
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = taken(x, index)
    np.testing.assert_array_equal(output, [3, 3, 1])
    np.testing.assert_array_equal(tape.gradient(output, x), [1, 0, 2])


def test_a_missing_backward_is_told_when_a_gradient_is_needed() -> None:
    """Not by the forward pass."""

    class Doubled(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return 2 * x

    x = tf.constant([1.0])
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = d5fw.custom_op(Doubled())(x)
    with pytest.raises(ConfigurationError, match="the operator Doubled has no backward"):
        tape.gradient(output, x)


def test_second_derivatives_are_refused() -> None:
    """Rather than left out of a sum, where nobody would notice."""
    x = tf.constant([2.0])
    with tf.GradientTape() as outer:
        outer.watch(x)
        with tf.GradientTape() as inner:
            inner.watch(x)
            output = d5fw.custom_op(IPowOp(3))(x)
        first = inner.gradient(output, x) + x
    np.testing.assert_array_equal(first, [14])
    with pytest.raises(ConfigurationError, match="gradient of the operator IPowOp is differentiated again"):
        outer.gradient(first, x)


def test_what_does_not_fit_is_told() -> None:
    """Inputs before anything runs; results of a graph when it does, in TensorFlow's error."""

    class Wide(d5.CustomPythonOp):
        def __init__(self) -> None:
            one = d5.TensorDescriptor("float32", (1,))
            super().__init__([one], [one])

        def forward(self, x: Any) -> Any:
            return x.astype("float64")

    wide, x = d5fw.custom_op(Wide()), tf.constant([1.0])
    with pytest.raises(ConfigurationError, match=r"input 0 of the operator Wide is float32 \(2,\), expected"):
        wide(tf.constant([1.0, 2.0]))
    with pytest.raises(
        OperatorError, match=r"output 0 of the operator Wide is float64 \(1,\), expected float32"
    ):
        wide(x)
    with pytest.raises(tf.errors.OpError, match=r"output 0 of the operator Wide is float64"):
        tf.function(wide)(x)


@in_graphs_too
def test_each_call_goes_backwards_with_what_its_own_forward_pass_kept(mode: str) -> None:
    square = d5fw.custom_op(KeepingOp())
    x, y = tf.constant([1.0, 2.0, 3.0]), tf.constant([4.0, 5.0, 6.0])

    def gradients(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch([x, y])
            total = tf.reduce_sum(square(x) * square(square(y)))
        return tape.gradient(total, [x, y])

    of_x, of_y = called(mode, gradients)(x, y)
    np.testing.assert_allclose(of_x, 2 * x * y**4)
    np.testing.assert_allclose(of_y, 4 * x**2 * y**3)
