"""Operators of one's own in TensorFlow: gradient tapes, graphs, what goes wrong"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
import d5ray.frameworks.tensorflow as d5fw
from d5ray.errors import ConfigurationError, OperatorError
from tests.operators.custom.listings import IPowOp, both
from tests.operators.custom.test_custom_frameworks import KINDS, each_kind

tf = pytest.importorskip("tensorflow")


@pytest.mark.parametrize("mode", ["eager", "graph"])
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
