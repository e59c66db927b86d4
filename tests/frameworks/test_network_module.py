"""Claims about a Network as an nn.Module: one like any other, written once, under the network's names"""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import d5ray.frameworks.torch as d5fw
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import CASES, Case, case, network_of


def unlabelled(name: str) -> tuple[Case, Network]:
    """The case, and its network without the loss."""
    made = case(name, "float64")
    network = made.network
    loss = next(node for node in network.nodes if "loss" in node.outputs)
    with network.changes():
        network.remove_output("loss")
        network.remove_node(loss)
        if name == "transformer":
            network.remove_node(network.producer(loss.inputs[0]) or loss)
        network.remove_input("labels")
    return made, network


@pytest.mark.parametrize("kind", CASES)
def test_it_trains_as_the_module_of_the_same_layers(kind: str) -> None:
    """Three steps of SGD end at the same parameters and running means, under the same names."""
    made, network = unlabelled(kind)
    module, twin = d5fw.module(network), made.twin()
    assert [each for each, _ in module.named_parameters()] == list(network.parameters)
    assert dict(module.named_parameters()).keys() == dict(twin.named_parameters()).keys()
    inputs, labels = torch.from_numpy(made.inputs), torch.from_numpy(made.labels)
    for each in (module, twin):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.05, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            scores = each(inputs)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), labels.flatten())
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    for parameter, tensor in twin.named_parameters():
        np.testing.assert_allclose(
            module.get_parameter(parameter).detach(), tensor.detach(), rtol=1e-9, atol=1e-12
        )
    for name, value in twin.named_buffers():
        if name.endswith("running_mean"):
            np.testing.assert_allclose(module.get_buffer(name), value, rtol=1e-9, atol=1e-12)


def test_evaluation_mode_replaces_no_state() -> None:
    """And gives what inference gives; training mode replaces it in every call."""
    made, network = unlabelled("resnet8")
    module = d5fw.module(network).eval()
    inputs = torch.from_numpy(made.inputs)
    before = module.get_buffer("1.running_mean").clone()
    expected = d5fw.from_onnx(network.copy()).inference({"input": made.inputs})["output"]
    np.testing.assert_allclose(module(inputs).detach(), expected, rtol=1e-12)
    assert torch.equal(module.get_buffer("1.running_mean"), before)
    module.train()(inputs)
    assert not torch.equal(module.get_buffer("1.running_mean"), before)


def test_it_can_be_copied_saved_and_restored(tmp_path: Path) -> None:
    """A deep copy has parameters of its own; a state_dict makes one like the other."""
    made, network = unlabelled("resnet8")
    module = d5fw.module(network)
    inputs = torch.from_numpy(made.inputs)
    other = copy.deepcopy(module)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    module.eval(), other.eval()
    assert not torch.allclose(module(inputs), other(inputs))
    torch.save(module.state_dict(), tmp_path / "state.pt")
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(module(inputs), other(inputs))
    np.testing.assert_array_equal(
        network.parameters["0.weight"], made.module.get_parameter("0.weight").detach()
    )


STRANGE = (
    "onnx::Conv_12", "a b", "class", "train", "forward", "_hidden", "1.2", "a.b.c", "a.b", "é", ".", "x..y",
    '"]; raise SystemExit #', "a\nimport os", "weight'", "{0}", "self",
)  # fmt: skip


def test_names_that_pytorch_does_not_allow_are_spelled_otherwise() -> None:
    """Whatever a file calls its tensors and nodes: the code is about them, and no part of them."""
    names = list(STRANGE)
    nodes, last = [], "x"
    for place, name in enumerate(names):
        nodes.append(Node("Add", (last, name), (f"{name} sum",), name=f"{name} {place}"))
        last = f"{name} sum"
    network = network_of(
        *nodes,
        inputs={"x": TensorDescriptor("float64", ("n",))},
        parameters={name: np.array(2.0**place) for place, name in enumerate(names)},
        outputs=(last,),
    )
    module = d5fw.module(network)
    found = module(torch.zeros(2, dtype=torch.float64))
    assert found.tolist() == [2.0 ** len(names) - 1] * 2
    assert len(dict(module.named_parameters())) == len(names)
    assert set(module.places) == set(names)
    assert module.places["1.2"] == "1.2" and module.places["onnx::Conv_12"] == "onnx_Conv_12"
    for name in names:
        assert module.value(name) == 2.0 ** names.index(name)
