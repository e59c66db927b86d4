"""Claims about measuring micro-batches: memory grows with the size, and the quickest that fits is chosen"""

import numpy as np
import pytest

from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks import numpy as d5fw
from d5ray.networks.microbatch.alone import alone
from d5ray.networks.microbatch.fresh_process import in_fresh_process
from d5ray.networks.microbatch.measuring import StepCost, fastest_within, layer_kernels, step_costs
from d5ray.networks.microbatch.reuse import WorkspaceReuse
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import case, executor, gradients_of

MIB = 2**20


def wide() -> Network:
    """x (batch, 4) -> (batch, 4096) -> eight times Tanh -> their mean"""
    network = Network("wide")
    network.add_input("x", TensorDescriptor("float32", ("batch", 4)))
    network.add_parameter("w", np.full((4, 4096), 0.1, np.float32))
    network.add_node(Node("MatMul", ("x", "w"), ("h0",)))
    for layer in range(8):
        network.add_node(Node("Tanh", (f"h{layer}",), (f"h{layer + 1}",)))
    network.add_node(Node("ReduceMean", ("h8",), ("loss",), {"keepdims": 0}))
    network.add_output("loss")
    return network


@pytest.mark.full
def test_a_step_in_parts_is_measured_to_take_their_memory() -> None:
    """Nine activations are kept: 144 MiB for 1024 samples, an eighth of it for parts of 128."""
    given = {"x": np.ones((1024, 4), np.float32)}
    found = step_costs(d5fw.from_onnx, wide(), given, (1024, 128), seconds=0.0)
    kept = 9 * 4096 * 4
    assert 1024 * kept <= found[1024].peak_bytes <= 1.6 * 1024 * kept
    assert 128 * kept <= found[128].peak_bytes <= found[1024].peak_bytes / 4
    assert all(cost.seconds > 0 for cost in found.values())
    assert fastest_within(found, 64 * MIB) == 128


def test_the_quickest_size_within_the_limit_is_chosen() -> None:
    costs = {64: StepCost(1.0, 400), 32: StepCost(1.1, 200), 16: StepCost(1.3, 120), 8: StepCost(1.2, 110)}
    assert [fastest_within(costs, limit) for limit in (400, 399, 199, 110)] == [64, 32, 8, 8]
    with pytest.raises(ConfigurationError, match="within 109 bytes: the least is 110, of micro-batches of 8"):
        fastest_within(costs, 109)
    with pytest.raises(ConfigurationError, match="none was measured"):
        fastest_within({}, 1)


def test_layers_are_measured_and_divided_by_what_was_found() -> None:
    """A convolution's patches are its workspace: with that of 4 samples, 256 are computed in parts."""
    made = case("lenet", "float32")
    node = next(node for node in made.network.nodes if node.type == "Conv")
    layer = layer_kernels(d5fw.from_onnx, made.network, node, (1, 2, 4, 256), seconds=0.0)
    (kernels,) = zip(*layer.kernels.values(), strict=True)
    assert all(kernel.seconds > 0 and kernel.name == "numpy" for kernel in kernels)
    limit = max(kernel.workspace_bytes for kernel in kernels[:3])
    assert limit < kernels[3].workspace_bytes
    chosen = WorkspaceReuse(limit).choose(layer, 256)
    assert sum(chosen.sizes) == 256 and max(chosen.sizes) <= 4


def test_a_layer_alone_has_the_gradients_of_its_parameters() -> None:
    """And those of what it reads; its loss is the sum of its output."""
    made = case("mlp", "float64").network
    node = next(node for node in made.nodes if node.type == "Gemm")
    network = alone(made, node, 5)
    under_test = executor("numpy", network)
    loss = under_test.inference_and_backprop({})["loss"]
    x, w, b = (network.parameters[name] for name in node.inputs)
    w_ = w.T if node.attributes.get("transB") else w
    assert loss == pytest.approx((x @ w_ + b).sum())
    gradients = gradients_of(under_test)
    np.testing.assert_allclose(gradients[node.inputs[2]], np.full(len(b), 5.0))
    np.testing.assert_allclose(gradients[node.inputs[0]], np.tile(w_.sum(1), (5, 1)), rtol=1e-9)


def test_what_fails_in_the_fresh_process_is_told() -> None:
    def fails() -> None:
        raise ValueError("for this reason")

    with pytest.raises(AgentError, match=r"(?s)ended with code 1:.*ValueError: for this reason"):
        in_fresh_process(fails, 60.0)
    assert in_fresh_process(lambda: 6 * 7, 60.0) == 42
