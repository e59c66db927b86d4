"""Claims about models in older operator sets: they mean what onnxruntime takes them for, or are refused"""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import defs, helper, numpy_helper, reference

import d5ray.frameworks.numpy
import d5ray.frameworks.torch
from d5ray.errors import ConfigurationError
from d5ray.networks.graph.schemas import is_supported
from d5ray.operators.nodes.node import Node

SINCE = 7  # onnxruntime knows no older set
drawn = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return drawn.standard_normal(shape).astype(np.float32)


def single(values: list[Any]) -> Any:
    return np.array(values, np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X, IMAGE, GATES = floats(2, 3, 4), floats(2, 4, 5, 5), {"RNN": 1, "GRU": 3, "LSTM": 4}
QUANTIZED, SCALES, ZEROS = (
    ints(*range(-6, 6)).astype(np.int8).reshape(3, 4),
    single([0.1, 0.2, 0.3]),
    np.zeros(3, np.int8),
)
CHANNELS = [np.abs(floats(4)) + 0.5 for _ in range(4)]
BOXES, FROM = single([[0, 0, 3, 3], [1, 1, 4, 4]]), ints(0, 1)
GRID = np.clip(floats(2, 3, 3, 2), -1.5, 1.5)
# By operator: the last set with this meaning, attributes, inputs (the first is given, the others are held).
Case = tuple[int, dict[str, Any], list[Any]]
CASES: dict[str, list[Case]] = {
    "ArgMax": [(11, {"axis": 1}, [X])],
    "ArgMin": [(11, {"axis": 1}, [X])],
    "Attention": [
        (23, {}, [floats(1, 2, 3, 4), floats(1, 2, 3, 4), floats(1, 2, 3, 4)]),
        (24, {"is_causal": 1}, [floats(1, 2, 3, 4), floats(1, 2, 3, 4), floats(1, 2, 3, 4)]),
    ],
    "AveragePool": [
        (7, {"kernel_shape": [2, 3], "pads": [1, 1, 0, 1], "count_include_pad": 1}, [IMAGE]),
        (9, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, [IMAGE]),
        (18, {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}, [IMAGE]),
        (18, {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1],
              "count_include_pad": 1}, [IMAGE]),
    ],
    "BatchNormalization": [
        (7, {}, [IMAGE, *CHANNELS]), (8, {"spatial": 1, "epsilon": 0.1}, [IMAGE, *CHANNELS]),
        (8, {"spatial": 0}, [IMAGE, *(np.abs(floats(4, 5, 5)) + 0.5 for _ in range(4))]),
        (13, {"momentum": 0.5}, [IMAGE, *CHANNELS]),
    ],
    "Cast": [(at, {"to": to}, [X * 3]) for at in (8, 12, 18, 23) for to in (6, 9, 11)],
    "CastLike": [(15, {}, [X * 3, ints(1)]), (23, {}, [X * 3, ints(1)])],
    "Clip": [(7, {"min": -0.5}, [X]), (10, {"min": -0.5, "max": 0.5}, [X]), (10, {}, [X])],
    "Constant": [],  # has no input, see below
    "DFT": [(19, {"axis": 1}, [floats(2, 6, 4, 1)]), (17, {"axis": 1, "onesided": 1}, [floats(2, 6, 4, 1)]),
            (19, {}, [floats(2, 6, 1)])],
    "DepthToSpace": [(7, {"blocksize": 2}, [IMAGE]), (10, {"blocksize": 2}, [IMAGE])],
    "DequantizeLinear": [
        (12, {}, [QUANTIZED, np.float32(0.1), np.int8(1)]),
        *((at, {"axis": 0}, [QUANTIZED, SCALES, ZEROS]) for at in (18, 20, 22)),
    ],
    "Dropout": [(7, {"ratio": 0.3}, [X]), (11, {"ratio": 0.9}, [X])],
    "GatherND": [(11, {}, [X, ints(0, 1, 1, 2).reshape(2, 2)])],
    "Gemm": [(10, {"alpha": 0.5, "transB": 1}, [floats(2, 3), floats(4, 3), floats(4)]),
             (7, {"beta": 0.5}, [floats(2, 3), floats(3, 4), floats(1)])],
    "GridSample": [(19, {"mode": mode}, [IMAGE, GRID]) for mode in ("bilinear", "nearest", "bicubic")]
    + [(16, {}, [IMAGE, GRID])],
    "GroupNormalization": [(18, {"num_groups": 2}, [IMAGE, floats(2), floats(2)])],
    **{name: [(11, {}, [floats(2, 3, 4, 2)]), (9, {"axis": 2}, [floats(2, 3, 4, 2)]),
              (12, {"axis": -3}, [floats(2, 3, 4, 2)]), (7, {"axis": 0}, [X])]
       for name in ("Softmax", "LogSoftmax", "Hardmax")},
    "LpPool": [(11, {"kernel_shape": [2, 2], "p": 3, "strides": [2, 2]}, [np.abs(IMAGE)])],
    "Max": [(7, {}, [X, X[::-1].copy()])],
    "Mean": [(7, {}, [X, X[::-1].copy()])],
    "Min": [(7, {}, [X, X[::-1].copy()])],
    "Sum": [(7, {}, [X, X[::-1].copy()])],
    "MaxPool": [(7, {"kernel_shape": [2, 2], "pads": [1, 0, 1, 0]}, [IMAGE]),
                (9, {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_LOWER"}, [IMAGE])],
    "Pad": [(10, {"pads": [0, 1, 0, 1, 0, 0], "value": 2.0}, [X]),
            (7, {"pads": [0, 1, 1] * 2, "mode": "reflect"}, [X]),
            (12, {"mode": "edge"}, [X, ints(0, 1, 0, 1, 0, 0)]),
            (17, {}, [X, ints(0, -1, 0, 1, 0, 0), np.float32(2)])],
    "PRelu": [(7, {}, [IMAGE, floats(4, 1, 1)]), (8, {}, [IMAGE, floats(1)])],
    "QuantizeLinear": [
        (12, {}, [floats(3, 4), np.float32(0.05), np.int8(1)]),
        *((at, {"axis": 0}, [floats(3, 4), SCALES, ZEROS]) for at in (18, 20, 22)),
    ],
    **{name: [(13, {"hidden_size": 3, "direction": "bidirectional"},
               [floats(4, 2, 3), floats(2, 3 * gates, 3), floats(2, 3 * gates, 3), floats(2, 6 * gates)])]
       for name, gates in GATES.items()},
    "Range": [(11, {}, [np.array(each, np.float32) for each in (0, 5, 1.5)])],
    **{name: [(17, {"axes": [1, -1]}, [np.abs(X)]), (12, {"keepdims": 0}, [np.abs(X)]),
              (7, {"axes": [0]}, [np.abs(X)])]
       for name in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
                    "ReduceMin", "ReduceProd", "ReduceSumSquare")},
    "ReduceSum": [(12, {"axes": [1, -1], "keepdims": 0}, [X]), (11, {}, [X])],
    "Reshape": [(13, {}, [X, ints(0, -1)]), (7, {}, [X, ints(4, -1)])],
    "Resize": [
        *((10, {"mode": mode}, [IMAGE, single([1, 1, *by])]) for mode in ("nearest", "linear")
          for by in ((2, 2), (1.6, 0.6), (0.5, 0.6), (1.6, 1.3))),
        *((at, {"mode": mode, **how}, [IMAGE, single([]), single([1, 1, 1.6, 0.6])])
          for at in (12, 17, 18) for mode in ("nearest", "linear", "cubic")
          for how in ({}, {"coordinate_transformation_mode": "align_corners"},
                      {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"})),
        (12, {"mode": "linear"}, [IMAGE, single([]), single([]), ints(2, 4, 7, 3)]),
        (12, {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": "nearest"},
         [IMAGE, single([]), single([1, 1, 1.6, 0.6])]),
    ],
    "RoiAlign": [(15, {"output_height": 2, "output_width": 2, "sampling_ratio": 2}, [IMAGE, BOXES, FROM]),
                 (10, {"output_height": 2, "output_width": 2, "mode": "max"}, [IMAGE, BOXES, FROM])],
    "Scatter": [(at, {"axis": 1}, [X, ints(0, 2).reshape(1, 2, 1), floats(1, 2, 1)]) for at in (9, 10)],
    "ScatterElements": [(15, {"axis": 1}, [X, ints(0, 2).reshape(1, 2, 1), floats(1, 2, 1)])],
    "ScatterND": [(15, {}, [X, ints(1, 0).reshape(2, 1), floats(2, 3, 4)])],
    "Shape": [(14, {}, [X])],
    "Slice": [(9, {"starts": [1, -3], "ends": [9, -1], "axes": [1, 2]}, [X]),
              (7, {"starts": [0, 1], "ends": [1, 2]}, [X])],
    "SpaceToDepth": [(27, {"blocksize": 2}, [floats(2, 2, 4, 6)])],
    "Split": [(12, {"axis": 1, "split": [1, 2]}, [X]), (11, {"axis": 2}, [X]), (17, {"axis": 2}, [X])],
    "Squeeze": [(12, {"axes": [0]}, [X[:1]]), (11, {}, [X[:1]])],
    "Unsqueeze": [(12, {"axes": [0, 3]}, [X])],
    "TopK": [(9, {"k": 2}, [X]), (10, {"axis": 1}, [X, ints(2)])],
    "Upsample": [
        *((at, {"mode": mode}, [IMAGE, single([1, 1, *by])]) for at in (7, 8, 9)
          for mode in ("nearest", "linear") for by in ((2, 2), (2, 3), (1.6, 1))),
    ],
}  # fmt: skip
REFUSED = re.compile(
    r"BatchNormalization 8 .*spatial': 0.*|GroupNormalization 18 .*|Resize 12 .*tf_half_pixel_for_nn.*"
    r"|Resize 10 .*nearest.*"
)
OUTPUTS = {"Split": 2, "TopK": 2, "GRU": 2, "RNN": 2, "LSTM": 3}
TABLE = [(name, *case) for name, cases in CASES.items() for case in cases]


def old_model(kind: str, version: int, attributes: dict[str, Any], inputs: list[Any]) -> onnx.ModelProto:
    if kind == "Upsample" and version < 9:  # the scales were an attribute
        attributes, inputs = attributes | {"scales": inputs[1].tolist()}, inputs[:1]
    names = ["x", *(f"held_{at}" for at in range(1, len(inputs)))]
    outputs = [f"y{at}" for at in range(OUTPUTS.get(kind, 1))]
    element = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph(
        [helper.make_node(kind, names, outputs, **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", element, list(inputs[0].shape))],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in zip(names[1:], inputs[1:], strict=True)],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    inferred = onnx.shape_inference.infer_shapes(made)
    known = {each.name: each for each in inferred.graph.output}
    for output in made.graph.output:
        output.CopyFrom(known[output.name])
    return made


def expected(model: onnx.ModelProto, given: dict[str, Any]) -> list[Any]:
    """What onnxruntime gives, or, where it lacks the operator in that set, ONNX's own reference."""
    try:
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    except Exception:
        return list(reference.ReferenceEvaluator(model).run(None, given))
    return list(session.run(None, given))


@pytest.mark.parametrize(
    ("kind", "version", "attributes", "inputs"),
    TABLE,
    ids=[f"{kind}-{version}-{at}" for at, (kind, version, *_) in enumerate(TABLE)],
)
def test_an_operator_of_an_older_set_means_what_it_meant(
    kind: str, version: int, attributes: dict[str, Any], inputs: list[Any]
) -> None:
    """Under NumPy and PyTorch, beside onnxruntime on the model as it stands; or refused with both."""
    model, given = old_model(kind, version, attributes, inputs), {"x": inputs[0]}
    wanted = expected(model, given)
    try:
        executors = [each.from_onnx(model) for each in (d5ray.frameworks.numpy, d5ray.frameworks.torch)]
    except ConfigurationError as error:
        assert REFUSED.fullmatch(f"{kind} {version} {attributes}")
        assert f"{kind} of operator set {version}" in str(error)
        return
    for executor in executors:
        for ours, theirs in zip(executor.inference(given).values(), wanted, strict=True):
            assert np.asarray(ours).dtype == theirs.dtype
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_function_of_an_older_set_than_its_model_is_refused() -> None:
    """It would be converted by ONNX alone."""
    own = helper.make_function(
        "mine", "Larger", ["x", "s"], ["y"], [helper.make_node("Upsample", ["x", "s"], ["y"], mode="linear")],
        [helper.make_opsetid("", 9)],
    )  # fmt: skip
    model = old_model("Relu", 17, {}, [IMAGE])
    model.graph.initializer.append(numpy_helper.from_array(single([1, 1, 2, 2]), "s"))
    model.graph.node[0].CopyFrom(helper.make_node("Larger", ["x", "s"], ["y0"], domain="mine"))
    model.graph.output[0].CopyFrom(helper.make_empty_tensor_value_info("y0"))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    model.functions.append(own)
    with pytest.raises(ConfigurationError, match="'Larger' of the model has a Upsample of operator set 9"):
        d5ray.frameworks.numpy.from_onnx(model)


def test_operators_within_branches_are_no_other() -> None:
    """Of an If whose condition is known."""
    version, attributes, inputs = CASES["Hardmax"][1]
    inner = old_model("Hardmax", version, attributes, inputs)
    branch = helper.make_graph(
        list(inner.graph.node), "branch", [], list(inner.graph.output), list(inner.graph.initializer)
    )
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.array(True))),
        helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=branch),
    ]
    output = helper.make_empty_tensor_value_info("out")
    output.type.CopyFrom(inner.graph.output[0].type)
    graph = helper.make_graph(nodes, "graph", list(inner.graph.input), [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    given = {"x": inputs[0]}
    (ours,) = d5ray.frameworks.numpy.from_onnx(model).inference(given).values()
    np.testing.assert_allclose(ours, expected(model, given)[0], rtol=1e-4, atol=1e-5)


def meaning(schema: Any) -> tuple[Any, ...]:
    """The names, defaults and parts of an operator's definition, without types."""
    attributes = {name: str(each.default_value) for name, each in schema.attributes.items()}
    parts = [[(each.name, str(each.option)) for each in side] for side in (schema.inputs, schema.outputs)]
    return attributes, parts, schema.deprecated


def test_the_table_has_every_operator_that_ever_changed() -> None:
    """By ONNX's own history: each that d5ray computes, or makes another of, in each meaning since set 7."""
    history: dict[str, list[Any]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            history.setdefault(schema.name, []).append(schema)
    missing = []
    for name, schemas in history.items():
        if not (is_supported(Node(name, (), ("y",), name="n")) or name in ("Upsample", "Scatter")):
            continue
        schemas.sort(key=lambda schema: schema.since_version)
        for one, other in pairwise(schemas):
            since, until = max(one.since_version, SINCE), other.since_version
            covered = any(since <= version < until for version, *_ in CASES.get(name, ()))
            if until > SINCE and meaning(one) != meaning(other) and name != "Constant" and not covered:
                missing.append((name, since, until))
    assert missing == []
