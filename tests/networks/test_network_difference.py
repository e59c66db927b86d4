"""Networks that differ are told apart: the first node that does, and how far its values are"""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from d5ray.errors import D5Error
from d5ray.networks.difference import compare_values, structural_difference
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor

Array = np.ndarray[Any, Any]


def chain(prefix: str = "") -> Network:
    """x -> MatMul -> Relu -> LeakyRelu -> y, and a branch; nodes and tensors called as one likes."""
    network = Network()
    network.add_input("x", TensorDescriptor("float32", ("batch", 3)))
    network.add_parameter(f"{prefix}w", np.ones((3, 3), np.float32))
    network.add_constant(f"{prefix}c", np.float32(2))
    for type, inputs, output in [
        ("MatMul", ("x", f"{prefix}w"), "a"),
        ("Relu", (f"{prefix}a",), "b"),
        ("Mul", (f"{prefix}a", f"{prefix}c"), "d"),
        ("Add", (f"{prefix}b", f"{prefix}d"), "y"),
    ]:
        network.add_node(Node(type, inputs, (prefix + output,), name=prefix + type))
    network.add_output(f"{prefix}y")
    return network


def test_names_and_the_order_of_branches_do_not_matter() -> None:
    assert structural_difference(chain(), chain("other_")) is None
    turned = chain()
    with turned.changes():
        node = turned.node("Relu")
        turned.remove_node(node)
        turned.add_node(node)
    assert [each.name for each in turned.nodes] != [each.name for each in chain().nodes]
    assert structural_difference(chain(), turned) is None


def other_type(network: Network) -> None:
    network.replace("Relu", Node("Tanh", ("a",), ("b",)))


def other_constant(network: Network) -> None:
    network.feed_tensor("c", np.float32(3))


def other_edge(network: Network) -> None:
    network.add_edge("a", "Add", 0)


def one_more(network: Network) -> None:
    network.add_node(Node("Neg", ("y",), ("z",), name="more"))


def other_output(network: Network) -> None:
    network.remove_output("y")
    network.add_output("d")


@pytest.mark.parametrize(
    ("change", "node", "said"),
    [
        (other_type, "Relu", r"Relu \(Relu\), and Relu \(Tanh\).*different types"),
        (other_constant, "Mul", r"Mul \(Mul\).*as input 1 they read 'c' \(float32 \(\)\) and 'c'"),
        (other_edge, "Add", r"Add \(Add\).*as input 0 they read 'b' .* and 'a'"),
        (one_more, None, r"one more node: more \(Neg\)"),
        (other_output, None, "outputs are others: y, and d"),
    ],
)
def test_the_first_node_that_differs_is_named_with_what_is_different(
    change: Callable[[Network], None], node: str | None, said: str
) -> None:
    network = chain()
    change(network)
    found = structural_difference(chain(), network)
    assert found is not None
    assert (found.node.name if found.node else None) == node
    assert re.search(said, str(found)), str(found)


def run(network: Network, x: Array, wrong: str = "") -> dict[str, Array]:
    """All tensors of `chain`, by their formulas; one of them off by a hundredth in one element."""
    found = {"x": x, "w": network.parameters["w"]}
    found["a"] = x @ found["w"]
    formulas: dict[str, Callable[[], Array]] = {
        "b": lambda: np.maximum(found["a"], 0),
        "d": lambda: found["a"] * 2,
        "y": lambda: found["b"] + found["d"],
    }
    for name, formula in formulas.items():
        found[name] = formula().astype(np.float32)
        if name == wrong:
            found[name][1, 2] += 0.25
    return found


def test_the_first_tensor_that_differs_is_named_with_its_error() -> None:
    network, x = chain(), np.arange(6, dtype=np.float32).reshape(2, 3)
    right = run(network, x)
    assert compare_values(network, run(network, x), right).first is None
    assert str(compare_values(network, right, right)) == "all 6 tensors agree"
    comparison = compare_values(network, run(network, x, "d"), right)
    assert [each.tensor for each in comparison.tensors if not each.passed] == ["d", "y"]
    first = comparison.first
    assert first is not None and first.norms is not None and first.node == network.node("Mul")
    assert (first.norms.l1, first.norms.l2, first.norms.largest, first.norms.at) == (0.25, 0.25, 0.25, (1, 2))
    assert first.norms.relative_largest == 0.25 / np.abs(right["d"]).max()
    assert "2 of 6 tensors differ, first the node Mul (Mul)" in str(comparison)


def test_tensors_of_two_networks_are_paired_by_what_computes_them() -> None:
    network, x = chain(), np.arange(6, dtype=np.float32).reshape(2, 3)
    other = chain("other_")
    expected = {name if name == "x" else f"other_{name}": each for name, each in run(network, x).items()}
    comparison = compare_values(network, run(network, x, "b"), expected, other=other)
    assert [each.tensor for each in comparison.tensors] == ["x", "a", "b", "d", "y"]
    assert comparison.first is not None and comparison.first.tensor == "b"


def test_tensors_of_different_shape_differ_and_the_shapes_are_said() -> None:
    network, x = chain(), np.ones((2, 3), np.float32)
    wrong = run(network, x) | {"b": np.ones((3, 2), np.float32)}
    first = compare_values(network, wrong, run(network, x)).first
    assert first is not None and first.node == network.node("Relu")
    assert "shape (3, 2), expected is (2, 3)" in str(first)
    with pytest.raises(D5Error, match="nothing to compare"):
        compare_values(network, {"nothing": np.ones(1)}, {})
