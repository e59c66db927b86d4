"""Claims about models of JAX with agents: real as simulated, exported as evaluated, wrong ones refused"""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import d5ray as d5
from d5ray.actors.shipping import ship
from d5ray.archive.models import export_model
from d5ray.errors import AgentError, ConfigurationError

pytest.importorskip("jax", reason="JAX is not installed")
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.archive.test_models import RULES, accuracy, recorded
from tests.beside_kits import cases_of
from tests.frameworks.jax_models import MODELS, Equinox, Nnx, peer_with

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
STEPS = 12
XENT = d5.operators.SoftmaxCrossEntropyLoss()


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": Nnx, "model_kwargs": {"dropout": 0.2}, "dataset": "digits", "executor": "jax",
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 2, "batch_size": 16, "seed": 3,
        "warmup_steps": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(values | changes))


def trained(wanted: d5.Experiment, steps: int = STEPS) -> d5.Run:
    with d5.simulate(wanted) as group:
        group.train(steps, progress=False)
    return d5.Run(group.folder)


def scores_of(model: Any) -> Any:
    """Scores of images by plain JAX, of what `load_model` gives."""
    if not isinstance(model, tuple):
        return lambda images: np.asarray(model(images))
    module, state = model  # of Equinox
    return lambda images: np.asarray(jax.vmap(lambda image: module(image, state, key=None)[0])(images))


@pytest.mark.parametrize(
    "library", ["nnx", *(pytest.param(each, marks=pytest.mark.full) for each in list(MODELS)[1:])]
)
def test_the_recorded_accuracy_is_that_of_the_exported_model(library: str, tmp_path: Path) -> None:
    """By the library itself, and by PyTorch from the file's tensors; with BatchNorm and dropout."""
    run = trained(experiment(model=MODELS[library]))
    wanted = recorded(run)
    assert wanted > 0.3
    assert accuracy(scores_of(d5.load_model(run))) == pytest.approx(wanted, abs=1e-9)
    tensors = load_file(export_model(run, "safetensors", tmp_path / "model.safetensors"))
    assert tensors.keys() == run.state_dict().keys()
    if library == "equinox":  # whose statistics PyTorch has otherwise
        return
    module = peer_with(library, tensors).eval()
    with torch.no_grad():
        found = accuracy(lambda images: module(torch.from_numpy(images).double()).numpy())
    assert found == pytest.approx(wanted, abs=2e-3)


@pytest.mark.full
@pytest.mark.parametrize("name", RULES)
def test_every_rule_trains_it_and_gives_the_model_that_it_evaluated(name: str) -> None:
    """Decentralized, asynchronous, compressed, with servers; accumulated in two pieces."""
    entry = RULES[name]
    changes: dict[str, Any] = {"agents": None, "topology": entry.topology, "batch_size": 8, "accumulate": 2}
    run = trained(experiment(optimizer=entry.base, distributed=entry.rule, **changes), 6)
    assert accuracy(scores_of(d5.load_model(run))) == pytest.approx(recorded(run), abs=1e-9)


def test_a_run_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    """With statistics, and the random numbers of dropout: as a run that was never interrupted."""
    saving = experiment(evaluate=False, events=d5.events.Checkpoint(tmp_path, every_steps=3, keep=0))
    whole = trained(saving, 6)
    (first,) = tmp_path.glob("**/step-*3")
    with d5.simulate(experiment(evaluate=False), resume=first) as group:
        group.train(3, progress=False)
        found = group.state_dict()
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(found[name], value)


def test_the_state_dict_has_flaxs_own_names(tmp_path: Path) -> None:
    """Those of `nnx.state`, without keys of random numbers; ONNX and Keras are refused by name."""
    run = trained(experiment(), 1)
    module = Nnx(rngs=nnx.Rngs(0))
    own = nnx.to_flat_state(nnx.state(module, nnx.Any(nnx.Param, nnx.BatchStat)))
    assert set(run.state_dict()) == {".".join(map(str, path)) for path, _ in own}
    nnx.update(module, nnx.from_flat_state([
        (path, value.replace(jnp.asarray(run.state_dict()[".".join(path)]))) for path, value in own
    ]))  # fmt: skip
    module.eval()
    same = scores_of(module)(DIGITS.test.inputs)
    np.testing.assert_array_equal(same, scores_of(d5.load_model(run))(DIGITS.test.inputs))
    for to, words in (("onnx", "no others go to ONNX here"), ("keras", "no model of Keras")):
        with pytest.raises(ConfigurationError, match=words):
            export_model(run, to, tmp_path / f"model.{to}")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize("model", [Nnx, Equinox])
def test_real_agents_compute_what_simulated_ones_do(model: Any) -> None:
    """Two processes, different data and dropout on each: the parameters are those of the simulation."""
    wanted = experiment(model=model, evaluate=False, cpus_per_agent=0.25)
    with d5.simulate(wanted) as group:
        group.train(STEPS, progress=False)
        simulated = [group.state_dict(rank) for rank in range(2)]
    with d5.launch(wanted, quiet=True) as real:
        real.train(STEPS, progress=False)
        found = [real.state_dict(rank) for rank in range(2)]
    statistics = [name for name in found[0] if "mean" in name or "state" in name]
    assert statistics and all(np.abs(found[0][name]).min() > 1e-3 for name in statistics)
    for own, theirs in zip(found, simulated, strict=True):
        assert own.keys() == theirs.keys()
        for name, value in own.items():
            np.testing.assert_allclose(value, theirs[name], rtol=1e-4, atol=1e-5)


def test_a_module_as_it_is_counts_with_its_weights() -> None:
    """Two of equal weights are one experiment, of others another; training leaves the module as it was."""
    first, same, other = (Nnx(rngs=nnx.Rngs(seed)) for seed in (0, 0, 1))
    hashes = [experiment(model=each, model_kwargs={}).hash for each in (first, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    before = np.array(first.head.kernel[...])
    run = trained(experiment(model=first, model_kwargs={}, evaluate=False), 1)
    np.testing.assert_array_equal(before, first.head.kernel[...])
    assert not np.array_equal(before, run.state_dict()["head.kernel"])


def test_simulated_agents_train_as_a_loop_over_both_batches() -> None:
    """Two agents of 16 samples and `optax.sgd` are one of 32, in a loop of NumPy in float64."""

    def linear() -> Any:
        def init(key: Any) -> Any:
            return {"matrix": jax.random.normal(key, (64, 10)) * 0.1, "bias": jnp.zeros(10)}

        def apply(own: Any, images: Any) -> Any:
            return images.reshape(len(images), -1) @ own["matrix"] + own["bias"]

        return init, apply

    wanted = experiment(
        model=linear, model_kwargs={}, precision="float64", evaluate=False,
        optimizer=d5.optimizers.OptaxOptimizer("sgd", learning_rate=0.1, momentum=0.9),
        train_sampler=d5.samplers.OrderedSampler(),
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        group.train(20, progress=False)
        found = group.state_dict()
    with jax.enable_x64(True):
        own = {name: np.array(each, np.float64) for name, each in linear()[0](jax.random.key(3)).items()}
    velocity = dict.fromkeys(own, 0.0)
    for at in range(20):
        part = slice(32 * at, 32 * at + 32)
        images, labels = DIGITS.train.inputs[part].reshape(32, 64), DIGITS.train.labels[part]
        slopes = XENT.numpy_gradient(images @ own["matrix"] + own["bias"], labels)
        for name, slope in {"matrix": images.T @ slopes, "bias": slopes.sum(0)}.items():
            velocity[name] = 0.9 * velocity[name] + slope
            own[name] -= 0.1 * velocity[name]
    for name, value in own.items():
        np.testing.assert_allclose(found[name], value, atol=1e-6)


@pytest.mark.full
def test_classes_of_equinoxs_reach_another_process_by_value(tmp_path: Path) -> None:
    """With static fields, a dataclass's own `__init__` and a subclass, in a process that lacks their file."""
    (tmp_path / "their_models.py").write_text(THEIRS)
    sys.path.insert(0, str(tmp_path))
    try:
        theirs = importlib.import_module("their_models")
    finally:
        sys.path.remove(str(tmp_path))
    wanted = experiment(model=theirs.Model, model_kwargs={"width": 3})
    sent, out = tmp_path / "sent", tmp_path / "out.npy"
    sent.write_bytes(ship(wanted))
    done = subprocess.run(
        [sys.executable, "-c", RECEIVES, str(sent), str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    module = theirs.Model(3, key=jax.random.key(5))
    np.testing.assert_allclose(np.load(out), module(jnp.arange(3.0)), rtol=1e-5)
    assert pickle.loads(pickle.dumps(experiment())) == experiment()


THEIRS = """
import equinox as eqx
import jax
import jax.numpy as jnp

class Scale(eqx.Module):
    by: jax.Array
    power: int = eqx.field(static=True, default=2)

    def __call__(self, x):
        return x * self.by**self.power

class Layer(eqx.Module):
    scale: Scale
    act: object = eqx.field(static=True)

    def __init__(self, width, *, key):
        self.scale = Scale(jax.random.normal(key, (width,)))
        self.act = jax.nn.tanh

    def __call__(self, x):
        return self.act(self.scale(x))

class Model(Layer):
    last: eqx.nn.Linear

    def __init__(self, width, *, key):
        super().__init__(width, key=key)
        self.last = eqx.nn.Linear(width, 10, key=key)

    def __call__(self, x):
        return self.last(super().__call__(x))
"""
RECEIVES = """
import pickle, sys
import jax, jax.numpy as jnp, numpy as np
with open(sys.argv[1], "rb") as file:
    experiment = pickle.load(file)
model = experiment.model(3, key=jax.random.key(5))
twice = jax.tree.map(lambda leaf: 2 * leaf, jax.tree.map(lambda leaf: leaf / 2, model))
np.save(sys.argv[2], jax.jit(lambda module, x: module(x))(twice, jnp.arange(3.0)))
"""


# -- wrong input -------------------------------------------------------------------------------------------


class Nothing(Nnx):
    def __call__(self, images: Any) -> None:
        super().__call__(images)


class Wide(Nnx):
    def __call__(self, images: Any) -> Any:
        return jnp.concatenate([super().__call__(images)] * 2, -1)


class Narrow(Nnx):
    def __call__(self, images: Any) -> Any:
        return super().__call__(images.reshape(len(images), 1, 9, 8))


def empty() -> Any:
    return (lambda key: {}), (lambda own, images: images.reshape(len(images), -1)[:, :10])


def fails() -> Any:
    return (lambda key: {"w": jnp.ones(3)}), (lambda own, images: images @ own["w"])


def stateful() -> Any:
    return (lambda key: {"w": jnp.ones(3)}), (lambda own, images, *, state: (images, state))


def typed() -> Any:
    def apply(own: Any, images: Any) -> Any:
        return (images.reshape(len(images), -1) @ own).astype(jnp.float32)

    return (lambda key: jax.random.normal(key, (64, 10))), apply


def each(output: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(output, labels)


def stages() -> dict[str, Any]:
    return {"mesh": d5.Mesh(1, stages=2), "agents": None}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a name": ({"model": "lenet"}, "network of d5ray's, and executor='jax' runs models of Flax"),
    "a module of PyTorch": ({"model": torch.nn.Linear}, "written for torch, and executor is 'jax'"),
    "a model of Flax under PyTorch": ({"executor": "torch"}, "written for jax, .* set executor='jax'"),
    "a function that gives none": ({"model": lambda: 3}, "gives a int, and executor='jax' takes a class"),
    "nothing returned": ({"model": Nothing}, "the model returned a NoneType"),
    "too many classes": ({"model": Wide}, r"the shape \(batch, 20\), but .* over 10 classes"),
    "another shape of samples": ({"model": Narrow}, "does not take samples of shape"),
    "no parameters": ({"model": empty}, "no parameters to train"),
    "a product that does not fit": ({"model": fails}, r"does not take samples of shape \(1, 8, 8\)"),
    "state without a state": ({"model": stateful}, "takes state, and its init gave a dict"),
    "a type of its own in float64": ({"model": typed, "precision": "float64"}, "the model gives float32"),
    "float16": ({"precision": "float16"}, "jax computes in float32 and bfloat16 and float64"),
    "compilation": ({"compile": True}, "takes no compile"),
    "a loss that is no number": ({"loss": each}, r"gave a tensor \(16,\), and a loss is one number"),
    "a loss of PyTorch": ({"loss": torch.nn.CrossEntropyLoss()}, "is a loss of PyTorch's, and the executor"),
    **dict(cases_of("parallel", lambda: [("a mesh", (stages(), "whole, and the agents of a mesh hold"))])),
    "a graphics processor": ({"executor_kwargs": {"device": d5.GPUDevice()}}, "JAX finds no GPU here"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_one_error_that_says_what_to_do(name: str) -> None:
    """When the experiment is made, or by the agent that finds it."""
    changes, words = WRONG[name]
    kwargs = {} if "model" in changes else {"dropout": 0.2}
    with pytest.raises((ConfigurationError, AgentError), match=words):
        trained(experiment(**({"model_kwargs": kwargs, "evaluate": False} | changes)), 1)


def test_a_loss_that_is_not_finite_is_seen_by_the_event() -> None:
    """NaN comes out as it is, and `StopAtNaN` ends the training."""
    rule = d5.optimizers.SGD(1e30)
    run = trained(experiment(optimizer=rule, events=d5.events.StopAtNaN(), evaluate=False), 6)
    assert "NaN" in str(run.row) or run.row["status"] != "running"


def test_labels_out_of_range_name_the_sample() -> None:
    """JAX itself would compute on, with the label modulo something."""
    from d5ray.frameworks.jax import from_model  # noqa: PLC0415 - for this alone

    made = from_model(
        Nnx, {}, sample_shape=(1, 8, 8), classes=10, loss=XENT, seed=0, threads=1
    )  # fmt: skip
    labels = np.array([1, 2, 10, 3])
    for compute in (made.inference_and_backprop, made.evaluate):
        with pytest.raises(ConfigurationError, match="label 10 of sample 2 of a batch is none of 10 classes"):
            compute(DIGITS.test.inputs[:4], labels)


def test_without_jax_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that cannot import it, and an optimizer that needs it."""
    from d5ray.frameworks import jax as d5fw  # noqa: PLC0415 - for this alone

    monkeypatch.setitem(sys.modules, "jax", None)
    for needs in (d5fw.load, lambda: d5.optimizers.OptaxOptimizer("adam", learning_rate=0.1)):
        with pytest.raises(ConfigurationError, match=r"pip install 'd5ray\[jax\]'"):
            needs()
