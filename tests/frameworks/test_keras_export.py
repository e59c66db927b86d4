"""Networks of Keras models: the same outputs under onnxruntime, Keras's own names, training as it was"""

from typing import Any

import numpy as np
import onnxruntime
import pytest

import d5ray.frameworks.tensorflow as d5fw
from d5ray.errors import ConfigurationError
from d5ray.networks.network import Network

keras = pytest.importorskip("keras", reason="TensorFlow is not installed: pip install 'd5ray[tensorflow]'")
layers = keras.layers
Array = np.ndarray[Any, Any]


def run(network: Network, x: Array) -> Array:
    """The network's only output, as onnxruntime computes it."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(network.to_onnx().SerializeToString(), options)
    return np.asarray(session.run(None, {next(iter(network.inputs)): x})[0])


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


def test_a_model_over_images_gives_what_keras_gives_for_any_batch() -> None:
    model = images()
    network = d5fw.network_of(model)
    x = np.random.default_rng(0).normal(size=(4, 9, 8, 3)).astype(np.float32)
    np.testing.assert_allclose(run(network, x), np.asarray(model(x)), rtol=1e-4, atol=1e-6)
    assert network.inputs["image"].shape == ("batch", 9, 8, 3)
    assert network.outputs["output"].shape == ("batch", 5)
    assert set(network.parameters) == {each.path for each in model.trainable_weights}
    # the image comes in with its channels last, and so it is flattened
    assert [each.type for each in network.nodes].count("Transpose") == 2


def test_a_model_over_sequences_gives_what_keras_gives() -> None:
    model = texts()
    network = Network.from_model(model)
    x = np.random.default_rng(0).integers(0, 11, (3, 7)).astype(np.int32)
    np.testing.assert_allclose(run(network, x), np.asarray(model(x)), rtol=1e-4, atol=1e-6)


def test_a_model_that_trains_keeps_its_dropout_and_its_moving_statistics_are_state() -> None:
    network = d5fw.training_network_of(images())
    assert dict(network.state) == {
        "norm/moving_mean": "norm_output1",
        "norm/moving_variance": "norm_output2",
    }
    node = network.node("norm")
    assert (node.attributes["training_mode"], node.attributes["momentum"]) == (1, pytest.approx(0.99))
    ratio, trains = (network.constants[name] for name in network.node("dropout").inputs[1:])
    assert (ratio.item(), trains.item()) == (pytest.approx(0.4), True)


def test_layers_that_cannot_be_nodes_are_named_all_at_once() -> None:
    given = keras.Input((4, 3))
    recurrent = layers.LSTM(2, return_sequences=True, name="memory")(given)
    model = keras.Model(given, layers.GaussianNoise(0.1, name="noise")(recurrent))
    with pytest.raises(ConfigurationError, match=r"memory \(LSTM\), noise \(GaussianNoise\); those that can"):
        d5fw.network_of(model)
    shared = layers.Dense(3, name="shared")
    with pytest.raises(ConfigurationError, match="used once"):
        d5fw.network_of(keras.Model(given, shared(shared(given))))
    with pytest.raises(ConfigurationError, match=r"begins with keras\.Input"):
        d5fw.network_of(keras.Sequential([layers.Dense(3)]))
