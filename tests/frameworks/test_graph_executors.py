"""Claims about the executors of a Network: outputs, gradients and state in every framework as in PyTorch"""

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import (
    BATCH,
    CASES,
    FRAMEWORKS,
    OTHERS,
    autograd,
    case,
    error,
    executor,
    gradients_of,
    network_of,
    tolerance,
)

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


@every_framework
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, "float32") for name in CASES), *((name, "float64") for name in (*CASES, *OTHERS))],
)
def test_a_training_pass_is_that_of_pytorch(framework: str, name: str, dtype: str) -> None:
    """Loss, scores and every gradient; gated recurrences, transposed and grouped convolutions, depth."""
    made = case(name, dtype)
    loss, scores, gradients = autograd(made)
    under_test = executor(framework, made.network)
    outputs = under_test.inference_and_backprop(made.given, "loss")
    assert list(outputs) == ["output", "loss"]
    limit = tolerance(framework, name, dtype)
    assert float(outputs["loss"]) == pytest.approx(loss, rel=limit)
    assert error(outputs["output"], scores) < limit
    found = gradients_of(under_test)
    assert found.keys() == gradients.keys()
    largest = max(float(np.abs(gradient).max()) for gradient in gradients.values())
    for parameter, gradient in gradients.items():
        assert found[parameter].dtype == gradient.dtype
        assert found[parameter].shape == gradient.shape
        assert float(np.abs(found[parameter] - gradient).max()) < limit * largest, parameter


@every_framework
@pytest.mark.parametrize("name", CASES)
def test_inference_is_that_of_the_evaluated_module(framework: str, name: str) -> None:
    """For any size of the batch; it needs no labels, and gives what they are not needed for."""
    made = case(name, "float64")
    under_test = executor(framework, made.network)
    module = made.twin().eval()
    for size in (BATCH, 1, 4):
        outputs = under_test.inference({"input": made.inputs[:size]})
        assert list(outputs) == ["output"]
        with torch.no_grad():
            expected = module(torch.from_numpy(made.inputs[:size])).numpy()
        assert error(outputs["output"], expected) < tolerance(framework, name, "float64")
    assert list(under_test.inference(made.given)) == ["output", "loss"]


@every_framework
def test_running_statistics_follow_the_batches(framework: str) -> None:
    """After three passes the means are PyTorch's, and the variances with n in the place of its n − 1."""
    made = case("resnet8", "float64")
    under_test, twin = executor(framework, made.network), made.twin()
    counts: dict[str, int] = {}
    keep = float(np.float32(0.9))
    for name, part in twin.named_modules():
        if isinstance(part, nn.BatchNorm2d):
            part.register_forward_hook(
                lambda _, given, __, name=name: counts.update({name: given[0].numel() // given[0].shape[1]})
            )
    expected = {name: np.ones_like(value) for name, value in under_test.state.items() if name.endswith("var")}
    for scale in (1.0, 2.0, 0.5):
        before = {name: tensor.numpy().copy() for name, tensor in twin.named_buffers()}
        inputs = made.inputs * scale
        twin(torch.from_numpy(inputs))
        under_test.inference_and_backprop({**made.given, "input": inputs})
        for name in expected:
            after = twin.get_buffer(name).numpy()
            n = counts[name.removesuffix(".running_var")]
            variance = (after - keep * before[name]) / (1 - keep) * (n - 1) / n
            expected[name] = keep * expected[name] + (1 - keep) * variance
    state = under_test.state
    assert len(state) == len(made.labelled.network.state_values) == 18
    for name, found in state.items():
        wanted = expected.get(name, twin.get_buffer(name).numpy())
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(
        under_test.network.fetch_tensors(["1.running_mean"])[0], state["1.running_mean"]
    )


def shared() -> Network:
    """loss = Σ (x w) w, elementwise, with a branch that leads nowhere near the loss."""
    return network_of(
        Node("Mul", ("x", "w"), ("once",)),
        Node("Mul", ("once", "w"), ("twice",)),
        Node("Add", ("twice", "w"), ("both",)),
        Node("ReduceSum", ("both",), ("loss",), {"keepdims": 0}),
        Node("Exp", ("v",), ("aside",)),
        inputs={"x": TensorDescriptor("float64", ("batch", 3))},
        parameters={"w": np.array([1.0, -2.0, 0.5]), "v": np.array([3.0])},
        outputs=("loss", "aside"),
    )


@every_framework
def test_a_tensor_that_is_used_several_times_has_the_sum_of_its_gradients(framework: str) -> None:
    """d/dw Σ (x w² + w) = Σ (2 x w + 1), over the batch."""
    x = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]])
    network = shared()
    under_test = executor(framework, network)
    outputs = under_test.inference_and_backprop({"x": x})
    w = np.array([1.0, -2.0, 0.5])
    assert float(outputs["loss"]) == pytest.approx(float((x * w**2 + w).sum()))
    assert network.gradient("loss") == [("w", "w_grad")]
    np.testing.assert_allclose(network.fetch_tensors(["w_grad"])[0], (2 * x * w + 1).sum(axis=0))
    np.testing.assert_allclose(outputs["aside"], [np.exp(3.0)])


@every_framework
def test_what_is_fed_is_used_from_the_next_pass_on(framework: str) -> None:
    """And `fetch_tensors` gives it back; a step of gradient descent by hand lowers the loss."""
    made = case("mlp", "float64")
    network = made.network
    under_test = executor(framework, network)
    losses = []
    for _ in range(4):
        losses.append(float(under_test.inference_and_backprop(made.given)["loss"]))
        for name, gradient in network.gradient("loss"):
            value, slope = network.fetch_tensors([name, gradient])
            network.feed_tensor(name, value - 0.1 * slope)
            np.testing.assert_array_equal(network.fetch_tensors([name])[0], value - 0.1 * slope)
    assert losses == sorted(losses, reverse=True) and losses[0] - losses[-1] > 0.05


@every_framework
def test_a_network_that_is_changed_runs_as_it_is_now(framework: str) -> None:
    """A node more, and parameters that come with it, are part of the next pass."""
    made = case("mlp", "float64")
    network = made.network
    under_test = executor(framework, network)
    before = under_test.inference({"input": made.inputs})["output"]
    with network.changes():
        network.add_parameter("gain", np.array(3.0))
        network.add_node(Node("Mul", ("output", "gain"), ("stronger",)))
        network.add_output("stronger")
    after = under_test.inference({"input": made.inputs})
    np.testing.assert_allclose(after["stronger"], 3 * before)


@every_framework
def test_frozen_parameters_get_no_gradients(framework: str) -> None:
    """Those of the others are what they were; asking for a frozen one's is an error that says so."""
    made = case("lenet", "float64")
    _, _, gradients = autograd(made)
    chosen = ("7.weight", "0.bias")
    under_test = executor(framework, made.network, trained=chosen)
    assert set(under_test.trained) == set(chosen)
    under_test.inference_and_backprop(made.given)
    for name in chosen:
        assert error(under_test.network.fetch_tensors([f"{name}_grad"])[0], gradients[name]) < 1e-9
    with pytest.raises(ConfigurationError, match=r"'9\.weight' is frozen"):
        under_test.network.fetch_tensors(["9.weight_grad"])


@every_framework
def test_an_output_that_is_an_input_is_a_copy(framework: str) -> None:
    """An Identity gives neither the caller's array nor the network's own."""
    network = network_of(
        Node("Identity", ("x",), ("y",)),
        Node("Identity", ("w",), ("z",)),
        inputs={"x": TensorDescriptor("float32", ("n",))},
        parameters={"w": np.ones(2, np.float32)},
        outputs=("y", "z"),
    )
    x = np.arange(3, dtype=np.float32)
    under_test = executor(framework, network)
    outputs = under_test.inference({"x": x})
    assert not np.may_share_memory(outputs["y"], x)
    held = under_test.network.fetch_tensors(["w"])[0].copy()
    try:
        outputs["z"][...] = 5
    except ValueError:  # it is read-only: nobody can
        return
    np.testing.assert_array_equal(under_test.inference({"x": x})["z"], held)


@every_framework
def test_weights_of_a_convolution_are_the_networks_whoever_else_reads_them(framework: str) -> None:
    """They can lie in another order inside: loss = Σ conv(x, w) + Σ c w has the gradient of both terms."""
    generator = np.random.default_rng(5)
    w, c = generator.standard_normal((4, 3, 3, 2)), generator.standard_normal((4, 3, 3, 2))
    x = generator.standard_normal((2, 3, 5, 6))
    network = network_of(
        Node("Conv", ("x", "w"), ("y",)),
        Node("ReduceSum", ("y",), ("one",), {"keepdims": 0}),
        Node("Mul", ("c", "w"), ("penalty",)),
        Node("ReduceSum", ("penalty",), ("two",), {"keepdims": 0}),
        Node("Add", ("one", "two"), ("loss",)),
        inputs={"x": TensorDescriptor("float64", ("batch", 3, 5, 6))},
        parameters={"w": w},
        constants={"c": c},
        outputs=("y", "loss"),
    )
    under_test = executor(framework, network)
    for factor in (1.0, 2.0):
        network.feed_tensor("w", factor * w)
        outputs = under_test.inference_and_backprop({"x": x})
        expected = torch.nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(factor * w)).numpy()
        assert error(outputs["y"], expected) < 1e-12
        assert float(outputs["loss"]) == pytest.approx(float(expected.sum() + (c * factor * w).sum()))
        patches = np.lib.stride_tricks.sliding_window_view(x, (3, 2), axis=(2, 3)).sum(axis=(0, 2, 3))
        gradient = network.fetch_tensors(["w_grad"])[0]
        assert error(gradient, np.broadcast_to(patches, w.shape) + c) < 1e-12
        np.testing.assert_array_equal(network.fetch_tensors(["w"])[0], factor * w)
