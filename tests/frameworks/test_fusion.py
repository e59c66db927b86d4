"""Claims about nodes that become one linear layer: the same numbers, and only where nobody looks between"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.networks.executors.fusion import fused
from d5ray.networks.executors.plan import plan
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import FRAMEWORKS, executor, network_of

frameworks = pytest.mark.parametrize("framework", FRAMEWORKS)
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
        outputs=("y", *(name for node in more for name in node.outputs if name != "q")),
    )


def types(network: Network) -> list[str]:
    """What is computed, in order."""
    return [node.type for _, node in fused(network, plan(network, network.outputs)).nodes]


@frameworks
@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, ["Linear"]),
        ({"swapped": True}, ["Linear"]),
        ({"turned": False}, ["Linear"]),
        ({"perm": (0, 1)}, ["Transpose", "Linear"]),
    ],
    ids=["transposed", "bias first", "as it is", "transposed to itself"],
)
def test_a_product_and_its_bias_are_one_node(
    framework: str, options: dict[str, Any], left: list[str]
) -> None:
    network = linear(**options)
    assert types(network) == left
    w, b = (network.parameters[name] for name in ("w", "b"))
    expected = X @ (w.T if w.shape == (5, 4) else w) + b
    found = executor(framework, network).inference({"x": X})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@frameworks
@pytest.mark.parametrize(
    "network",
    [linear(Node("Exp", ("p",), ("z",))), linear(bias=(3, 5)), linear(bias=(1,)), linear(bias=())],
    ids=["read between", "a bias for each position", "one number", "a scalar"],
)
def test_what_is_no_linear_layer_stays_as_it_was(framework: str, network: Network) -> None:
    """The product is read elsewhere, or the bias is none."""
    assert "Linear" not in types(network)
    w, b = (network.parameters[name] for name in ("w", "b"))
    outputs = executor(framework, network.copy()).inference({"x": X})
    np.testing.assert_allclose(outputs["y"], X @ w.T + b, rtol=1e-12)


@frameworks
def test_a_bias_can_be_a_product_itself(framework: str) -> None:
    """v M + x W, either way round: the layer's product is that of x, the vector's is its bias."""
    v, m, w = RNG.standard_normal(2), RNG.standard_normal((2, 5)), RNG.standard_normal((4, 5))
    for order in (("c", "p"), ("p", "c")):
        network = network_of(
            Node("MatMul", ("v", "m"), ("c",)),
            Node("MatMul", ("x", "w"), ("p",)),
            Node("Add", order, ("y",)),
            inputs={"x": TensorDescriptor("float64", ("batch", 3, 4))},
            parameters={"v": v, "m": m, "w": w},
            outputs=("y",),
        )
        assert types(network) == ["MatMul", "Linear"]
        found = executor(framework, network).inference({"x": X})["y"]
        np.testing.assert_allclose(found, v @ m + X @ w, rtol=1e-12)


@frameworks
def test_a_product_of_the_users_own_is_no_layer(framework: str) -> None:
    """Of another domain, with one input: it runs beside a parameter of two axes."""

    class Doubled(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return 2 * x

    d5.register_operator("test.fusion", "MatMul", Doubled)
    w = RNG.standard_normal((3, 4))
    network = network_of(
        Node("MatMul", ("x",), ("p",), domain="test.fusion"),
        Node("Add", ("p", "w"), ("y",)),
        inputs={"x": TensorDescriptor("float64", ("batch", 3, 4))},
        parameters={"w": w},
        outputs=("y",),
    )
    np.testing.assert_allclose(executor(framework, network).inference({"x": X})["y"], 2 * X + w, rtol=1e-12)


def test_a_transposed_weight_that_others_read_is_made_for_them() -> None:
    """Two products read W itself, and its transpose is gone; with a third reader it stays."""
    again = (Node("MatMul", ("x", "t"), ("q",)), Node("Add", ("q", "b"), ("z",)))
    assert types(linear(*again)) == ["Linear", "Linear"]
    assert types(linear(*again, Node("Exp", ("t",), ("e",)))) == ["Transpose", "Linear", "Linear", "Exp"]


@frameworks
def test_whole_numbers_are_multiplied_as_before(framework: str) -> None:
    """No framework has that layer for them."""
    network = network_of(
        Node("MatMul", ("x", "w"), ("p",)),
        Node("Add", ("p", "b"), ("y",)),
        inputs={"x": TensorDescriptor("int64", ("batch", 3, 4))},
        constants={"w": np.arange(20).reshape(4, 5), "b": np.arange(5)},
        outputs=("y",),
    )
    assert "Linear" not in types(network)
    x = RNG.integers(-9, 9, (2, 3, 4))
    expected = x @ np.arange(20).reshape(4, 5) + np.arange(5)
    np.testing.assert_array_equal(executor(framework, network).inference({"x": x})["y"], expected)
