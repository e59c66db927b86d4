"""Claims about float64 under every framework: a Network's values, gradients and exchange are of that type."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks import executor_by_name
from d5ray.frameworks.initial_values import network_by_name
from d5ray.networks.executors.executor import Executor
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
FRAMEWORKS = ["torch", "numpy", pytest.param("tensorflow", marks=pytest.mark.full)]
DIGITS = d5.datasets.load_dataset("digits")


def made(framework: str, model: Any = "resnet8", **options: Any) -> Executor:
    return executor_by_name(framework)(
        model, {}, sample_shape=(3, 8, 8), classes=5, loss=SoftmaxCrossEntropyLoss(), seed=1, threads=1,
        **options,
    )  # fmt: skip


def numbers(flat: Any) -> Array:
    """A flat array of any framework in host memory."""
    return np.array(flat.numpy() if hasattr(flat, "numpy") else flat)


def batch() -> tuple[Array, Array]:
    generator = np.random.default_rng(0)
    return generator.standard_normal((6, 3, 8, 8)).astype(np.float32), generator.integers(0, 5, 6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_gradients_in_float64_agree_to_its_rounding(framework: str) -> None:
    """With those of PyTorch's own modules, of a network with convolutions and BatchNorm."""
    executor, reference = made(framework, precision="float64"), made("torch", precision="float64")
    loss = reference.inference_and_backprop(*batch())
    assert executor.inference_and_backprop(*batch()) == pytest.approx(loss, rel=1e-12)
    assert executor.parameters.dtype == reference.parameters.dtype or framework != "torch"
    gradient = numbers(executor.gradients)
    assert gradient.dtype == numbers(executor.buffers).dtype == np.float64
    np.testing.assert_allclose(gradient, numbers(reference.gradients), rtol=0, atol=1e-10)
    single = made(framework)
    single.inference_and_backprop(*batch())
    apart = np.linalg.norm(numbers(single.gradients) - gradient) / np.linalg.norm(gradient)
    assert 1e-9 < apart < 1e-4


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_network_is_widened_and_comes_out_so(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model of a run in float64 is a Network of float64, with the tensors that were trained."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    network = network_by_name("lenet", {}, (1, 8, 8), 10, seed=1)
    wanted = d5.Experiment(
        network, DIGITS, d5.optimizers.SGD(0.1), executor=framework, precision="float64", evaluate=False
    )
    with d5.simulate(wanted) as group:
        group.train(2, progress=False)
        tensors, model = group.parameters(), group.model()
    assert all(each.dtype == np.float32 for each in network.parameters.values())
    assert model.parameters.keys() == tensors.keys()
    for name, value in model.parameters.items():
        assert value.dtype == np.float64
        np.testing.assert_array_equal(value, tensors[name])


@pytest.mark.parametrize("framework", ["numpy", "tensorflow"])
@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_other_precisions_are_refused_by_name(framework: str, precision: str) -> None:
    """By the function itself, and by an experiment before anything starts."""
    said = f"precision is '{precision}', and {framework} computes in float32 and float64"
    if framework == "tensorflow":
        said += " and bfloat16"
    with pytest.raises(ConfigurationError, match=said):
        made(framework, precision=precision)
    with pytest.raises(ConfigurationError, match=said):
        d5.Experiment("lenet", DIGITS, d5.optimizers.SGD(0.1), executor=framework, precision=precision)
