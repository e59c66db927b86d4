"""Claims about Keras models that agents train: every number is Keras's own, whoever else is in the process"""

import pickle
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.archive.models import export_model
from d5ray.errors import ConfigurationError
from d5ray.frameworks.tensorflow import from_model, trained_model
from d5ray.frameworks.tensorflow.keras_models import loaded, named
from d5ray.operators.loss import Loss
from d5ray.ops.losses.function_loss import as_loss
from d5ray.ops.tensorflow.library import tf
from tests.archive.test_models import RULES, in_onnxruntime, recorded

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras's files
keras = tf.keras
layers = keras.layers
Array = np.ndarray[Any, Any]
LOSS = d5.operators.SoftmaxCrossEntropyLoss()
RANDOM = np.random.default_rng(7)
IMAGES = RANDOM.standard_normal((60, 6, 6, 2)).astype(np.float32)
LABELS = (IMAGES.sum((1, 2, 3)) > 0).astype(np.int64) + (IMAGES[:, 0, 0, 0] > 1)


def convolutional(dropout: float = 0.0, penalty: Any = None) -> Any:
    return keras.Sequential([
        keras.Input((6, 6, 2)),
        layers.Conv2D(4, 3, use_bias=False),
        layers.BatchNormalization(),
        layers.ReLU(),
        layers.Flatten(),
        layers.Dropout(dropout),
        layers.Dense(3, kernel_regularizer=penalty),
    ])  # fmt: skip


def tied() -> Any:
    """Two of its layers are one."""
    inputs = keras.Input((6, 6, 2))
    found = layers.BatchNormalization()(layers.Dense(8)(layers.Flatten()(inputs)))
    twice = layers.Dense(8, activation="relu")
    return keras.Model(inputs, layers.Dense(3)(layers.Dropout(0.1)(twice(twice(found)))))


def executor(model: Any = convolutional, options: Any = None, shape: Any = (6, 6, 2), **more: Any) -> Any:
    wanted: dict[str, Any] = {"classes": 3, "loss": LOSS, "seed": 5, "threads": 1} | more
    return from_model(model, options or {}, sample_shape=shape, **wanted)


def experiment(model: Any = convolutional, **changes: Any) -> d5.Experiment:
    test = slice(40, 60)
    data = d5.from_arrays(IMAGES[:40], LABELS[:40], test=(IMAGES[test], LABELS[test]), classes=3)
    wanted: dict[str, Any] = {
        "model": model, "executor": "tensorflow", "dataset": data, "batch_size": 5, "agents": 2, "seed": 5,
        "optimizer": d5.optimizers.SGD(0.1), "warmup_steps": 0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(wanted | changes))


def steps_of(made: Any, batches: int, rate: float = 0.1) -> list[float]:
    """The losses of some steps of gradient descent on the flat buffers, 12 samples each."""
    losses = []
    for at in range(batches):
        own = slice(12 * (at % 5), 12 * (at % 5) + 12)
        losses.append(made.inference_and_backprop(IMAGES[own], LABELS[own]))
        made.parameters -= made.parameters.dtype.type(rate) * made.gradients
    return losses


@pytest.mark.parametrize(("precision", "bound"), [("float32", 1e-5), ("float64", 1e-12)])
def test_twenty_steps_are_those_of_keras(precision: str, bound: float) -> None:
    """Losses with penalties, weights and moving statistics, beside Keras's own variables and a tape."""
    made = executor(partial(convolutional, penalty=keras.regularizers.L2(0.05)), precision=precision)
    assert made.parameters.dtype == precision
    peer = keras.models.clone_model(made.model)
    peer.set_weights(made.model.get_weights())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for own, at in zip(steps_of(made, 20), range(20), strict=True):
        batch = slice(12 * (at % 5), 12 * (at % 5) + 12)
        with tf.GradientTape() as tape:
            scores = peer(IMAGES[batch], training=True)
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS[batch], scores)
            loss_of_peer = tf.reduce_mean(each) + sum(peer.losses)
        moved = [each.value for each in peer.trainable_variables]
        for variable, slope in zip(peer.trainable_variables, tape.gradient(loss_of_peer, moved), strict=True):
            variable.assign_sub(0.1 * slope)
        assert own == pytest.approx(float(loss_of_peer), rel=bound)
    ours = made.state_dict()
    theirs = named(peer)
    assert ours.keys() == theirs.keys()
    for name, variable in theirs.items():
        np.testing.assert_allclose(ours[name], variable.numpy(), rtol=bound, atol=bound)
    judged = made.evaluate(IMAGES, LABELS)
    scores = peer(IMAGES).numpy()
    assert judged.loss == pytest.approx(float(loss(LABELS, scores)), rel=1e-5)
    assert judged.accuracy == (scores.argmax(1) == LABELS).mean()


def test_a_model_as_it_is_keeps_its_own_weights_and_gives_them() -> None:
    given = convolutional()
    before = given.get_weights()
    made = executor(given)
    for name, variable in named(given).items():
        np.testing.assert_array_equal(made.state_dict()[name], variable.numpy())
    steps_of(made, 3)
    assert all(np.array_equal(own, old) for own, old in zip(given.get_weights(), before, strict=True))
    assert not np.array_equal(
        made.state_dict()[f"{given.layers[-1].name}/kernel"], given.layers[-1].kernel.numpy()
    )


def counting() -> Any:
    class Counting(keras.layers.Layer):  # type: ignore[misc, name-defined]
        """Counts its calls in training, in an integer that is no seed."""

        def build(self, _: Any) -> None:
            self.calls = self.add_weight(name="calls", shape=(), dtype="int32", trainable=False)

        def call(self, inputs: Any, training: bool = False) -> Any:
            if training:
                self.calls.assign(self.calls + 1)
            return inputs

    return keras.Sequential([keras.Input((6, 6, 2)), Counting(), layers.Flatten(), layers.Dense(3)])


def test_integers_that_a_model_counts_are_in_the_state_and_come_out() -> None:
    made = executor(counting)
    steps_of(made, 4)
    made.evaluate(IMAGES, LABELS)
    assert made.state_dict()["counting/calls"] == made.named_state()["counting/calls"] == 4
    out = trained_model(counting, {}, made.state_dict(), sample_shape=(6, 6, 2), classes=3, seed=5)
    assert int(named(out)["counting/calls"].numpy()) == 4
    np.testing.assert_allclose(out(IMAGES).numpy(), made.inference(IMAGES), atol=1e-6)


def nested() -> Any:
    given = keras.Input((6, 6, 2))
    inner = keras.Sequential(
        [layers.Dense(4), keras.Sequential([layers.Dense(5)], name="deeper")], name="block"
    )
    return keras.Model(given, layers.Dense(3)(inner(layers.Flatten()(given))))


@pytest.mark.parametrize("make", [convolutional, nested, lambda: keras.models.clone_model(convolutional())])
def test_names_are_those_of_a_copy(make: Any) -> None:
    """Whose own paths Keras makes otherwise."""
    model = make()
    model(np.zeros((1, 6, 6, 2), np.float32))
    copied = pickle.loads(pickle.dumps(model))
    assert list(named(copied)) == list(named(model))
    assert loaded(copied, {name: each.numpy() + 1 for name, each in named(model).items()}) is copied
    for name, each in named(model).items():
        np.testing.assert_array_equal(named(copied)[name].numpy(), each.numpy() + 1)


def two_inputs() -> Any:
    tokens, mask = keras.Input((4,), name="tokens", dtype="int32"), keras.Input((4,), name="mask")
    wide = layers.Embedding(11, 6)(tokens) * keras.ops.expand_dims(mask, -1)
    return keras.Model(
        {"tokens": tokens, "mask": mask}, {"logits": layers.Dense(3)(layers.GlobalAveragePooling1D()(wide))}
    )


def test_several_inputs_by_name_and_outputs_by_name() -> None:
    tokens = RANDOM.integers(0, 11, (12, 4)).astype(np.int32)
    mask = (RANDOM.random((12, 4)) > 0.3).astype(np.float32)
    inputs, labels = {"tokens": tokens, "mask": mask}, RANDOM.integers(0, 3, 12)
    made = executor(two_inputs, shape={"tokens": (4,), "mask": (4,)})
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with tf.GradientTape() as tape:
        expected = loss(labels, made.model(inputs, training=True)["logits"])
    slopes = tape.gradient(expected, [each.value for each in made.model.trainable_variables])
    assert made.inference_and_backprop(inputs, labels) == pytest.approx(float(expected), rel=1e-6)
    flat = np.concatenate([np.ravel(tf.convert_to_tensor(each)) for each in slopes])
    np.testing.assert_allclose(made.gradients, flat, atol=1e-7)
    with d5.simulate(experiment(two_inputs, dataset=d5.from_arrays(inputs, labels, classes=3))) as group:
        group.train(2, progress=False)
        assert isinstance(group.model(), keras.Model)


OF_PROBABILITIES = keras.losses.SparseCategoricalCrossentropy()
OF_SOME = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-100)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (OF_PROBABILITIES, OF_PROBABILITIES),
        (lambda output, _: tf.reduce_mean(output**2), lambda _, output: tf.reduce_mean(output**2)),
        (d5.operators.MaskedCrossEntropyLoss(), OF_SOME),
    ],
    ids=["of probabilities", "function", "masked"],
)
def test_losses_are_those_of_keras(loss: Any, expected: Any) -> None:
    def model() -> Any:
        return keras.Sequential([keras.Input((6, 6, 2)), layers.Flatten(), layers.Dense(3, "softmax")])

    own: Loss = as_loss(loss)
    made = executor(model, loss=own)
    labels = LABELS[:12].copy()
    if own.ignored is not None:
        labels[::3] = own.ignored
    found = made.inference_and_backprop(IMAGES[:12], labels)
    theirs = expected(labels, made.model(IMAGES[:12]))
    assert found == pytest.approx(float(theirs), rel=1e-5)
    assert made.evaluate(IMAGES[:12], labels).loss == pytest.approx(found, rel=1e-5)


def test_bfloat16_computes_short_and_keeps_float32() -> None:
    short, full = executor(precision="bfloat16"), executor()
    assert short.parameters.dtype == np.float32
    np.testing.assert_array_equal(short.parameters, full.parameters)
    assert short.model.layers[0].compute_dtype == "bfloat16"
    own, wide = steps_of(short, 3), steps_of(full, 3)
    assert own != wide
    np.testing.assert_allclose(own, wide, rtol=0.05)


def test_the_recorded_accuracy_is_that_of_the_exported_models(tmp_path: Path) -> None:
    """In plain Keras, in a file of Keras's, and in onnxruntime."""
    with d5.simulate(experiment(partial(convolutional, dropout=0.2))) as group:
        group.train(12, progress=False)
    run = d5.Run(group.folder)
    inputs, labels = IMAGES[40:], LABELS[40:]
    scores = d5.load_model(run).predict(inputs, verbose=0)
    assert (scores.argmax(1) == labels).mean() == recorded(run)
    saved = keras.models.load_model(export_model(run, "keras", tmp_path / "net.keras"))
    np.testing.assert_array_equal(saved.predict(inputs, verbose=0), scores)
    found = in_onnxruntime(export_model(run, "onnx", tmp_path / "net.onnx"))(inputs)
    np.testing.assert_allclose(found, scores, atol=1e-5)
    with pytest.raises(ConfigurationError, match=r"--to keras: let it end with \.keras"):
        export_model(run, "keras", tmp_path / "net")


@pytest.mark.full
@pytest.mark.parametrize("name", RULES)
def test_every_rule_gives_the_keras_model_that_it_evaluated(name: str, tmp_path: Path) -> None:
    """With moving statistics, Dropout, and a layer that is used twice; in Keras and onnxruntime."""
    entry = RULES[name]
    given = {"distributed": entry.rule, "topology": entry.topology, "agents": None, "optimizer": entry.base}
    with d5.simulate(experiment(tied, batch_size=3, **given)) as group:
        group.train(8, progress=False)
    run = d5.Run(group.folder)
    scores = d5.load_model(run).predict(IMAGES[40:], verbose=0)
    assert (scores.argmax(1) == LABELS[40:]).mean() == pytest.approx(recorded(run), abs=1e-9)
    found = in_onnxruntime(export_model(run, "onnx", tmp_path / "net.onnx"))(IMAGES[40:])
    np.testing.assert_allclose(found, scores, atol=1e-5)


HASHES = """
import sys
sys.argv = [""]
from tests.frameworks.test_keras_executor import convolutional, experiment, keras

keras.utils.set_random_seed(3)
print(experiment(convolutional()).hash)
"""


@pytest.mark.full
def test_equal_models_have_equal_hashes_in_every_process() -> None:
    one, other = (
        subprocess.run([sys.executable, "-c", HASHES], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    )
    assert one == other
    given = convolutional()
    before = experiment(given).hash
    given.layers[0].kernel.assign(given.layers[0].kernel + 1)
    assert experiment(given).hash != before


@pytest.mark.full
def test_real_agents_train_it_as_simulated_ones() -> None:
    for model in (partial(convolutional, dropout=0.2), convolutional()):
        wanted = experiment(model)
        with d5.simulate(wanted) as group:
            group.train(8, progress=False)
            expected = group.state_dict()
        with d5.launch(wanted) as group:
            group.train(8, progress=False)
            found = group.state_dict()
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


def nothing() -> Any:
    class Nothing(keras.Model):  # type: ignore[misc, name-defined]  # TensorFlow has no types
        def build(self, shape: Any) -> None:
            self.add_weight(shape=(2,))

        def call(self, inputs: Any) -> Any:
            return None

    return Nothing()


def no_weights() -> Any:
    return keras.Sequential([keras.Input((6, 6, 2)), layers.Flatten()])


def twins() -> Any:
    class Twins(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.parts = [layers.Dense(3, name="same") for _ in range(2)]

        def call(self, inputs: Any) -> Any:
            return sum(part(keras.ops.reshape(inputs, (-1, 72))) for part in self.parts)

    return Twins()


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (nothing, {}, "returned a NoneType, the loss needs one tensor of scores"),
        (no_weights, {}, "has no weights to train"),
        (convolutional, {"shape": (2, 6, 6)}, r"does not take samples of shape \(2, 6, 6\).*Permute"),
        (convolutional, {"classes": 4}, "needs \\(batch, 4\\)"),
        (convolutional, {"precision": "float16"}, "tensorflow computes in"),
        (dict, {}, "gives a dict, and TensorFlow trains Keras models"),
        (twins, {}, "two variables called 'same/kernel': give its layers names"),
        (convolutional(), {"precision": "bfloat16"}, "is made for float32: give the class or a function"),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_by_one_sentence(model: Any, changes: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        executor(model, **changes)


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("model", "has no form for Keras models"),
        (lambda output, labels: output, "gave a tensor .*, and a loss is one number"),
        (lambda output, labels: output.backward(), "does not take TensorFlow's tensors"),
    ],
)
def test_losses_that_are_none_are_refused_by_one_sentence(loss: Any, words: str) -> None:
    made = executor(loss=as_loss(loss))
    with pytest.raises(ConfigurationError, match=words):
        made.inference_and_backprop(IMAGES[:12], LABELS[:12])


def test_pytorch_is_told_whose_model_it_is() -> None:
    from d5ray.frameworks.torch import from_model as in_torch  # noqa: PLC0415

    for model in (convolutional, convolutional()):
        with pytest.raises(ConfigurationError, match="is one of Keras's: set executor='tensorflow'"):
            in_torch(model, {}, sample_shape=(6, 6, 2), classes=3, loss=LOSS, seed=1, threads=1)
