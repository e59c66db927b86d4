"""LeNet, ResNet-18 and a transformer as a user of Keras writes them, and the tf.functions around them"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import numpy as np

from benchmarks.executor_overhead.measured_network import MeasuredNetwork
from d5ray.errors import ConfigurationError, nearest
from d5ray.ops.tensorflow.library import tf

Array = np.ndarray[Any, Any]
Layers = list[tuple[Any, "Turn"]]  # in the order of PyTorch's tensors, with how those become Keras's
Turn = Callable[[Iterator[Array]], list[Array]]


@final
class KerasByHand:
    """A model with its batch, channels last; see `executor_times.Side`."""

    def __init__(self, model: Any, layers: Layers, names: Sequence[str], batch: Array, labels: Array) -> None:
        self._model, self._layers, self._names = model, layers, names
        self._batch, self._labels = batch, labels
        self._variables = [each for layer, _ in layers for each in layer.trainable_variables]
        self._infer = tf.function(lambda x: model(x, training=False))
        self._train = tf.function(self._step)
        self._gradients: list[Any] = []

    def infer(self) -> Array:
        scores: Array = self._infer(tf.convert_to_tensor(self._batch)).numpy()
        return scores

    def train(self) -> float:
        x, y = tf.convert_to_tensor(self._batch), tf.convert_to_tensor(self._labels)
        loss, self._gradients = self._train(x, y)
        return float(loss)

    def _step(self, x: Any, y: Any) -> Any:
        variables = [each.value for each in self._variables]
        with tf.GradientTape() as tape:
            scores = self._model(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=scores)
            loss = tf.reduce_mean(losses)
        return loss, [tf.convert_to_tensor(each) for each in tape.gradient(loss, variables)]

    def gradients(self) -> list[Array]:
        return [each.numpy() for each in self._gradients]

    def laid_out(self, gradients: Mapping[str, Array]) -> list[Array]:
        rest = iter([gradients[name] for name in self._names])
        return [each for _, turn in self._layers for each in turn(rest)]


def side(of: MeasuredNetwork, values: Mapping[str, Array], batch: Array, labels: Array) -> KerasByHand:
    """The model with these values; running statistics, which no gradient moves, stay as Keras has them."""
    if of.network not in MODELS:
        raise ConfigurationError(f"no {of.network!r} is written by hand: {nearest(of.network, MODELS)}")
    model, layers = MODELS[of.network](of)
    names = [name for name in values if "running_" not in name and "num_batches" not in name]
    rest = iter([values[name] for name in names])
    for layer, turn in layers:
        for variable, value in zip(layer.trainable_variables, turn(rest), strict=True):
            variable.assign(value)
    last = np.ascontiguousarray(np.moveaxis(batch, 1, -1)) if batch.ndim > 2 else batch
    return KerasByHand(model, layers, names, last, labels)


def _as_they_are(count: int) -> Turn:
    return lambda rest: [next(rest) for _ in range(count)]


def _filters(biased: bool) -> Turn:
    """(out, in, height, width) as (height, width, in, out)."""
    return lambda rest: [next(rest).transpose(2, 3, 1, 0), *_as_they_are(biased)(rest)]


def _dense(rest: Iterator[Array]) -> list[Array]:
    return [next(rest).T, next(rest)]


def _behind_images(channels: int, height: int, width: int) -> Turn:
    """The first layer behind a Flatten, which has the channels last in Keras."""

    def turn(rest: Iterator[Array]) -> list[Array]:
        apart = next(rest).reshape(-1, channels, height, width).transpose(2, 3, 1, 0)
        return [apart.reshape(height * width * channels, -1), next(rest)]

    return turn


def _heads(heads: int) -> Turn:
    """Queries, keys, values in one matrix (3 · width, width), as three of (width, heads, width / heads)."""

    def turn(rest: Iterator[Array]) -> list[Array]:
        weights, biases = np.split(next(rest), 3), np.split(next(rest), 3)
        found = []
        for weight, bias in zip(weights, biases, strict=True):
            found += [weight.T.reshape(len(weight), heads, -1), bias.reshape(heads, -1)]
        weight, bias = next(rest), next(rest)
        return [*found, weight.T.reshape(heads, -1, len(bias)), bias]

    return turn


def _lenet(of: MeasuredNetwork) -> tuple[Any, Layers]:
    keras, (channels, height, width) = tf.keras, of.sample_shape
    conv1 = keras.layers.Conv2D(6, 5, padding="same", activation="relu")
    conv2 = keras.layers.Conv2D(16, 5, padding="same", activation="relu")
    dense1 = keras.layers.Dense(120, activation="relu")
    dense2 = keras.layers.Dense(84, activation="relu")
    dense3 = keras.layers.Dense(of.classes)
    pool = keras.layers.MaxPooling2D
    model = keras.Sequential([
        keras.Input((height, width, channels)), conv1, pool(2), conv2, pool(2), keras.layers.Flatten(),
        dense1, dense2, dense3,
    ])  # fmt: skip
    filters, first = _filters(biased=True), _behind_images(16, height // 4, width // 4)
    return model, [(conv1, filters), (conv2, filters), (dense1, first), (dense2, _dense), (dense3, _dense)]


@final
class _ResNet:
    """ResNet-18, with its layers in PyTorch's order."""

    def __init__(self) -> None:
        self.layers: Layers = []

    def conv(self, x: Any, channels: int, kernel: int, stride: int = 1) -> Any:
        """A convolution, normalized; what is added around an image is added at both ends."""
        layers = tf.keras.layers
        own = layers.Conv2D(channels, kernel, stride, "same" if stride == 1 else "valid", use_bias=False)
        normalized = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)
        self.layers += [(own, _filters(biased=False)), (normalized, _as_they_are(2))]
        if stride > 1 and kernel > 1:
            x = layers.ZeroPadding2D(kernel // 2)(x)
        return normalized(own(x))

    def block(self, x: Any, channels: int, stride: int) -> Any:
        layers = tf.keras.layers
        out = layers.ReLU()(self.conv(x, channels, 3, stride))
        out = self.conv(out, channels, 3)
        shortcut = x if stride == 1 else self.conv(x, channels, 1, stride)
        return layers.ReLU()(layers.Add()([out, shortcut]))


def _resnet18(of: MeasuredNetwork) -> tuple[Any, Layers]:
    layers, own = tf.keras.layers, _ResNet()
    channels, height, width = of.sample_shape
    inputs = tf.keras.Input((height, width, channels))
    x = layers.ReLU()(own.conv(inputs, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2)(layers.ZeroPadding2D(1)(x))
    for planes, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        x = own.block(own.block(x, planes, stride), planes, 1)
    last = layers.Dense(of.classes)
    outputs = last(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(inputs, outputs), [*own.layers, (last, _dense)]


@final
class _Positions(tf.keras.layers.Layer):  # type: ignore[misc]
    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=shape[1:])

    def call(self, x: Any) -> Any:
        return x + self.table


def _transformer(of: MeasuredNetwork) -> tuple[Any, Layers]:
    layers, (length,) = tf.keras.layers, of.sample_shape
    width, heads, depth = (of.options[name] for name in ("width", "heads", "depth"))
    tokens, positions = layers.Embedding(of.classes, width), _Positions()
    found: Layers = [(tokens, _as_they_are(1)), (positions, _as_they_are(1))]
    inputs = tf.keras.Input((length,), dtype="int64")
    x = positions(tokens(inputs))
    for _ in range(depth):
        first, second = layers.LayerNormalization(epsilon=1e-5), layers.LayerNormalization(epsilon=1e-5)
        attention = layers.MultiHeadAttention(heads, width // heads)
        wide, narrow = layers.Dense(4 * width, activation="gelu"), layers.Dense(width)
        y = first(x)
        x = x + attention(y, y, use_causal_mask=True)
        x = x + narrow(wide(second(x)))
        found += [
            (first, _as_they_are(2)), (attention, _heads(heads)), (second, _as_they_are(2)),
            (wide, _dense), (narrow, _dense),
        ]  # fmt: skip
    last, scores = layers.LayerNormalization(epsilon=1e-5), layers.Dense(of.classes)
    outputs = scores(last(x))
    return tf.keras.Model(inputs, outputs), [*found, (last, _as_they_are(2)), (scores, _dense)]


MODELS: Final[Mapping[str, Callable[[MeasuredNetwork], tuple[Any, Layers]]]] = {
    "lenet": _lenet, "resnet18": _resnet18, "transformer": _transformer,
}  # fmt: skip
