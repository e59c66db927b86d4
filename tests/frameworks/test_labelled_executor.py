"""Claims about agents' executors over Networks: the same training in every framework, in float64 too"""

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks import executor_by_name
from d5ray.frameworks.initial_values import network_by_name
from d5ray.networks.executors.executor import Executor
from d5ray.networks.network import Network
from tests.frameworks.small_networks import FRAMEWORKS, LOSS, Array

DIGITS = d5.datasets.load_dataset("digits")
every_framework = pytest.mark.parametrize("framework", [each for each in FRAMEWORKS if each != "torch"])


def made(framework: str, model: Any = "lenet", precision: str = "float32") -> Executor:
    return executor_by_name(framework)(
        model, {}, sample_shape=(1, 8, 8), classes=10, loss=LOSS, seed=1, threads=1, precision=precision
    )


def numbers(flat: Any) -> Array:
    """A flat array of any framework in host memory."""
    of = next((each for each in ("numpy", "get") if hasattr(flat, each)), None)
    return np.array(getattr(flat, of)() if of else flat)


def batches(count: int, size: int = 16) -> list[tuple[Array, Array]]:
    inputs, labels = np.asarray(DIGITS.train.inputs), np.asarray(DIGITS.train.labels)
    return [(inputs[at * size : (at + 1) * size], labels[at * size : (at + 1) * size]) for at in range(count)]


@every_framework
@pytest.mark.parametrize("model", ["lenet", "mlp"])
def test_a_training_goes_as_under_pytorch(framework: str, model: str) -> None:
    """From the same first parameters: losses of 20 steps of SGD, the last parameters, and the evaluation."""
    under_test, reference = made(framework, model), made("torch", model)
    assert [(s.name, s.shape) for s in under_test.slots] == [(s.name, s.shape) for s in reference.slots]
    np.testing.assert_array_equal(under_test.numpy_parameters(), reference.numpy_parameters())
    for inputs, labels in batches(20):
        losses = [each.inference_and_backprop(inputs, labels) for each in (under_test, reference)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        for each in (under_test, reference):
            each.parameters -= 0.05 * each.gradients
    np.testing.assert_allclose(
        under_test.numpy_parameters(), reference.numpy_parameters(), rtol=1e-4, atol=1e-5
    )
    test = DIGITS.test
    found, expected = (
        each.evaluate(np.asarray(test.inputs), np.asarray(test.labels)) for each in (under_test, reference)
    )
    assert found.loss == pytest.approx(expected.loss, rel=1e-4)
    assert abs(found.accuracy - expected.accuracy) < 2 / len(test.labels)
    assert under_test.forward_ns > 0 and under_test.backward_ns > 0


# -- experiments -------------------------------------------------------------------------------------------


def losses(model: Any, executor: Any) -> Array:
    """Of two simulated agents, ten steps."""
    experiment = d5.Experiment(
        model=model, dataset=DIGITS, optimizer=d5.optimizers.Momentum(0.05, 0.9), agents=2, seed=1,
        executor=executor,
        evaluate=False,
    )  # fmt: skip
    with d5.simulate(experiment) as group:
        group.train(steps=10)
        rows = group.metrics().select(["rank", "step", "metric", "value"]).to_pandas()
    return np.asarray(rows[rows["metric"] == "loss"].sort_values(["rank", "step"])["value"])


def exported(path: Path) -> Path:
    network_by_name("mlp", {}, (1, 8, 8), 10, seed=1).to_onnx(path)
    return path


def test_an_experiment_trains_under_any_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, by a Network and by an ONNX file, under NumPy, TensorFlow and PyTorch: the same losses."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path / "home"))
    path = exported(tmp_path / "mlp.onnx")
    expected = losses("mlp", "torch")
    assert len(expected) == 20
    models: list[Any] = ["mlp", str(path), path, Network.from_onnx(path)]
    for model in models:
        np.testing.assert_allclose(losses(model, "numpy"), expected, rtol=1e-4)
    np.testing.assert_allclose(losses(str(path), "torch"), expected, rtol=1e-4)
    if importlib.util.find_spec("tensorflow") is not None:
        np.testing.assert_allclose(losses("mlp", "tensorflow"), expected, rtol=1e-4)


def test_a_framework_by_name_is_its_from_model() -> None:
    """So that `--set executor=numpy` chooses it; an unknown one is refused with the nearest."""
    from d5ray.frameworks.numpy import from_model  # noqa: PLC0415 - as a user does

    values: dict[str, Any] = {"model": "mlp", "dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.1)}
    assert d5.Experiment(**values, executor="numpy").executor is from_model
    with pytest.raises(ConfigurationError, match=r"executor is 'nunpy'.*did you mean 'numpy'"):
        d5.Experiment(**values, executor="nunpy")


def test_an_onnx_file_is_part_of_the_experiments_hash(tmp_path: Path) -> None:
    """By what is in it, not by its name."""
    values: dict[str, Any] = {"dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.1)}
    first, second = exported(tmp_path / "a.onnx"), exported(tmp_path / "b.onnx")
    network_by_name("mlp", {}, (1, 8, 8), 10, seed=2).to_onnx(tmp_path / "c.onnx")
    hashes = [d5.Experiment(model=str(path), **values).hash for path in (first, second, tmp_path / "c.onnx")]
    assert hashes[0] == hashes[1] != hashes[2]
    with pytest.raises(ConfigurationError, match="there is no ONNX file"):
        d5.Experiment(model="nowhere.onnx", **values)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_networks_that_agents_cannot_train_are_refused(framework: str) -> None:
    """Several inputs or outputs, other samples, and a batch of one size."""
    network = network_by_name("mlp", {}, (1, 8, 8), 10, seed=1)
    with pytest.raises(ConfigurationError, match=r"does not take samples of shape \(1, 8, 8\)"):
        made(framework, network_by_name("mlp", {}, (1, 6, 6), 10, seed=1))
    with pytest.raises(ConfigurationError, match=r"needs \(batch, 10\)"):
        made(framework, network_by_name("mlp", {}, (1, 8, 8), 9, seed=1))
    network.add_output(network.nodes[0].outputs[0])
    with pytest.raises(ConfigurationError, match="2 outputs"):
        made(framework, network)


# -- float64 ------------------------------------------------------------------------------------------------


@every_framework
def test_gradients_in_float64_agree_to_its_rounding(framework: str) -> None:
    """As do running means, with those of PyTorch's own modules: convolutions and BatchNorm."""
    executor, reference = made(framework, "resnet8", "float64"), made("torch", "resnet8", "float64")
    ((inputs, labels),) = batches(1)
    loss = reference.inference_and_backprop(inputs, labels)
    assert executor.inference_and_backprop(inputs, labels) == pytest.approx(loss, rel=1e-12)
    gradient = numbers(executor.gradients)
    assert (
        gradient.dtype == numbers(executor.buffers).dtype == numbers(executor.parameters).dtype == "float64"
    )
    np.testing.assert_allclose(gradient, numbers(reference.gradients), rtol=0, atol=1e-10)
    state, expected = executor.named_state(), reference.named_state()
    means = [name for name in state if name.endswith("running_mean")]
    assert len(means) == 9
    for name in means:
        assert expected[name].any()
        np.testing.assert_allclose(state[name], expected[name], rtol=1e-6)  # ONNX's momentum is in float32


@pytest.mark.parametrize("framework", ["torch", "numpy", pytest.param("tensorflow", marks=pytest.mark.full)])
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
