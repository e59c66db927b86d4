"""Branches and loops of ONNX models, decided before anything runs: against NumPy by hand"""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import d5ray.frameworks.numpy
from d5ray.errors import ConfigurationError
from d5ray.networks.graph import control_flow
from d5ray.networks.network import Network

Array = np.ndarray[Any, Any]


def value(name: str, shape: Any = (), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto], held: dict[str, Array], outputs: list[str], given: Any
) -> onnx.ModelProto:
    """Reads x, and what is given besides; some values are held."""
    made = []
    for name in outputs:
        made.append(onnx.ValueInfoProto())
        made[-1].name = name
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", (3, 2)), *given],
        made,
        [numpy_helper.from_array(v, k) for k, v in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def loop(trips: str, condition: str = "") -> onnx.NodeProto:
    """s ← s · x + i, and each s · 2 on an axis of its own."""
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["s", "x"], ["product"]),
            helper.make_node("Cast", ["i"], ["round"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["product", "round"], ["next"]),
            helper.make_node("Add", ["next", "next"], ["twice"]),
            helper.make_node("Less", ["i", "last"], ["again"]),
        ],
        "body",
        [value("i", (), TensorProto.INT64), value("before", (), TensorProto.BOOL), value("s", (3, 2))],
        [value("again", (), TensorProto.BOOL), value("next", (3, 2)), value("twice", (3, 2))],
    )
    return helper.make_node("Loop", [trips, condition, "x"], ["s_end", "all"], body=body, name="rounds")


def run(made: onnx.ModelProto, inputs: dict[str, Array]) -> dict[str, Array]:
    """Under NumPy; what is decided before anything runs is so for every framework."""
    return d5ray.frameworks.numpy.from_onnx(Network.from_onnx(made)).inference(inputs)


X = np.array([[0.5, -1.0], [2.0, 0.25], [-0.5, 1.5]], np.float32)


@pytest.mark.parametrize("last", [99, 2])
def test_a_loop_runs_as_often_as_its_constants_say(last: int) -> None:
    """Five rounds, or fewer where the condition ends it; nothing of control flow is left."""
    held = {"trips": np.array(5), "last": np.array(last), "go": np.array(True)}
    made = model([loop("trips", "go")], held, ["s_end", "all"], [])
    assert {node.type for node in Network.from_onnx(made).nodes}.isdisjoint({"Loop"})
    s, every = X, []
    for i in range(5):
        s = s * X + i
        every.append(2 * s)
        if i >= last:
            break
    found = run(made, {"x": X})
    np.testing.assert_allclose(found["s_end"], s, rtol=1e-6)
    np.testing.assert_allclose(found["all"], np.stack(every), rtol=1e-6)


@pytest.mark.parametrize("backwards", [0, 1])
def test_a_scan_goes_along_an_axis_of_known_length(backwards: int) -> None:
    """Sums of the rows so far, from either end; the outer graph's tensors are seen from within."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["sum", "row"], ["more"]),
            helper.make_node("Mul", ["more", "scale"], ["scaled"]),
        ],
        "body",
        [value("sum", (2,)), value("row", (2,))],
        [value("more", (2,)), value("scaled", (2,))],
    )
    scan = helper.make_node(
        "Scan",
        ["zero", "x"],
        ["total", "sums"],
        body=body,
        num_scan_inputs=1,
        scan_input_directions=[backwards],
    )
    held = {"zero": np.zeros(2, np.float32), "scale": np.array(3, np.float32)}
    found = run(model([scan], held, ["total", "sums"], []), {"x": X})
    rows = X[::-1] if backwards else X
    np.testing.assert_allclose(found["total"], X.sum(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found["sums"], 3 * np.cumsum(rows, axis=0), rtol=1e-6)


@pytest.mark.parametrize("least", [2, 4])
def test_a_branch_is_taken_by_what_sizes_say(least: int) -> None:
    """x has three rows."""
    branches = {
        f"{which}_branch": helper.make_graph(
            [helper.make_node(kind, ["x"], ["made"])], which, [], [value("made", (3, 2))]
        )
        for which, kind in (("then", "Neg"), ("else", "Abs"))
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Squeeze", ["rows"], ["count"]),
        helper.make_node("GreaterOrEqual", ["count", "least"], ["many"]),
        helper.make_node("If", ["many"], ["y"], **branches),
    ]
    found = run(model(nodes, {"least": np.array(least)}, ["y"], []), {"x": X})["y"]
    np.testing.assert_array_equal(found, -X if least <= 3 else np.abs(X))


def test_what_only_a_run_decides_is_refused_by_name() -> None:
    """A number of rounds that is an input."""
    held = {"last": np.array(9)}
    made = model([loop("trips")], held, ["s_end"], [value("trips", (), TensorProto.INT64)])
    with pytest.raises(
        ConfigurationError, match=r"rounds \(Loop\) .* number of its rounds 'trips' is not known"
    ):
        Network.from_onnx(made)


def test_a_loop_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not written out for ever."""
    monkeypatch.setattr(control_flow, "MOST_NODES", 500)
    held = {"trips": np.array(10**9), "last": np.array(10**10), "go": np.array(True)}
    with pytest.raises(ConfigurationError, match="more than 500 nodes when they are written out"):
        Network.from_onnx(model([loop("trips", "go")], held, ["s_end"], []))
