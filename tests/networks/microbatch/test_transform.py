"""Claims about layers that compute their mini-batch in parts: nothing else changes, forwards and backwards"""

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.networks.microbatch.freezing import frozen_statistics
from d5ray.networks.microbatch.transform import microbatched
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import BATCH, case, error, executor, gradients_of, network_of

Array = np.ndarray[Any, Any]
FRAMEWORKS = ["numpy", "torch"]
LIMIT = 1e-11  # relative, in float64


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize(
    ("name", "types", "sizes"),
    [
        ("lenet", ("Conv", "MaxPool", "Gemm", "Relu", "Flatten"), (3, 2, 1)),
        ("mlp", ("Gemm", "MatMul"), (1,) * BATCH),
        ("resnet8", ("Conv", "Add"), (4, 2)),
        ("transformer", ("LayerNormalization", "MatMul", "Softmax", "Attention", "Gather"), (1, 5)),
    ],
)
def test_outputs_and_gradients_are_those_of_whole_batches(
    framework: str, name: str, types: Sequence[str], sizes: Sequence[int]
) -> None:
    """All layers of these types at once, of networks with batch statistics too: these layers do not mix."""
    made = case(name, "float64")
    whole = executor(framework, made.network)
    expected = whole.inference_and_backprop(made.given)
    nodes = [
        node for node in whole.network.nodes if node.type in types and reads_samples(whole.network, node)
    ]
    assert len(nodes) >= 3
    parts = microbatched(made.network, {node.name: sizes for node in nodes})
    assert sum(node.type in types for node in parts.nodes) >= len(nodes) * len(sizes)
    under_test = executor(framework, parts)
    found = under_test.inference_and_backprop(made.given)
    for output, value in expected.items():
        assert error(found[output], value) < LIMIT
    gradients = gradients_of(under_test)
    largest = max(np.abs(value).max() for value in gradients_of(whole).values())
    for parameter, value in gradients_of(whole).items():
        assert np.abs(gradients[parameter] - value).max() < LIMIT * largest, parameter


def reads_samples(network: Network, node: Node) -> bool:
    """Whether the first axis of what it reads is the batch."""
    known = network.descriptors.get(node.inputs[0])
    return known is not None and bool(known.shape) and known.shape[0] == "batch"  # type: ignore[index]


def one(node: Node, *shapes: tuple[int | str, ...], **held: Array) -> Network:
    """A network of a single node, called after its type; held are constants."""
    names = [name for name in node.inputs if name and name not in held]
    kinds = {name: TensorDescriptor("float32", shape) for name, shape in zip(names, shapes, strict=True)}
    named = Node(node.type, node.inputs, node.outputs, node.attributes, node.type, node.domain)
    return network_of(named, inputs=kinds, outputs=tuple(filter(None, node.outputs)), constants=held)


W = np.random.default_rng(1).standard_normal
DIVIDED: dict[str, Network] = {
    "of rows": one(Node("MatMul", ("x", "w"), ("y",)), ("n", 3), w=W((3, 2)).astype(np.float32)),
    "of columns": one(Node("Transpose", ("x",), ("y",), {"perm": (1, 2, 0)}), ("n", 3, 2)),
    "grouped": one(
        Node("Conv", ("x", "w"), ("y",), {"group": 2}), ("n", 4, 5, 5), w=W((4, 2, 3, 3)).astype(np.float32)
    ),
    "of several outputs": one(
        Node("TopK", ("x", "k"), ("y", "places"), {"axis": 1}), ("n", 5), k=np.array([2])
    ),
    "reshaped": one(Node("Reshape", ("x", "to"), ("y",)), ("n", 4, 3), to=np.array([0, 2, 6])),
    "contracted": one(
        Node("Einsum", ("x", "z"), ("y",), {"equation": "bij,bjk->bik"}), ("n", 2, 3), ("n", 3, 2)
    ),
}


@pytest.mark.parametrize("network", DIVIDED.values(), ids=DIVIDED)
def test_a_single_operator_in_parts_is_the_operator(network: Network) -> None:
    """As ONNX Runtime computes both."""
    runtime = importlib.import_module("onnxruntime")
    generator = np.random.default_rng(2)
    given = {
        name: generator.standard_normal((5, *known.shape[1:])).astype(np.float32)  # type: ignore[index]
        for name, known in network.inputs.items()
    }
    (node,) = network.nodes
    parts = microbatched(network, {node.name: (2, 2, 1)})
    assert sum(each.type == node.type for each in parts.nodes) == 3 + (node.type == "Concat")
    whole, divided = (
        runtime.InferenceSession(each.to_onnx().SerializeToString()).run(None, given)
        for each in (network, parts)
    )
    for one_of, other in zip(whole, divided, strict=True):
        np.testing.assert_allclose(other, one_of, rtol=1e-6, atol=1e-6)


REFUSED = {
    "it takes the statistics of the batch": (
        one(
            Node("BatchNormalization", ("x", *"sbmv"), ("y", "mean", "var"), {"training_mode": 1}),
            ("n", 2, 3),
            **dict.fromkeys("sbmv", np.ones(2, np.float32)),
        ),
        "mean and variance of the whole batch: freeze",
    ),
    "it flattens samples": (one(Node("Flatten", ("x",), ("y",), {"axis": 0}), ("n", 3)), "makes one axis of"),
    "it reduces samples": (one(Node("ReduceMax", ("x",), ("y",)), ("n", 3)), "reduces over axis 0"),
    "it goes along them": (one(Node("Softmax", ("x",), ("y",), {"axis": 0}), ("n", 3)), "works along axis 0"),
    "it contracts them": (
        one(Node("MatMul", ("w", "x"), ("y",)), ("n", 3), w=np.ones((2, 6), np.float32)),
        "sums over axis 0 of its input 1",
    ),
    "it draws": (one(Node("Dropout", ("x",), ("y",)), ("n", 3)), "draws at random"),
    "it has no samples": (
        one(Node("Add", ("x", "w"), ("y",)), ("n", 3), w=np.ones((6, 3), np.float32)),
        "'w', has 6 elements along the axis of the samples",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("network", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_operator_that_mixes_samples_is_refused_by_name(network: Network, reason: str) -> None:
    """With the reason, and the network is as it was."""
    (node,) = network.nodes
    with pytest.raises(ConfigurationError, match=rf"{node.type} \({node.type}\) cannot .*{reason}"):
        microbatched(network, {node.name: (4, 2)})
    assert len(network.nodes) == 1


def test_frozen_statistics_let_a_layer_be_divided() -> None:
    """Its outputs are those of inference, and the running statistics stay."""
    made = case("resnet8", "float64")
    frozen = frozen_statistics(made.network)
    assert not frozen.state and frozen.state_values.keys() == made.network.state_values.keys()
    under_test = executor("numpy", frozen)
    found = under_test.inference_and_backprop(made.given)
    expected = executor("numpy", made.network).inference(made.given)
    assert error(found["output"], expected["output"]) < LIMIT
    names = [node.name for node in frozen.nodes if node.type == "BatchNormalization"]
    parts = executor("numpy", microbatched(frozen, dict.fromkeys(names, (4, 2))))
    again = parts.inference_and_backprop(made.given)
    assert error(again["loss"], found["loss"]) < LIMIT


def test_the_copy_takes_batches_of_one_size() -> None:
    """And says so; the network itself still takes any."""
    made = case("lenet", "float32")
    network = made.network
    node = next(node for node in network.nodes if node.type == "Conv")
    parts = microbatched(network, {node.name: (BATCH,)})
    assert len(parts.nodes) == len(network.nodes)
    assert list(parts.inputs) == list(network.inputs)
    given = {name: value[:2] for name, value in made.given.items()}
    with pytest.raises(ConfigurationError, match=f"axis 0 has 2 elements, and the network takes {BATCH}"):
        executor("numpy", parts).inference(given)
    executor("numpy", network).inference(given)
    with pytest.raises(ConfigurationError, match=r"add up to 7 samples, and the network's input 'input'"):
        microbatched(parts, {node.name: (4, 3)})


def test_sizes_that_do_not_fit_are_refused() -> None:
    made = case("lenet", "float32").network
    first, second = (node.name for node in made.nodes if node.type == "Conv")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({}, "no node is named"),
        ({"nowhere": (1,)}, "no node 'nowhere'"),
        ({first: 4}, "give integers such as"),
        ({first: (4, 2), second: (4, 3)}, "add up to 7 samples, and those of .* to 6: divide one batch"),
    ]
    for sizes, message in wrong:
        with pytest.raises(ConfigurationError, match=message):
            microbatched(made, sizes)
