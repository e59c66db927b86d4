"""Claims about operators of one's own inside a Network: every executor runs and differentiates them"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import FRAMEWORKS, executor, network_of
from tests.operators.custom.listings import ipowop


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("language", ["Python", pytest.param("C++", marks=pytest.mark.full)])
def test_a_registered_operator_runs_inside_a_network(language: str, framework: str) -> None:
    """loss = Σ (x w)³, dloss/dw = Σ 3 x³ w²: in the middle of operators of the catalogue."""
    d5.register_operator(
        "tests.networks", "Power", Power if language == "Python" else lambda p: ipowop("float64", p)
    )
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


class Power(d5.CustomPythonOp):
    def __init__(self, p: int) -> None:
        super().__init__()
        self.p = p

    def infer(self, inputs: Any) -> Any:
        return inputs

    def forward(self, x: Any) -> Any:
        return x**self.p

    def backward(self, grads: Any, fwd_inputs: Any, fwd_outputs: Any) -> Any:
        return grads[0] * self.p * fwd_inputs[0] ** (self.p - 1)
