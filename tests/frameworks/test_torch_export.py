"""Networks of PyTorch's modules: the same outputs under onnxruntime, the same names, training as it was"""

import numpy as np
import pytest
import torch
from torch import nn

import d5ray.frameworks.torch as d5fw
from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import build
from d5ray.networks.network import Network
from tests.frameworks.small_networks import by_onnxruntime


def trained(module: nn.Module, *shape: int) -> nn.Module:
    """The module with running statistics that are not those of its beginning."""
    with torch.no_grad():
        module.train()(torch.randn(*shape, generator=torch.Generator().manual_seed(1)))
    return module


IMAGES = {"lenet": ((1, 28, 28), 10, {}), "resnet8": ((3, 32, 32), 10, {"width": 8})}


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_network_gives_what_the_module_gives_for_any_batch(name: str) -> None:
    shape, classes, options = IMAGES[name]
    module = trained(build.module(name, options, shape, classes, seed=1, threads=1), 4, *shape)
    network = Network.from_model(module, np.zeros((1, *shape), np.float32))
    x = np.random.default_rng(0).normal(size=(5, *shape)).astype(np.float32)
    expected = module.eval()(torch.from_numpy(x)).detach().numpy()
    (found,) = by_onnxruntime(network, **{next(iter(network.inputs)): x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert [each.shape for each in network.inputs.values()] == [("batch", *shape)]
    assert network.outputs["output"].shape == ("batch", classes)
    assert list(network.parameters) == [name for name, _ in module.named_parameters()]
    for key, value in module.named_parameters():
        assert np.array_equal(network.parameters[key], value.detach().numpy())


def test_a_module_that_trains_keeps_its_dropout_and_its_running_statistics_are_state() -> None:
    module = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=0.3), nn.ReLU(), nn.Dropout(0.25))
    module[0].eval()
    network = d5fw.training_network_of(module, torch.zeros(2, 4))
    assert [node.type for node in network.nodes] == ["Gemm", "BatchNormalization", "Relu", "Dropout"]
    assert dict(network.state) == {
        "1.running_mean": "1.running_mean_next",
        "1.running_var": "1.running_var_next",
    }
    normalization = network.nodes[1]
    assert normalization.attributes["training_mode"] == 1
    assert normalization.attributes["momentum"] == pytest.approx(0.7)  # ONNX says what is kept
    ratio, training = (network.constants[name] for name in network.nodes[3].inputs[1:])
    assert (ratio.item(), training.item()) == (0.25, True)
    assert list(network.parameters) == [name for name, _ in module.named_parameters()]
    assert [each.training for each in module] == [False, True, True, True]  # as they were


def test_what_cannot_be_exported_is_said_with_the_reason(capfd: pytest.CaptureFixture[str]) -> None:
    class Decomposition(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            singular: torch.Tensor = torch.linalg.svd(x)[1]
            return singular

    with pytest.raises(ConfigurationError, match=r"cannot export Decomposition .*\(4, 3\).*linalg_svd"):
        d5fw.network_of(Decomposition(), torch.zeros(4, 3))
    assert capfd.readouterr().err == ""
    with pytest.raises(ConfigurationError, match=r"is no nn\.Module"):
        d5fw.network_of("lenet", torch.zeros(4, 3))
    with pytest.raises(ConfigurationError, match="needs sample inputs"):
        d5fw.network_of(Decomposition())
