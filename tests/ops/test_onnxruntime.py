"""The operators of layers under every framework against onnxruntime, with attributes drawn at random"""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.ops.running import RUNS, Array, known, place

OPSET = 22  # which onnxruntime knows in full
Drawn = tuple[str, list[Array | None], dict[str, Any], int]  # type, inputs, attributes, outputs


class Draw:
    """Arrays and choices of one random generator."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def array(self, *shape: int) -> Array:
        return self._generator.standard_normal(shape).astype(np.float32)

    def one(self, *choices: Any) -> Any:
        return choices[self._generator.integers(len(choices))]

    def some(self, count: int, *choices: Any) -> list[Any]:
        return [self.one(*choices) for _ in range(count)]

    def maybe(self, *shape: int) -> Array | None:
        found: Array | None = self.one(self.array(*shape), None)
        return found


def convolution(draw: Draw) -> Drawn:
    rank, groups, pads = (
        draw.one(1, 2),
        draw.one(1, 2),
        draw.one("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"),
    )
    attributes: dict[str, Any] = {"strides": draw.some(rank, 1, 2, 3), "group": groups}
    attributes |= {"pads": draw.some(2 * rank, 0, 1, 2)} if pads == "NOTSET" else {"auto_pad": pads}
    if not pads.startswith("SAME"):  # onnxruntime does not dilate there
        attributes["dilations"] = draw.some(rank, 1, 2)
    kernel, image = draw.some(rank, 1, 2, 3), draw.some(rank, 6, 7, 8, 9)
    inputs = [draw.array(2, 2 * groups, *image), draw.array(2 * groups, 2, *kernel), draw.maybe(2 * groups)]
    return "Conv", inputs, attributes, 1


def transposed_convolution(draw: Draw) -> Drawn:
    rank, groups, stride = draw.one(1, 2), draw.one(1, 2), draw.one(1, 2, 3)
    attributes: dict[str, Any] = {
        "strides": [stride] * rank,
        "dilations": draw.some(rank, 1, 2),
        "group": groups,
        "pads": draw.some(2 * rank, 0, 1),
        "output_padding": draw.some(rank, *range(stride)),
    }
    kernel, image = draw.some(rank, 2, 3), draw.some(rank, 3, 4, 5)
    inputs = [draw.array(2, 2 * groups, *image), draw.array(2 * groups, 2, *kernel), draw.maybe(2 * groups)]
    return "ConvTranspose", inputs, attributes, 1


def pooling(draw: Draw) -> Drawn:
    kind, rank = draw.one("MaxPool", "AveragePool", "LpPool"), draw.one(1, 2)
    pads = draw.one("NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    attributes: dict[str, Any] = {"kernel_shape": draw.some(rank, 2, 3), "strides": draw.some(rank, 1, 2, 3)}
    if pads == "NOTSET":
        attributes |= {
            "pads": draw.some(2 * rank, 0, 1),
            "dilations": draw.some(rank, 1, 2),
            "ceil_mode": draw.one(0, 1),
        }
    else:
        attributes["auto_pad"] = pads
    if kind == "AveragePool":
        attributes["count_include_pad"] = draw.one(0, 1)
    if kind == "LpPool":
        attributes["p"] = draw.one(1, 2, 3)
    return kind, [draw.array(2, 2, *draw.some(rank, 6, 7, 8, 9))], attributes, 2 if kind == "MaxPool" else 1


def recurrent(draw: Draw) -> Drawn:
    kind, directions, hidden = draw.one("RNN", "GRU", "LSTM"), draw.one(1, 2), 4
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[kind] * hidden
    attributes: dict[str, Any] = {
        "hidden_size": hidden,
        "direction": draw.one("forward", "reverse") if directions == 1 else "bidirectional",
    }
    if kind == "GRU":
        attributes["linear_before_reset"] = draw.one(0, 1)
    if kind == "LSTM":
        attributes["input_forget"] = draw.one(0, 1)
    else:
        attributes["clip"] = draw.one(
            0.5, 2.0
        )  # of an LSTM's cell onnxruntime clips only what its gates take
    state = (directions, 3, hidden)
    inputs = [
        draw.array(5, 3, 2),
        draw.array(directions, gates, 2),
        draw.array(directions, gates, hidden),
        draw.maybe(directions, 2 * gates),
        draw.one(np.array([5, 2, 3], dtype=np.int32), None),
        draw.maybe(*state),
    ]
    if kind == "LSTM":
        inputs += [draw.maybe(*state), draw.maybe(directions, 3 * hidden)]
    return kind, inputs, attributes, 3 if kind == "LSTM" else 2


def resizing(draw: Draw) -> Drawn:
    mode = draw.one("nearest", "linear", "cubic")
    ways = ["half_pixel", "pytorch_half_pixel", "asymmetric", "half_pixel_symmetric"]
    attributes: dict[str, Any] = {"mode": mode}
    sizes = scales = None
    if draw.one(True, False):
        sizes = np.array([1, 2, *draw.some(2, 2, 3, 5, 8, 13)])
        ways.append("align_corners")  # of a scale onnxruntime takes the length that it is rounded down to
    else:
        scales = np.array([1, 1, *draw.some(2, 0.6, 0.8, 1.3, 2.0, 2.6)], dtype=np.float32)
    attributes["coordinate_transformation_mode"] = draw.one(*ways)
    if mode == "nearest":
        attributes["nearest_mode"] = draw.one("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "cubic":
        attributes["exclude_outside"] = draw.one(0, 1)
    if mode == "linear":
        attributes["antialias"] = draw.one(0, 1)
    return "Resize", [draw.array(1, 2, *draw.some(2, 4, 6, 7)), None, scales, sizes], attributes, 1


def normalization(draw: Draw) -> Drawn:
    x = draw.array(2, 4, 3, 5)
    axis = draw.one(-1, 1, 2, 3)
    channels = [draw.array(4), draw.array(4)]
    choices: list[Drawn] = [
        ("LRN", [x], {"size": draw.one(1, 3, 5), "alpha": 0.3, "beta": 0.6, "bias": 1.5}, 1),
        ("LpNormalization", [x], {"p": draw.one(1, 2), "axis": axis}, 1),
        ("LayerNormalization", [x, *(draw.array(*x.shape[axis:]) for _ in range(2))], {"axis": axis}, 3),
        ("InstanceNormalization", [x, *channels], {}, 1),
        ("GroupNormalization", [x, *channels], {"num_groups": draw.one(1, 2, 4)}, 1),
        ("BatchNormalization", [x, *channels, draw.array(4), draw.array(4) ** 2 + 0.1], {}, 1),
        ("MeanVarianceNormalization", [x], {}, 1),
    ]
    chosen: Drawn = draw.one(*choices)
    return chosen


def loss(draw: Draw) -> Drawn:
    kind, labels = (
        draw.one("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
        np.array([[0, 3], [1, 1]]),
    )
    attributes: dict[str, Any] = {"reduction": draw.one("mean", "sum", "none")}
    if draw.one(True, False):
        attributes["ignore_index"] = labels[0, 0] = draw.one(-1, 1)
    weights = draw.one(abs(draw.array(4)), None)
    return kind, [draw.array(2, 4, 2), labels, weights], attributes, 2 if kind[0] == "S" else 1


@pytest.mark.every_case
@pytest.mark.parametrize("framework", ["numpy", "torch", pytest.param("tensorflow", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "family", [convolution, transposed_convolution, pooling, recurrent, resizing, normalization, loss]
)
def test_onnxruntime_agrees(family: Callable[[Draw], Drawn], framework: str) -> None:
    """Values, shapes and types of all outputs, in float32."""
    for seed in range(12):
        kind, inputs, attributes, outputs = family(Draw(seed))
        while inputs[-1] is None:
            inputs.pop()
        context = place(kind, inputs, attributes, outputs)
        found = RUNS[framework](known(context, inputs), inputs, backwards=False).outputs
        for output, expected in zip(found, theirs(context.node, inputs), strict=False):
            assert output is not None and output.shape == expected.shape and output.dtype == expected.dtype
            np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-4, err_msg=f"{seed}")


def theirs(node: Any, inputs: list[Array | None]) -> list[Array]:
    """What onnxruntime makes of a network with this node alone."""
    onnxruntime = pytest.importorskip("onnxruntime")
    given = {name: each for name, each in zip(node.inputs, inputs, strict=True) if each is not None}
    graph = helper.make_graph(
        [helper.make_node(node.type, node.inputs, node.outputs, **node.attributes)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
            for name, each in given.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in node.outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, given))
