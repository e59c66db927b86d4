"""Claims about operators of one's own inside a Network: every executor runs and differentiates them"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.frameworks import executor_by_name
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import FRAMEWORKS, executor, network_of


class Power(d5.CustomPythonOp):
    """x ** p, p from the node's attribute."""

    def __init__(self, p: int) -> None:
        four = [TensorDescriptor("float64", (4,))]
        super().__init__(four, four)
        self.p = p

    def forward(self, x: Any) -> Any:
        return x**self.p

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        (slope,), (x,) = grads, fwd_inputs
        return (slope * self.p * x ** (self.p - 1),)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_registered_operator_runs_inside_a_network(framework: str) -> None:
    """loss = Σ (x w)³, dloss/dw = Σ 3 x³ w²: in the middle of operators of the catalogue."""
    d5.register_operator("tests.networks", "Power", Power)
    network = network_of(
        Node("Mul", ("x", "w"), ("y",)),
        Node("Power", ("y",), ("z",), {"p": 3}, domain="tests.networks"),
        Node("ReduceSum", ("z",), ("loss",), {"keepdims": 0}),
        inputs={"x": TensorDescriptor("float64", (4,))},
        parameters={"w": np.array(2.0)},
        outputs=("z", "loss"),
    )
    x = np.array([1.0, -2.0, 0.5, 3.0])
    under_test = executor(framework, network)
    np.testing.assert_allclose(under_test.inference({"x": x})["z"], (2 * x) ** 3)
    outputs = under_test.inference_and_backprop({"x": x})
    assert float(outputs["loss"]) == pytest.approx(float(((2 * x) ** 3).sum()))
    (slope,) = network.fetch_tensors(["w_grad"])
    np.testing.assert_allclose(slope, (3 * x**3 * 4).sum())


@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_a_function_that_makes_a_network_is_a_model(framework: str) -> None:
    """It registers the operator where it is called, as on an agent; its gradient is that of x³ w."""

    def network() -> d5.Network:
        d5.register_operator("tests.networks", "AnyPower", lambda p: _AnyPower(p))
        return network_of(
            Node("AnyPower", ("x",), ("y",), {"p": 3}, domain="tests.networks"),
            Node("MatMul", ("y", "w"), ("scores",)),
            inputs={"x": TensorDescriptor("float32", ("batch", 4))},
            parameters={"w": np.zeros((4, 2), np.float32)},
            outputs=("scores",),
        )

    made = executor_by_name(framework)(
        network,
        {},
        sample_shape=(4,),
        classes=2,
        loss=d5.operators.SoftmaxCrossEntropyLoss(),
        seed=1,
        threads=1,
    )
    x = np.array([[1.0, -2.0, 0.5, 3.0]], np.float32)
    assert made.inference_and_backprop(x, np.array([1])) == pytest.approx(np.log(2))
    expected = np.outer(x[0] ** 3, [0.5, -0.5])  # (softmax − one-hot) of equal scores
    np.testing.assert_allclose(np.asarray(made.gradients).reshape(4, 2), expected, rtol=1e-6)


class _AnyPower(d5.CustomPythonOp):
    def __init__(self, p: int) -> None:
        super().__init__()
        self.p = p

    def infer(self, inputs: Any) -> Any:
        return inputs

    def forward(self, x: Any) -> Any:
        return x**self.p

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * self.p * fwd_inputs[0] ** (self.p - 1)
