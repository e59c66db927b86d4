"""Networks of Keras models: the same outputs under onnxruntime, Keras's own names, training as it was"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import d5ray.frameworks.tensorflow as d5fw
from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from tests.frameworks.small_networks import by_onnxruntime

keras = pytest.importorskip("keras", reason="TensorFlow is not installed: pip install 'd5ray[tensorflow]'")
layers = keras.layers
Array = np.ndarray[Any, Any]


def randomized(model: Any) -> Any:
    """The model with numbers in all its weights, so that none can be confused."""
    random = np.random.default_rng(3)
    model.set_weights([random.uniform(0.2, 0.7, each.shape) for each in model.get_weights()])
    return model


def images() -> Any:
    """Every kind of layer over images, with a way around, of the functional interface."""
    given = keras.Input((9, 8, 3), name="image")
    x = layers.Conv2D(6, 3, padding="same", strides=2, activation="relu", name="conv")(given)
    y = layers.BatchNormalization(name="norm")(x)
    y = layers.DepthwiseConv2D(3, padding="same", depth_multiplier=2, name="depthwise")(y)
    y = layers.Conv2D(6, 1, name="narrow")(y)
    x = layers.Add(name="sum")([x, layers.Activation("tanh", name="tanh")(y)])
    x = layers.Dropout(0.4, name="dropout")(x)
    x = layers.Concatenate(name="both")([
        layers.MaxPooling2D(2, padding="same", name="largest")(x),
        layers.AveragePooling2D(2, padding="same", name="mean")(x),
    ])  # fmt: skip
    x = layers.Conv2D(4, 2, groups=2, dilation_rate=1, use_bias=False, name="grouped")(x)
    x = layers.Concatenate(name="ends")([
        layers.Flatten(name="flat")(layers.ReLU(max_value=6.0, name="clip")(x)),
        layers.GlobalAveragePooling2D(name="overall")(x),
    ])  # fmt: skip
    x = layers.Dense(5, activation="softmax", name="dense")(x)
    return randomized(keras.Model(given, x, name="images"))


def texts() -> Any:
    """Layers over sequences, one after another."""
    model = keras.Sequential(
        [
            keras.Input((7,), dtype="int32", name="tokens"),
            layers.Embedding(11, 6, name="embedding"),
            layers.Conv1D(8, 3, padding="same", activation="gelu", name="conv"),
            layers.LayerNormalization(epsilon=1e-3, name="norm"),
            layers.Dense(4, activation="silu", name="dense"),
            layers.Reshape((4, 7), name="reshape"),
            layers.GlobalMaxPooling1D(name="largest"),
            layers.LeakyReLU(0.1, name="leaky"),
        ]
    )
    return randomized(model)


def enlarging() -> Any:
    return randomized(keras.Sequential([
        keras.Input((5, 4, 3)),
        layers.ZeroPadding2D(((1, 2), (0, 3))),
        layers.Conv2DTranspose(4, 3, strides=2, padding="same", activation="relu"),
        layers.Conv2DTranspose(2, 2, strides=(1, 3), padding="valid"),
    ]))  # fmt: skip


def recurrent(layer: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: randomized(keras.Sequential([keras.Input((5, 3)), layer()]))


MODELS: dict[str, Callable[[], Any]] = {
    "over images": images,
    "over sequences": texts,
    "transposed convolutions, zeros around": enlarging,
    "all states of an LSTM": recurrent(lambda: layers.LSTM(4, return_sequences=True, use_bias=False)),
    "an LSTM from behind": recurrent(lambda: layers.LSTM(4, go_backwards=True)),
    "a GRU": recurrent(lambda: layers.GRU(4, return_sequences=True)),
    "a GRU that resets before": recurrent(lambda: layers.GRU(4, reset_after=False)),
    "both ways": recurrent(lambda: layers.Bidirectional(layers.LSTM(4, return_sequences=True))),
    "both ways, last states added": recurrent(lambda: layers.Bidirectional(layers.GRU(4), merge_mode="sum")),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", MODELS)
def test_a_model_gives_what_keras_gives_for_any_batch(name: str) -> None:
    """Under onnxruntime; every trained weight is a parameter, under Keras's own name."""
    model = MODELS[name]()
    network = Network.from_model(model)
    ((input_name, known),) = network.inputs.items()
    random, shape = np.random.default_rng(0), (4, *model.input_shape[1:])
    assert known.shape == ("batch", *shape[1:])
    x: Array = random.normal(size=shape).astype(np.float32)
    if name == "over sequences":
        x = random.integers(0, 11, shape).astype(np.int32)
    expected = np.asarray(model(x))
    (found,) = by_onnxruntime(network, **{input_name: x})
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert network.outputs["output"].shape == ("batch", *expected.shape[1:])
    assert set(network.parameters) == {each.path for each in model.trainable_weights}
    if name == "over images":  # the image comes in with its channels last, and so it is flattened
        assert [each.type for each in network.nodes].count("Transpose") == 2


def test_gradients_of_an_lstm_are_those_of_keras() -> None:
    """Of the sum of its states, in Keras's order of gates when they are turned back."""
    import tensorflow as tf  # noqa: PLC0415 - where there is one

    layer = layers.LSTM(4, return_sequences=True, name="memory")
    model = randomized(keras.Sequential([keras.Input((5, 3), name="x"), layer]))
    network = d5fw.network_of(model)
    network.add_node(Node("ReduceSum", ("output",), ("loss",), {"keepdims": 0}))
    x = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    variables = [each.value for each in layer.trainable_weights]
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(x))
    expected = [each.numpy() for each in tape.gradient(loss, variables)]
    executor = d5fw.from_onnx(network)
    found = executor.inference_and_backprop({"x": x}, "loss")
    np.testing.assert_allclose(found["loss"], float(loss), rtol=1e-5)
    for variable, wanted in zip(layer.trainable_weights, expected, strict=True):
        gradient = network.fetch_tensors([f"{variable.path}_grad"])[0][0]
        i, o, f, c = np.split(gradient, 4)
        back = np.concatenate([i, f, c, o])
        np.testing.assert_allclose(back.T, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (lambda: layers.LSTM(2, return_sequences=True, go_backwards=True), "gives its steps backwards"),
        (lambda: layers.SimpleRNN(2, stateful=True), "has stateful=True"),
    ],
)
def test_recurrence_that_no_node_does_is_refused(layer: Any, words: str) -> None:
    given = keras.Input(batch_shape=(2, 5, 3))
    made = layer()(given)
    with pytest.raises(ConfigurationError, match=words):
        d5fw.network_of(keras.Model(given, made))


def test_a_model_that_trains_keeps_its_dropout_and_its_moving_statistics_are_state() -> None:
    network = d5fw.training_network_of(images())
    assert dict(network.state) == {"norm/moving_mean": "norm_output1", "norm/moving_variance": "norm_output2"}
    node = network.node("norm")
    assert (node.attributes["training_mode"], node.attributes["momentum"]) == (1, pytest.approx(0.99))
    ratio, trains = (network.constants[name] for name in network.node("dropout").inputs[1:])
    assert (ratio.item(), trains.item()) == (pytest.approx(0.4), True)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel_regularizer": "l2"}, "has penalties in dense"),
        ({"bias_constraint": "non_neg"}, "has constraints in dense"),
    ],
)
def test_what_a_network_would_leave_out_of_training_is_refused(settings: Any, words: str) -> None:
    """By layer; the same model is evaluated as it is."""
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, name="dense", **settings)])
    d5fw.network_of(model)
    with pytest.raises(ConfigurationError, match=words):
        d5fw.training_network_of(model)


def test_a_layer_that_is_used_twice_is_so_in_the_network() -> None:
    """With one weight for both uses, trained too; only moving statistics of two uses cannot be kept."""
    given = keras.Input((6, 6, 2))
    conv, norm, pad = layers.Conv2D(2, 3, padding="same"), layers.BatchNormalization(), layers.ZeroPadding2D()
    found = layers.Add()([norm(conv(pad(conv(given)))), norm(conv(pad(given)))])
    model = randomized(keras.Model(given, layers.Dense(3)(layers.Flatten()(found))))
    x = np.random.default_rng(1).standard_normal((5, 6, 6, 2)).astype(np.float32)
    network = d5fw.network_of(model)
    assert len(network.parameters) == len(model.trainable_variables)
    (found,) = by_onnxruntime(network, **{next(iter(network.inputs)): x})
    np.testing.assert_allclose(found, model.predict(x, verbose=0), rtol=1e-5)
    with pytest.raises(ConfigurationError, match="is used more than once, and a network that is trained"):
        d5fw.training_network_of(model)
    tied = keras.Model(given, layers.Flatten()(conv(conv(given))))
    assert len(d5fw.training_network_of(tied).parameters) == 2


def test_layers_that_cannot_be_nodes_are_named_all_at_once() -> None:
    given = keras.Input((4, 3))
    turned = layers.Permute((2, 1), name="turned")(given)
    model = keras.Model(given, layers.GaussianNoise(0.1, name="noise")(turned))
    with pytest.raises(ConfigurationError, match=r"turned \(Permute\), noise \(GaussianNoise\); those that"):
        d5fw.network_of(model)
    with pytest.raises(ConfigurationError, match=r"'\w+' is no layer of the model 'plus'"):
        d5fw.network_of(keras.Model(given, layers.ReLU()(given + 1.0), name="plus"))
    with pytest.raises(ConfigurationError, match=r"begins with keras\.Input"):
        d5fw.network_of(keras.Sequential([layers.Dense(3)]))
