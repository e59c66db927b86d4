"""What the kernel factories say of nodes that cannot be: the node, what was found and what is expected"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node import Node
from d5ray.operators.nodes.node_context import NodeContext

IMAGE = np.ones((1, 4, 5, 5), np.float32)


def floats(*shape: int) -> Any:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(
    ("name", "attributes", "inputs", "words"),
    [
        ("Conv", {"auto_pad": "SAME"}, (IMAGE, floats(2, 4, 3, 3)), "has auto_pad 'SAME': it must be NOTSET"),
        (
            "Conv",
            {"strides": (1,)},
            (IMAGE, floats(2, 4, 3, 3)),
            "has strides (1,), but its input has 2 spatial axes",
        ),
        ("Conv", {}, (IMAGE, floats(2, 3, 3, 3)), "need images with 3 channels"),
        ("Conv", {"group": 2}, (IMAGE, floats(2, 4, 3, 3)), "in 2 groups"),
        ("Conv", {}, (IMAGE, floats(2, 4, 3)), "need the same number of axes"),
        ("ConvTranspose", {}, (IMAGE, floats(3, 4, 3, 3)), "need images with 3 channels"),
        ("MaxPool", {}, (IMAGE,), "lacks the attribute 'kernel_shape'"),
        (
            "MaxPool",
            {"kernel_shape": (2, 2), "pads": (1, 1)},
            (IMAGE,),
            "has pads (1, 1), but its input has 2 spatial axes",
        ),
        ("LSTM", {"direction": "up"}, (floats(1, 1, 1), floats(1, 4, 1), floats(1, 4, 1)), "direction='up'"),
        ("RNN", {"activations": ("Sinus",)}, (floats(1, 1, 1), floats(1, 1, 1), floats(1, 1, 1)), "'Sinus'"),
        (
            "Attention",
            {},
            (floats(1, 3, 2, 2), floats(1, 2, 2, 2), floats(1, 2, 2, 2)),
            "3 heads of queries and 2",
        ),
        (
            "Attention",
            {},
            (floats(1, 3, 2), floats(1, 3, 2), floats(1, 3, 2)),
            "lacks the attribute 'q_num_heads'",
        ),
        ("RotaryEmbedding", {}, (floats(1, 3, 2), floats(1, 3, 1), floats(1, 3, 1)), "lacks num_heads"),
        ("Einsum", {"equation": "ij,jk"}, (floats(2, 2),), "for 2 tensors, and reads 1"),
        ("Cast", {"to": 999}, (floats(2),), "names ONNX's element type 999, which d5ray does not have"),
        ("BitShift", {"direction": "UP"}, (np.ones(1, np.uint8), np.ones(1, np.uint8)), "direction='UP'"),
        ("Pad", {"mode": "mirror"}, (floats(2), np.ones(2, np.int64)), "mode='mirror'"),
        (
            "ScatterND",
            {"reduction": "mean"},
            (floats(2), np.ones((1, 1), np.int64), floats(1)),
            "reduction='mean'",
        ),
        ("MeanSquaredError", {"reduction": "max"}, (floats(2), floats(2)), "reduction='max'"),
        ("Resize", {"mode": "quartic"}, (IMAGE, None, floats(4)), "mode='quartic': give one of nearest"),
        ("Resize", {}, (IMAGE,), "needs one of its inputs scales and sizes"),
        ("Resize", {}, (IMAGE, None, floats(3)), "3 scales for 4 axes"),
        ("Constant", {}, (), "holds no value that TensorFlow knows"),
    ],
)
def test_an_error_names_the_node_and_what_is_wrong(
    name: str, attributes: Mapping[str, Any], inputs: tuple[Any, ...], words: str
) -> None:
    """When it is built, or when it is called with what does not fit; never a message of TensorFlow's."""
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    names = tuple("" if x is None else f"x{index}" for index, x in enumerate(inputs))
    node = Node(name, names, ("y",), attributes, name="the_node")
    with pytest.raises(ConfigurationError) as caught:
        FACTORIES[name](NodeContext(node))(*(None if x is None else tf.constant(x) for x in inputs))
    assert f"the node the_node ({name})" in str(caught.value)
    assert words in str(caught.value)


def test_a_graph_says_which_input_it_must_know() -> None:
    """Axes that come out of a graph: the shape of the result would depend on them."""
    from d5ray.ops.tensorflow import FACTORIES  # noqa: PLC0415
    from d5ray.ops.tensorflow.library import tf  # noqa: PLC0415

    squeeze = FACTORIES["Squeeze"](NodeContext(Node("Squeeze", ("x", "axes"), ("y",), name="the_node")))
    with pytest.raises(ConfigurationError, match=r"the node the_node .* reads 'axes', whose value"):
        tf.function(squeeze)(tf.ones((1, 2)), tf.constant([0], tf.int64))
