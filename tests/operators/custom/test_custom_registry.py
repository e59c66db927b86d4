"""Registered operators: from a node of a network to an implementation, under every framework"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, OperatorError
from d5ray.networks.network import Network
from d5ray.operators.custom import registry
from d5ray.operators.nodes import inference
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops import custom
from tests.operators.custom.listings import BothOp, IPowOp, both, ipowop

X = np.array([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is gone after it."""
    monkeypatch.setattr(registry, "_registered", {})
    monkeypatch.setattr(inference, "_rules", dict(inference._rules))


def context(type: str = "IPow", outputs: tuple[str, ...] = ("y",), **attributes: Any) -> NodeContext:
    """A node of the user's domain."""
    inputs = ("a", "b") if type == "Both" else ("x",)
    return NodeContext(Node(type, inputs, outputs, attributes, "power1", "my.domain"))


def register() -> None:
    """A class, a function, an object."""
    d5.register_operator("my.domain", "IPow", IPowOp)
    d5.register_operator("my.domain", "FastIPow", lambda power: ipowop("float64", power))
    d5.register_operator("my.domain", "Both", BothOp("float64"))


@pytest.mark.full
@pytest.mark.parametrize("type", ["IPow", "FastIPow"])
def test_a_nodes_attributes_are_the_factorys_arguments(type: str) -> None:
    """In NumPy, forwards and backwards, with and without a gradient that comes in."""
    register()
    at = context(type, power=2)
    operator = custom.array_operator(at)
    (output,) = operator.forward(np, at, [X])
    np.testing.assert_array_equal(output, X**2)
    for given, expected in ((X, 2 * X**2), (None, 0 * X)):
        (gradient,) = operator.backward(np, at, [given], [X], [output])
        np.testing.assert_array_equal(gradient, expected)


@pytest.mark.full
def test_a_built_function_is_one_operation_of_a_compiled_graph() -> None:
    """`fullgraph=True` refuses anything else."""
    torch = pytest.importorskip("torch")
    register()
    built = custom.torch_builder(context("FastIPow", power=3))
    x = torch.tensor(X, requires_grad=True)
    compiled = torch.compile(lambda given: built(given * 2).sum(), backend="aot_eager", fullgraph=True)
    (gradient,) = torch.autograd.grad(compiled(x), x)
    np.testing.assert_allclose(gradient.numpy(), 24 * X**2, rtol=1e-12)
    torch.compiler.reset()


@pytest.mark.parametrize("make", [BothOp, both])
def test_several_outputs_come_in_the_nodes_order(make: Any) -> None:
    """All of them, or the first alone where the node names one."""
    torch = pytest.importorskip("torch")
    d5.register_operator("my.domain", "Both", make("float64"))
    a, b = torch.full((1, 2), 2.0, dtype=torch.float64), torch.full((1, 2), 3.0, dtype=torch.float64)
    product, total = custom.torch_builder(context("Both", ("p", "s")))(a, b)
    assert (product.tolist(), total.tolist()) == ([[6, 6]], [[5, 5]])
    assert custom.torch_builder(context("Both", ("p",)))(a, b).tolist() == [[6, 6]]


def test_shapes_are_inferred_through_the_registered_operator() -> None:
    """From descriptors with open sizes."""
    register()
    operator = registry.operator_of(context("Both").node)
    given = d5.TensorDescriptor("float64", ("batch", 4))
    assert operator.inferred([given, given]) == (given, given)
    assert registry.registered("my.domain", "Both") is not None
    assert registry.registered("my.domain", "None") is None


def line() -> Network:
    """An input with an open size."""
    network = Network("line")
    network.add_input("x", d5.TensorDescriptor("float64", ("batch", 3)))
    return network


def test_a_network_holds_registered_operators_and_knows_their_shapes() -> None:
    """Also when it comes back from ONNX; the listing's shape, nobody knows before it runs."""
    register()
    network = line()
    network.add_node(Node("FastIPow", ("x",), ("y",), {"power": 3}, "fast", "my.domain"))
    network.add_node(Node("Both", ("x", "y"), ("p", "s"), {}, "both", "my.domain"))
    network.add_node(Node("IPow", ("s",), ("z",), {"power": 2}, "slow", "my.domain"))
    network.add_output("s")
    network.add_node(Node("Neg", ("z",), ("n",), {}, "negative"))
    network.add_output("n")
    known, guess = d5.TensorDescriptor("float64", ("batch", 3)), d5.TensorDescriptor("float64", None)
    assert [network.descriptors[name] for name in "ypszn"] == [known, known, known, guess, guess]
    again = Network.from_onnx(network.to_onnx())
    assert again.nodes == network.nodes
    values = {"x": X[None]}
    for node in again.nodes[:-1]:
        at = again.site(node)
        operator = custom.implementation("numpy", at)
        outputs = operator.forward(np, at, [values[name] for name in node.inputs])
        values |= dict(zip(node.outputs, outputs, strict=True))
    np.testing.assert_array_equal(values["z"], (X[None] + X[None] ** 3) ** 2)


def test_a_network_refuses_what_does_not_fit_a_registered_operator() -> None:
    """With the node, the operator, and what was found and expected."""
    register()
    network = line()
    network.add_input("w", d5.TensorDescriptor("float32", (2, 3)))
    with pytest.raises(ConfigurationError, match=r"node both \(my.domain.Both\) .* expected float64"):
        network.add_node(Node("Both", ("x", "w"), ("p", "s"), {}, "both", "my.domain"))
    with pytest.raises(ConfigurationError, match=r"cannot be made of the attributes"):
        network.add_node(Node("IPow", ("x",), ("y",), {"power": 0.5, "axis": 1}, "slow", "my.domain"))


def test_an_unregistered_type_is_told_with_the_nearest_one() -> None:
    """And with what to call."""
    register()
    message = (
        r"the node power1 \(my.domain.IPwo\) .* d5ray.register_operator\('my.domain', 'IPwo', operator\)"
    )
    with pytest.raises(ConfigurationError, match=message + r".*did you mean 'my.domain.IPow'\?"):
        custom.array_operator(context("IPwo"))


@pytest.mark.parametrize(
    ("type", "attributes", "message"),
    [
        ("IPow", {}, r"my.domain.IPow cannot be made of the attributes {}: .*'power'"),
        ("IPow", {"power": 2, "axis": 1}, r"IPow cannot be made of .*'axis'"),
        ("IPow", {"power": 0.5}, r"IPow cannot be made of the attributes {'power': 0.5}: AssertionError"),
        ("Both", {"axis": 1}, r"the node power1 \(my.domain.Both\): has the attributes axis"),
    ],
)
def test_attributes_that_do_not_fit_are_told(type: str, attributes: dict[str, Any], message: str) -> None:
    """Missing, unknown, refused by the class, given to an object that takes none."""
    register()
    with pytest.raises(ConfigurationError, match=message):
        custom.array_operator(context(type, **attributes))


@pytest.mark.parametrize(
    ("domain", "type", "operator", "message"),
    [
        ("", "IPow", IPowOp, "'' is no domain for operators of your own"),
        ("ai.onnx", "IPow", IPowOp, "is no domain"),
        ("my.domain", "I Pow", IPowOp, "'I Pow' is no name of an operator type"),
        ("my.domain", "IPow", 3, "3 cannot be registered as my.domain.IPow"),
    ],
)
def test_what_cannot_be_registered_is_refused(domain: str, type: str, operator: Any, message: str) -> None:
    """At once."""
    with pytest.raises(ConfigurationError, match=message):
        d5.register_operator(domain, type, operator)


def test_errors_name_the_node() -> None:
    """What the operator does wrong, what it lacks, what the node asks too much."""

    class Wrong(d5.CustomPythonOp):
        def forward(self, x: Any) -> Any:
            return 1.0

    d5.register_operator("my.domain", "Wrong", Wrong)
    d5.register_operator("my.domain", "Odd", lambda: 3)
    register()
    with pytest.raises(OperatorError, match=r"the node power1 \(my.domain.Wrong\): output 0 of Wrong is of"):
        custom.array_operator(context("Wrong")).forward(np, context("Wrong"), [X])
    with pytest.raises(ConfigurationError, match=r"power1 \(my.domain.Wrong\): .* Wrong has no backward"):
        custom.array_operator(context("Wrong")).backward(np, context("Wrong"), [X], [X], [X])
    with pytest.raises(ConfigurationError, match=r"names 2 outputs, but its operator IPowOp gives 1"):
        custom.array_operator(context(power=2)).forward(np, context(outputs=("y", "z"), power=2), [X])
    with pytest.raises(ConfigurationError, match=r"registered as my.domain.Odd gave 3, expected"):
        custom.array_operator(context("Odd"))
