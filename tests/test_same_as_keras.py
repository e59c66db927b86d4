"""Every kind of Keras model beside Keras itself: one agent, three agents, simulated and real; or refused"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError, ValidationError
from d5ray.frameworks.tensorflow import from_model, from_native
from d5ray.ops.losses.function_loss import as_loss
from d5ray.testing import same_as_keras

tf = pytest.importorskip("tensorflow")
keras = tf.keras
layers, L2 = keras.layers, keras.regularizers.L2
OF_SCORES = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
SGD = functools.partial(keras.optimizers.SGD, learning_rate=0.1, momentum=0.5)
ADAMW = functools.partial(keras.optimizers.AdamW, learning_rate=0.01, weight_decay=0.2)
IMAGES, SEQUENCES, TOKENS = (6, 6, 2), (5, 4), (5,)
CLASSES = 3


def data(shape: tuple[int, ...]) -> d5.Dataset:
    rng = np.random.default_rng(3)
    inputs: Any = rng.standard_normal((60, *shape)).astype(np.float32)
    if shape == TOKENS:
        inputs = rng.integers(0, 11, (60, *shape)).astype(np.int32)
    labels = rng.integers(0, CLASSES, 60)
    return d5.from_arrays(inputs[:48], labels[:48], test=(inputs[48:], labels[48:]), classes=CLASSES)


Make = Callable[[], Any]


def of(shape: tuple[int, ...], *parts: Callable[[], Any]) -> tuple[tuple[int, ...], Make]:
    """A Sequential model of these layers, and what gives the scores."""

    def make() -> Any:
        kind = "int32" if shape == TOKENS else "float32"
        made = [part() for part in parts]
        return keras.Sequential(
            [keras.Input(shape, dtype=kind), *made, layers.Flatten(), layers.Dense(CLASSES)]
        )

    return shape, make


def lazily() -> Any:
    """Whose weights are made when it is called, with initializers that nobody seeded before."""

    class Late(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def build(self, shape: Any) -> None:
            self.kernel = self.add_weight(shape=(shape[-1], 4), initializer="glorot_uniform", name="kernel")
            self.start = self.add_weight(shape=(4,), initializer=lambda *_, **__: tf.random.normal((4,)))

        def call(self, inputs: Any) -> Any:
            return keras.ops.tanh(inputs @ self.kernel + self.start)

    return keras.Sequential([layers.Flatten(), Late(), layers.Dense(CLASSES)])


def penalized(inside: bool = True) -> Any:
    """A penalty that a layer's call adds, and one of what it gives."""

    class Penalized(keras.layers.Layer):  # type: ignore[misc, name-defined]
        def call(self, inputs: Any) -> Any:
            self.add_loss(0.1 * keras.ops.mean(inputs**2))
            return inputs

    dense = layers.Dense(4, activity_regularizer=L2(0.1), kernel_regularizer=L2(0.1), bias_regularizer="l1")
    block = keras.Sequential([layers.Flatten(), dense, Penalized()], name="block")
    return keras.Sequential([keras.Input(IMAGES), block, layers.Dense(CLASSES)])


def frozen() -> Any:
    model = of(IMAGES, lambda: layers.Conv2D(3, 3), layers.BatchNormalization)[1]()
    model.layers[0].trainable = model.layers[1].trainable = False
    return model


def tied() -> Any:
    given, shared = keras.Input(IMAGES), layers.Dense(72, "tanh")
    return keras.Model(given, layers.Dense(CLASSES)(shared(shared(layers.Flatten()(given)))))


def unused() -> Any:
    """A head that the loss does not see: neither decay nor momentum moves it."""

    class Spare(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.dense = layers.Flatten(), layers.Dense(CLASSES)
            self.spare = layers.Dense(2, bias_initializer="ones", name="spare")

        def build(self, shape: Any) -> None:
            self.dense.build((None, 72))
            self.spare.build((None, 72))

        def call(self, inputs: Any) -> Any:
            return self.dense(self.flat(inputs))

    return Spare()


def branching() -> Any:
    class Branching(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other = layers.Dense(CLASSES), layers.Dense(CLASSES, name="other")

        def call(self, inputs: Any, training: bool = False) -> Any:
            flat = keras.ops.reshape(inputs, (-1, 72))
            scores = self.one(flat) + (self.other(flat) if training else 0 * self.other(flat))
            for _ in range(2):
                scores = scores + 0.1 * keras.ops.tanh(scores)
            return scores

    return Branching()


def eager() -> Any:
    class Eager(keras.Model):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.dense = layers.Dense(CLASSES)

        def call(self, inputs: Any) -> Any:
            factor = float(np.abs(inputs.numpy()).max() > 1)  # NumPy's, which no graph knows
            return self.dense(keras.ops.reshape(inputs, (-1, 72))) * (1 + factor)

    made = Eager()
    made.compile(run_eagerly=True)
    return made


def compiled() -> Any:
    made = of(IMAGES, lambda: layers.Dense(4, "relu"))[1]()
    made.compile("rmsprop", "mse", jit_compile=True)
    return made


def as_it_is() -> Any:
    keras.utils.set_random_seed(4)
    return of(IMAGES, layers.BatchNormalization, lambda: layers.Dropout(0.5))[1]()


SIMPLE = {
    "Dense": of(IMAGES, lambda: layers.Dense(4, "relu")),
    "Dense without bias": of(IMAGES, lambda: layers.Dense(4, use_bias=False, kernel_initializer="he_normal")),
    "EinsumDense": of(SEQUENCES, lambda: layers.EinsumDense("abc,cd->abd", (5, 3), bias_axes="d")),
    "Conv1D": of(SEQUENCES, lambda: layers.Conv1D(3, 2, dilation_rate=2, padding="causal")),
    "Conv2D": of(IMAGES, lambda: layers.Conv2D(4, 3, strides=2, padding="same", groups=2)),
    "Conv2DTranspose": of(IMAGES, lambda: layers.Conv2DTranspose(2, 3)),
    "DepthwiseConv2D": of(IMAGES, lambda: layers.DepthwiseConv2D(3, depth_multiplier=2)),
    "SeparableConv2D": of(IMAGES, lambda: layers.SeparableConv2D(4, 3)),
    "BatchNormalization": of(
        IMAGES, lambda: layers.Conv2D(3, 3, use_bias=False), layers.BatchNormalization
    ),
    "LayerNormalization": of(SEQUENCES, layers.LayerNormalization),
    "RMSNormalization": of(SEQUENCES, layers.RMSNormalization),
    "GroupNormalization": of(IMAGES, lambda: layers.GroupNormalization(2)),
    "UnitNormalization": of(SEQUENCES, layers.UnitNormalization),
    "SpectralNormalization": of(SEQUENCES, lambda: layers.SpectralNormalization(layers.Dense(3))),
    "Dropout": of(IMAGES, lambda: layers.Dropout(0.5)),
    "SpatialDropout2D": of(IMAGES, lambda: layers.SpatialDropout2D(0.5)),
    "GaussianNoise": of(IMAGES, lambda: layers.GaussianNoise(0.5)),
    "GaussianDropout": of(IMAGES, lambda: layers.GaussianDropout(0.5)),
    "AlphaDropout": of(IMAGES, lambda: layers.AlphaDropout(0.5)),
    "RandomFlip": of(IMAGES, layers.RandomFlip),
    "PReLU": of(IMAGES, layers.PReLU),
    "LeakyReLU": of(IMAGES, lambda: layers.Dense(4), layers.LeakyReLU),
    "Embedding": of(TOKENS, lambda: layers.Embedding(11, 4)),
    "Masked": of(TOKENS, lambda: layers.Embedding(11, 4, mask_zero=True), lambda: layers.LSTM(3)),
    "SimpleRNN": of(SEQUENCES, lambda: layers.SimpleRNN(3)),
    "GRU": of(SEQUENCES, lambda: layers.GRU(3, recurrent_dropout=0.2)),
    "LSTM": of(SEQUENCES, lambda: layers.LSTM(3, kernel_regularizer=L2(0.1), return_sequences=True)),
    "Bidirectional": of(SEQUENCES, lambda: layers.Bidirectional(layers.GRU(2))),
    "TimeDistributed": of(SEQUENCES, lambda: layers.TimeDistributed(layers.Dense(2))),
    "MaxPooling2D": of(IMAGES, lambda: layers.Conv2D(3, 2), layers.MaxPooling2D),
    "Rescaling": of(IMAGES, lambda: layers.Rescaling(0.5)),
    "ZeroPadding2D": of(IMAGES, layers.ZeroPadding2D, lambda: layers.Conv2D(2, 3)),
    "UpSampling2D": of(IMAGES, layers.UpSampling2D, lambda: layers.Conv2D(2, 3)),
    "Reshape, Permute": of(SEQUENCES, lambda: layers.Permute((2, 1)), lambda: layers.Reshape((20,))),
    "of float64": (IMAGES, lambda: keras.Sequential(
        [keras.Input(IMAGES), layers.Flatten(dtype="float64"), layers.Dense(CLASSES, dtype="float64")])),
}  # fmt: skip
WHOLE: dict[str, tuple[tuple[int, ...], Any]] = {
    "penalties": (IMAGES, penalized),
    "weights made late": (IMAGES, lazily),
    "frozen": (IMAGES, frozen),
    "tied": (IMAGES, tied),
    "branching": (IMAGES, branching),
    "compiled before": (IMAGES, compiled),
    "weights without a gradient": (IMAGES, unused),
}


def attention() -> Any:
    given = keras.Input(SEQUENCES)
    mixed = layers.MultiHeadAttention(2, 3, dropout=0.2)(given, given)
    return keras.Model(given, layers.Dense(CLASSES)(layers.Flatten()(layers.Add()([given, mixed]))))


WHOLE["MultiHeadAttention"] = SEQUENCES, attention
MODELS = SIMPLE | WHOLE


SPARSE = ("Embedding", "Masked")  # Keras's Adam squares the slices of a token one by one, agents their sum
each_model = pytest.mark.parametrize("name", MODELS)


@pytest.mark.filterwarnings("ignore:Gradients do not exist for variables")  # which Keras says of them
@pytest.mark.parametrize("agents", [1, 3])
@each_model
def test_agents_train_a_model_as_keras_does(name: str, agents: int) -> None:
    """Every loss, weight and state, after three steps with momentum and weight decay."""
    shape, make = MODELS[name]
    rule = SGD if name in SPARSE else ADAMW
    same_as_keras(make, data(shape), OF_SCORES, rule, steps=3, agents=agents, tolerance=2e-5)


@pytest.mark.parametrize("make", [as_it_is, eager])
def test_a_model_that_is_given_as_it_is_keeps_its_weights(make: Make) -> None:
    """Compiled or not; what runs eagerly is not traced."""
    model = make()
    model(np.zeros((1, *IMAGES), np.float32))
    before = model.get_weights()
    same_as_keras(model, data(IMAGES), OF_SCORES, SGD)
    for own, old in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(own, old)


@pytest.mark.full
def test_real_agents_train_as_keras_does() -> None:
    shape, make = SIMPLE["Dropout"]
    same_as_keras(make, data(shape), OF_SCORES, SGD, agents=2, launched=True)


def test_what_differs_is_named() -> None:
    """By tensor and agent: an optimizer of another rate."""
    with pytest.raises(ValidationError, match="'loss' of step 1 is not Keras's"):
        same_as_keras(SIMPLE["Dense"][1], data(IMAGES), OF_SCORES, Restless(0.1))


class Restless(keras.optimizers.SGD):  # type: ignore[misc, name-defined]
    """Every one that is made has twice the rate of the one before."""

    made = 0

    def __init__(self, learning_rate: float, **more: Any) -> None:
        Restless.made += 1
        super().__init__(learning_rate * 2**Restless.made, **more)


def bound() -> Any:
    dense = layers.Dense(CLASSES, kernel_constraint="non_neg", name="bound")
    return keras.Sequential([keras.Input(IMAGES), layers.Flatten(), dense])


def mixed() -> Any:
    parts = [layers.Flatten(), layers.Dense(4, dtype="float64", name="wide"), layers.Dense(CLASSES)]
    return keras.Sequential([keras.Input(IMAGES), *parts])


def stepping(name: str) -> Make:
    def make() -> Any:
        def own(self: Any, *data: Any, **more: Any) -> Any:
            return getattr(keras.Model, name)(self, *data, **more)

        kind = type("Stepping", (keras.Sequential,), {name: own})
        return kind([keras.Input(IMAGES), layers.Flatten(), layers.Dense(CLASSES)])

    return make


REFUSED: dict[str, tuple[Make, Any, str]] = {
    "constraints": (bound, SGD, "has constraints on bound/kernel"),
    "several types": (mixed, SGD, "weights of several types .*float64: wide/kernel"),
    "train_step": (stepping("train_step"), SGD, "has a train_step of its own"),
    "compute_loss": (stepping("compute_loss"), SGD, "has a compute_loss of its own"),
    "an average for the end": (
        SIMPLE["Dense"][1], functools.partial(keras.optimizers.SGD, use_ema=True),
        "only the end of Keras's fit",
    ),
    "a scaled loss": (
        SIMPLE["Dense"][1], lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1)),
        "LossScaleOptimizer, which divides",
    ),
    "a loss that is none": (SIMPLE["Dense"][1], SGD, "give one of keras.losses"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_agents_do_not_train_is_refused(name: str) -> None:
    """By layer, before anything starts."""
    make, rule, words = REFUSED[name]
    made = rule() if name == "a scaled loss" else rule
    with pytest.raises((ConfigurationError, AgentError), match=words):
        same_as_keras(make, data(IMAGES), "mse" if "none" in name else OF_SCORES, made)


@pytest.mark.parametrize("now", [True, False])
def test_what_is_trained_is_fixed_at_the_start(now: bool) -> None:
    """A layer that is frozen or released in training, which Keras takes over at the next compile."""
    shape, make = SIMPLE["Dense"]
    model = make()
    model.layers[0].trainable = not now
    made = from_model(model, {}, sample_shape=shape, classes=3, loss=as_loss(OF_SCORES), seed=1, threads=1)
    batch = np.ones((2, *shape), np.float32), np.array([0, 1])
    made.inference_and_backprop(*batch)
    model.layers[0].trainable = now
    with pytest.raises(ConfigurationError, match=f"got trainable={now} in training"):
        made.inference_and_backprop(*batch)


def test_a_loss_of_bfloat16_is_taken_in_float32() -> None:
    """A function of one's own, too, as `compile` takes it."""
    shape, make = SIMPLE["Dense"]
    seen = []

    def loss(output: Any, labels: Any) -> Any:
        seen.append(output.dtype)
        return tf.reduce_mean(output**2)

    wanted: dict[str, Any] = {"sample_shape": shape, "classes": 3, "seed": 1, "threads": 1}
    made: Any = from_model(make, {}, loss=as_loss(loss), precision="bfloat16", **wanted)
    made.inference_and_backprop(np.ones((2, *shape), np.float32), np.array([0, 1]))
    assert made.model.layers[0].compute_dtype == "bfloat16" and set(seen) == {tf.float32}


@pytest.mark.parametrize("make", [lazily, lambda: with_random_numbers()])
def test_what_a_function_draws_follows_from_the_seed(make: Make) -> None:
    """Also what is drawn when a model is first called, and TensorFlow's own numbers; the program's go on."""
    wanted: dict[str, Any] = {"sample_shape": IMAGES, "classes": 3, "loss": as_loss(OF_SCORES), "threads": 1}
    tf.random.set_seed(9)
    expected = [float(tf.random.normal(())) for _ in range(2)][1]
    tf.random.set_seed(9)
    tf.random.normal(())
    one, same, other = (np.array(from_model(make, {}, seed=seed, **wanted).parameters) for seed in (1, 1, 2))
    assert float(tf.random.normal(())) == expected
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def with_random_numbers() -> Any:
    model = SIMPLE["Dense"][1]()
    for each in model.variables:
        each.assign(tf.random.normal(each.shape))
    return model


def same_names() -> Any:
    """Two blocks whose layers have one name, and one path."""
    given = keras.Input(IMAGES)
    blocks = [keras.Sequential([layers.Dense(CLASSES, name="dense")], name=name) for name in "ab"]
    flat = layers.Flatten()(given)
    return keras.Model(given, layers.Add()([blocks[0](flat), 2 * blocks[1](flat)]))


def test_a_native_model_trains_what_is_trainable_now() -> None:
    """Penalties are part of its loss; layers of one name have gradients of their own."""
    x, labels = data(IMAGES).train.inputs[:6], data(IMAGES).train.labels[:6]
    for make in (penalized, same_names):
        model = make()
        native = from_native(model, as_loss(OF_SCORES))
        for frozen_now in (False, True):
            model.layers[-1 if make is penalized else 2].trainable = not frozen_now
            found = native.inference_and_backprop({"input": x, "labels": labels})
            with tf.GradientTape() as tape:
                loss = OF_SCORES(labels, model(x, training=True)) + sum(model.losses)
            slopes = tape.gradient(loss, [each.value for each in model.trainable_variables])
            assert float(found["loss"]) == pytest.approx(float(loss), rel=1e-6)
            pairs = native.gradient()
            assert len({name for name, _ in pairs}) == len(slopes) > 0
            for (_, own), slope in zip(pairs, slopes, strict=True):
                np.testing.assert_allclose(native.fetch_tensors([own])[0], slope.numpy(), atol=1e-6)
