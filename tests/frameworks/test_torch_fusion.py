"""Claims about nodes that become one call of PyTorch: the same numbers, where nobody looks between"""

from typing import Any

import numpy as np
import pytest
import torch

from d5ray.frameworks.torch.graph import graph
from d5ray.frameworks.torch.graph_executor import TorchGraphExecutor
from d5ray.networks.execution.plan import plan
from d5ray.networks.execution.times import OperatorTimes
from d5ray.networks.network import Network
from d5ray.operators.node import Node
from d5ray.operators.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import case, error, gradients_of, network_of

RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 4))


def linear(
    *more: Node,
    turned: bool = True,
    bias: tuple[int, ...] = (5,),
    types: tuple[str, str] = ("float64", "float64"),
    perm: tuple[int, int] = (1, 0),
    swapped: bool = False,
) -> Network:
    """y = x W' + b for sequences, and more nodes."""
    shape = (5, 4) if turned and perm == (1, 0) else (4, 5)
    nodes = [Node("Transpose", ("w",), ("t",), {"perm": perm})] if turned else []
    product = Node("MatMul", ("x", "t" if turned else "w"), ("p",))
    add = Node("Add", ("b", "p") if swapped else ("p", "b"), ("y",))
    return network_of(
        *nodes,
        product,
        add,
        *more,
        inputs={"x": TensorDescriptor(types[0], ("batch", 3, 4))},
        parameters={
            "w": RNG.standard_normal(shape).astype(types[0]),
            "b": RNG.standard_normal(bias).astype(types[1]),
        },
        outputs=("y", *(name for node in more for name in node.outputs)),
    )


def functions(network: Network) -> list[str]:
    """What the code calls."""
    places = {name: name.replace(".", "_") for name in (*network.parameters, *network.constants)}
    made = graph(network, plan(network, network.outputs), places, evaluating=True)
    return [getattr(each.target, "__name__", "") for each in made.nodes if each.op == "call_function"]


@pytest.mark.parametrize(
    ("options", "called"),
    [
        ({}, ["linear"]),
        ({"swapped": True}, ["linear"]),
        ({"turned": False}, ["t", "linear"]),
        ({"perm": (0, 1)}, ["transpose", "t", "linear"]),
    ],
    ids=["transposed", "bias first", "as it is", "transposed to itself"],
)
def test_a_product_and_its_bias_are_one_call(options: dict[str, Any], called: list[str]) -> None:
    network = linear(**options)
    assert functions(network) == called
    w, b = (network.parameters[name] for name in ("w", "b"))
    expected = X @ (w.T if w.shape == (5, 4) else w) + b
    np.testing.assert_allclose(TorchGraphExecutor(network).inference({"x": X})["y"], expected, rtol=1e-12)


@pytest.mark.parametrize(
    "network",
    [
        linear(Node("Exp", ("p",), ("z",))),
        linear(bias=(3, 5)),
        linear(bias=(1,)),
        linear(bias=()),
    ],
    ids=["read between", "a bias for each position", "one number", "a scalar"],
)
def test_what_linear_does_not_compute_stays_as_it_was(network: Network) -> None:
    """The product is read elsewhere, or the bias is none."""
    assert "linear" not in functions(network)
    w, b = (network.parameters[name] for name in ("w", "b"))
    outputs = TorchGraphExecutor(network).inference({"x": X})
    np.testing.assert_allclose(outputs["y"], X @ w.T + b, rtol=1e-12)


def test_whole_numbers_are_multiplied_as_before() -> None:
    """PyTorch's `linear` of whole numbers is another kernel."""
    network = network_of(
        Node("MatMul", ("x", "w"), ("p",)),
        Node("Add", ("p", "b"), ("y",)),
        inputs={"x": TensorDescriptor("int64", ("batch", 3, 4))},
        constants={"w": np.arange(20).reshape(4, 5), "b": np.arange(5)},
        outputs=("y",),
    )
    assert "linear" not in functions(network)
    x = RNG.integers(-9, 9, (2, 3, 4))
    expected = x @ np.arange(20).reshape(4, 5) + np.arange(5)
    np.testing.assert_array_equal(TorchGraphExecutor(network).inference({"x": x})["y"], expected)


def test_a_transformer_has_the_numbers_of_its_operators_one_by_one() -> None:
    """Where somebody listens to every operator nothing is fused: the same loss and gradients."""
    made = case("transformer", "float64")
    torch.set_num_threads(1)
    fused = TorchGraphExecutor(made.network)
    loss = fused.inference_and_backprop(made.given)["loss"]
    gradients = gradients_of(fused)
    apart = TorchGraphExecutor(made.network, events=[times := OperatorTimes()])
    assert apart.inference_and_backprop(made.given)["loss"] == pytest.approx(loss, rel=1e-12)
    assert "MatMul" in times.table()["type"].to_pylist()
    for name, found in gradients_of(apart).items():
        assert error(gradients[name], found) < 1e-10, name
