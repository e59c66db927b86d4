"""Nodes that cannot be, under every framework: the error names the node, and what does not fit"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError, DataError
from d5ray.ops.catalogue import GROUPS
from d5ray.ops.torch.types import tensor_of
from tests.ops.operator_rows import ints
from tests.ops.running import RUNS, place, run

FRAMEWORKS = {"numpy": "n", "torch": "t", "tensorflow": "f"}
Wrong = tuple[str, str, tuple[Any, ...], Mapping[str, Any], str]  # the frameworks that name it, and the node


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


IMAGE, ONE, COORDINATES = ones(1, 4, 5, 5), ones(1, 1, 1), "coordinate_transformation_mode"
ROWS: tuple[Wrong, ...] = (
    ("ntf", "Conv", (IMAGE, ones(2, 4, 3, 3)), {"auto_pad": "SAME"}, "auto_pad"),
    ("ntf", "Conv", (IMAGE, ones(2, 4, 3, 3)), {"strides": (1,)}, "strides"),
    ("ntf", "Conv", (IMAGE, ones(2, 4, 3, 3)), {"pads": (1, 1)}, "pads"),
    ("n", "Conv", (IMAGE, ones(2, 4, 3, 3)), {"kernel_shape": (2, 2)}, "kernel_shape"),
    ("nf", "Conv", (IMAGE, ones(2, 3, 3, 3)), {}, "3"),
    ("nf", "Conv", (IMAGE, ones(2, 4, 3, 3)), {"group": 2}, "2 groups"),
    ("n", "Conv", (IMAGE, ones(3, 2, 3, 3)), {"group": 2}, "2 groups"),
    ("nf", "Conv", (IMAGE, ones(2, 4, 3)), {}, "axes"),
    ("n", "Conv", (ones(1, 3, 2, 2), ones(4, 3, 3, 3)), {}, "window"),
    ("t", "Conv", (ones(1, 1, 2, 2, 2, 2), ones(1, 1, 1, 1, 1, 1)), {}, "4 spatial axes"),
    ("nf", "ConvTranspose", (IMAGE, ones(3, 4, 3, 3)), {}, "3"),
    ("nf", "MaxPool", (IMAGE,), {}, "kernel_shape"),
    ("ntf", "MaxPool", (IMAGE,), {"kernel_shape": (2, 2), "pads": (1, 1)}, "pads"),
    ("ntf", "LSTM", (ones(1, 1, 1), ones(1, 4, 1), ones(1, 4, 1)), {"direction": "up"}, "direction='up'"),
    ("n", "RNN", (ONE, ONE, ONE), {"direction": "bidirectional"}, "bidirectional"),
    ("ntf", "RNN", (ONE, ONE, ONE), {"activations": ("Tanhh",)}, "mean 'Tanh'"),
    ("ntf", "RNN", (ONE, ONE, ONE), {"activations": ("Tanh", "Tanh")}, "needs 1"),
    ("nf", "Attention", (ones(1, 3, 2, 2), ones(1, 2, 2, 2), ones(1, 2, 2, 2)), {}, "3 heads of queries"),
    ("nf", "Attention", (ones(1, 3, 2), ones(1, 3, 2), ones(1, 3, 2)), {}, "q_num_heads"),
    ("n", "Attention", (ones(2, 3, 8), ones(2, 5, 4), ones(2, 5, 4)), {"q_num_heads": 3, "kv_num_heads": 2},
     "3 heads"),
    ("n", "Attention", (*(ones(1, 1, 2, 2),) * 3, None, ones(1, 1, 1, 2), None), {}, "past_key"),
    ("nf", "RotaryEmbedding", (ones(1, 3, 2), ones(1, 3, 1), ones(1, 3, 1)), {}, "num_heads"),
    ("n", "RotaryEmbedding", (ones(2, 3, 4, 6), ones(2, 4, 2), ones(2, 4, 2)), {}, "last axis"),
    ("n", "MatMul", (ones(3, 4), ones(3, 4)), {}, r"\(3, 4\)"),
    ("n", "Gemm", (ones(3, 4), ones(4, 5), ones(3)), {}, r"\(3,\)"),
    ("n", "LayerNormalization", (ones(2, 3), ones(4)), {}, r"\(4,\)"),
    ("n", "LayerNormalization", (ones(2, 6, 3), ones(6)), {"axis": 3}, "axis 3"),
    ("n", "GroupNormalization", (ones(2, 6, 3), ones(6), ones(6)), {"num_groups": 4}, "4 groups"),
    ("ntf", "GroupNormalization", (ones(2, 6, 3), ones(6), ones(6)), {}, "num_groups"),
    ("n", "LpNormalization", (ones(2, 3),), {"p": 3}, "p 3"),
    ("ntf", "LRN", (ones(2, 3),), {}, "size"),
    ("n", "Einsum", (ones(2, 3), ones(3, 4)), {"equation": "ij"}, "for 2"),
    ("n", "Einsum", (ones(2, 3), ones(3, 4)), {"equation": "ij,jkl->il"}, "jkl"),
    ("n", "Einsum", (ones(2, 3), ones(3, 4)), {"equation": "ij,jk->iz"}, "z"),
    ("ntf", "Cast", (ones(2),), {"to": 999}, "999"),
    ("ntf", "Cast", (ones(2),), {"to": 8}, "element type 8"),
    ("ntf", "Cast", (ones(2),), {}, "'to'"),
    ("f", "BitShift", (np.ones(1, np.uint8),) * 2, {"direction": "UP"}, "UP"),
    ("ntf", "Pad", (ones(2), ints(1, 1)), {"mode": "mirror"}, "mirror"),
    ("n", "Pad", (ones(4), ints(3, 3, 1)), {}, "3 pads"),
    ("nf", "ScatterND", (ones(2), ints([1]), ones(1)), {"reduction": "mean"}, "mean"),
    ("ntf", "Resize", (IMAGE, None, ones(4)), {"mode": "quartic"}, "nearest"),
    ("ntf", "Resize", (IMAGE,), {}, "scales and sizes"),
    ("ntf", "Resize", (IMAGE, None, ones(4), ints(1, 4, 5, 5)), {}, "scales and sizes"),
    ("ntf", "Resize", (IMAGE, None, ones(3)), {}, "3 scales for 4 axes"),
    ("ntf", "Resize", (IMAGE, None, 2 * ones(4)), {"nearest_mode": "flor"}, "mean 'floor'"),
    ("ntf", "Resize", (IMAGE, None, 2 * ones(4)), {COORDINATES: "halfpixel"}, "mean 'half_pixel'"),
    ("ntf", "Resize", (IMAGE, None, None, ints(1, 4, 9, 9)), {"keep_aspect_ratio_policy": "keep"}, "larger"),
    ("ntf", "Resize", (IMAGE, None, None, ints(1, 4, 9, 9)), {COORDINATES: "tf_crop_and_resize"}, "8 num"),
    ("ntf", "Constant", (), {}, "value|nothing"),
    ("nt", "Constant", (), {"value_string": "a"}, "value"),
    ("n", "SoftmaxCrossEntropyLoss", (ones(2, 3), ints(0, 1, 2)), {}, r"\(2, 3\)"),
    ("nf", "NegativeLogLikelihoodLoss", (ones(2, 3), ints(0, 1)), {"reduction": "max"}, "max"),
    ("n", "NegativeLogLikelihoodLoss", (ones(2, 3), ints(0, 3)), {}, r"0\.\.2"),
    ("n", "MeanSquaredError", (ones(2, 3), ones(3)), {}, "one shape"),
    ("n", "Reshape", (ones(2, 3), ints(4)), {}, "makes"),
    ("n", "Reshape", (ones(2, 3), ints(4, -1)), {}, "4 and 6"),
    ("n", "Reshape", (ones(2), ints(2, 0)), {}, "no such axis"),
    ("n", "Squeeze", (ones(2, 3), ints(0)), {}, "makes"),
    ("n", "Unsqueeze", (ones(2), ints(0, 0)), {}, "twice"),
    ("n", "Unsqueeze", (ones(2),), {}, "axes"),
    ("n", "ReduceSum", (ones(2), ints(1)), {}, "from -1 up to 0"),
    ("n", "Transpose", (ones(2, 3),), {"perm": (0, 0)}, "once"),
    ("n", "Split", (ones(4), ints(1, 2)), {}, r"\(1, 2\)"),
    ("n", "Expand", (ones(4), ints(3)), {}, r"\(3,\)"),
    ("n", "Tile", (ones(4), ints(3, 3)), {}, "one each"),
    ("n", "TopK", (ones(4), ints(5)), {}, "5 of 4"),
    ("n", "OneHot", (ints(0), ints(1, 2), ones(2)), {}, "must have one"),
    ("n", "Slice", (ones(2), ints(0), ints(1, 2)), {}, "1 starts, 2 ends"),
    ("n", "Range", (np.array(0), np.array(3), np.array(0)), {}, "steps of 0"),
)  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_what_does_not_fit_is_named(framework: str) -> None:
    """By the frameworks of a row, when it is built, or when it is called with what does not fit."""
    for named, kind, inputs, attributes, word in ROWS:
        if FRAMEWORKS[framework] in named:
            arrays = [None if x is None else np.asarray(x) for x in inputs]
            with pytest.raises((ConfigurationError, DataError)) as caught:
                RUNS[framework](place(kind, arrays, attributes), arrays, backwards=False)
            said = str(caught.value)
            assert re.search(word, said) and re.search(rf"here \((d5ray\.)?{kind}\)", said), said


def test_an_input_that_is_missing_is_named() -> None:
    """Not by an error of Python's, in any layer."""
    for group in ("products", "convolution", "pooling", "normalization", "recurrent", "attention", "losses"):
        for kind in GROUPS[group]:
            with pytest.raises(ConfigurationError, match=f"{kind}.* must have its first"):
                run("numpy", kind)
    with pytest.raises(ConfigurationError, match="no generator"):
        RUNS["numpy"](place("RandomNormal", [], {"shape": (2,)}, random=None), [], backwards=False)


@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_indices_out_of_range_are_refused(kind: str) -> None:
    """By PyTorch; they are not taken from the other end."""
    updates = [ones(1, 3) if kind == "ScatterND" else ones(1, 1)] if kind.startswith("Scatter") else []
    with pytest.raises((IndexError, RuntimeError), match=r"out of (range|bounds)"):
        run("torch", kind, ones(3, 3), ints([5]), *updates)


def test_a_graph_says_which_input_it_must_know() -> None:
    """Axes that come out of a graph of TensorFlow's: the shape of the result would depend on them."""
    with pytest.raises(ConfigurationError, match=r"here .* reads 'x1', whose value"):
        inputs = [ones(1, 2), ints(0)]
        RUNS["tensorflow graph"](place("Squeeze", inputs), inputs, backwards=False)


def test_arrays_of_other_things_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="PyTorch has no elements of type object"):
        tensor_of(np.array(["a", None], object))
