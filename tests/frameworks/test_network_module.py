"""Claims about a Network as an nn.Module: one like any other, written once, under the network's names"""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import d5ray.frameworks.torch as d5fw
from d5ray.frameworks.torch.graph_executor import TorchGraphExecutor
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import CASES, Case, case, error, network_of


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


def test_the_graph_holds_the_built_functions_and_nothing_else() -> None:
    """One call for each node, in their order, the parameters read where they are needed."""
    _, network = unlabelled("lenet")
    module = d5fw.module(network)
    for graph in module.graphs.values():
        calls = [node for node in graph.nodes if node.op == "call_function"]
        assert [node.meta["node"] for node in calls] == list(network.nodes)
        read = [node.target for node in graph.nodes if node.op == "get_attr"]
        assert sorted(read) == sorted(
            [*network.parameters, *(module.places[name] for name in network.constants)]
        )


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


@pytest.mark.slow
def test_torch_compile_takes_it_whole() -> None:
    """One graph without breaks, in both modes, with the same outputs and gradients."""
    made, network = unlabelled("resnet8")
    module = d5fw.module(network)
    inputs = torch.from_numpy(made.inputs)
    twin = copy.deepcopy(module)
    compiled: Any = torch.compile(twin, backend="aot_eager", fullgraph=True)
    for training in (True, False):
        module.train(training), twin.train(training)
        expected, found = module(inputs), compiled(inputs)
        np.testing.assert_allclose(found.detach(), expected.detach(), rtol=1e-9, atol=1e-12)
        for each in (expected, found):
            each.square().mean().backward()
    for name, parameter in module.named_parameters():
        found = twin.get_parameter(name).grad
        assert parameter.grad is not None and found is not None
        np.testing.assert_allclose(found, parameter.grad, rtol=1e-7, atol=1e-12)
    torch._dynamo.reset()


def test_a_compiler_makes_the_executors_code() -> None:
    """It is called once for each kind of pass, with the code; what it gives is what runs."""
    made = case("mlp", "float64")
    compiled: list[Any] = []

    def compiler(code: Any) -> Any:
        compiled.append(code)
        return code

    under_test = d5fw.from_onnx(made.network, compiler=compiler)
    plain = d5fw.from_onnx(made.network)
    for _ in range(3):
        assert (
            under_test.inference_and_backprop(made.given)["loss"]
            == plain.inference_and_backprop(made.given)["loss"]
        )
    assert len(compiled) == 1
    assert isinstance(under_test, TorchGraphExecutor)


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


def test_several_outputs_come_in_their_order() -> None:
    """As a tuple; an input that no output needs is taken and not looked at."""
    network = network_of(
        Node("Neg", ("x",), ("minus",)),
        Node("Mul", ("x", "w"), ("twice",)),
        inputs={"unused": TensorDescriptor("int64", ()), "x": TensorDescriptor("float32", ("n",))},
        parameters={"w": np.array(2, np.float32)},
        outputs=("twice", "minus"),
    )
    twice, minus = d5fw.module(network)(torch.tensor(0), torch.tensor([1.0, 2.0]))
    assert twice.tolist() == [2, 4] and minus.tolist() == [-1, -2]


def test_frozen_parameters_require_no_gradient() -> None:
    """Those that are not named."""
    _, network = unlabelled("mlp")
    module = d5fw.module(network, trained=["1.weight"])
    assert [name for name, each in module.named_parameters() if each.requires_grad] == ["1.weight"]


def test_layers_without_a_value_are_refused() -> None:
    """With the parameter's name."""
    from d5ray.errors import ConfigurationError  # noqa: PLC0415 - only here
    from d5ray.networks.zoo.catalogue import mlp  # noqa: PLC0415

    with pytest.raises(ConfigurationError, match=r"no value for the parameter '1\.weight'"):
        network_from_layers(mlp(10), (1, 8, 8), {})


def test_a_network_in_half_precision_is_a_module_too() -> None:
    """bfloat16 parameters are bfloat16's of PyTorch, to the last bit."""
    type = TensorDescriptor("bfloat16", ()).dtype
    values = np.linspace(-3, 3, 12).reshape(4, 3).astype(type)
    network = network_of(
        Node("MatMul", ("x", "w"), ("y",)),
        inputs={"x": TensorDescriptor("bfloat16", ("n", 4))},
        parameters={"w": values},
        outputs=("y",),
    )
    module = d5fw.module(network)
    assert module.get_parameter("w").dtype == torch.bfloat16
    assert error(module.value("w"), values) == 0
