"""Claims about events of a network's execution: what is told when, that it is true, that nobody else pays"""

import importlib
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ValidationError
from d5ray.metrics.record.recorder import Recorder
from d5ray.networks.events.collect_values import CollectValues
from d5ray.networks.events.event import BACKWARD, FORWARD, GraphEvent, NetworkMoment, OperatorMoment
from d5ray.networks.events.not_a_number import RaiseAtNaN
from d5ray.networks.events.operator_memory import OperatorMemory
from d5ray.networks.events.operator_times import OperatorTimes
from d5ray.networks.executors.array_library import allocated_bytes
from d5ray.networks.network import Network
from d5ray.operators.nodes.node import Node
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from tests.frameworks.small_networks import FRAMEWORKS, case, error, executor, gradients_of, network_of

every_framework = pytest.mark.parametrize("framework", FRAMEWORKS)


class Diary(GraphEvent):
    """Everything that happens."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        self.moments: list[OperatorMoment] = []
        self.network: list[NetworkMoment] = []

    def before_network(self, moment: NetworkMoment) -> None:
        self.lines.append(("before", "network", moment.training))
        self.network.append(moment)

    def after_network(self, moment: NetworkMoment) -> None:
        self.lines.append(("after", "network", moment.training))
        self.network.append(moment)

    def before_operator(self, moment: OperatorMoment) -> None:
        self.lines.append(("before", moment.node.name, moment.direction))
        assert moment.elapsed_ns is None and moment.outputs == ()

    def after_operator(self, moment: OperatorMoment) -> None:
        self.lines.append(("after", moment.node.name, moment.direction))
        self.moments.append(moment)


@every_framework
def test_everything_is_told_in_its_order(framework: str) -> None:
    """The network around the operators, each before and after it ran, backwards in reverse; with times."""
    made, diary = case("mlp"), Diary()
    under_test = executor(framework, made.network, events=diary)
    names = [node.name for node in under_test.network.nodes]
    under_test.inference({"input": made.inputs})
    forward = [(when, name, FORWARD) for name in names[:-1] for when in ("before", "after")]
    assert diary.lines == [("before", "network", False), *forward, ("after", "network", False)]
    diary.lines.clear()
    under_test.inference_and_backprop(made.given)
    moving = [name for name in names if name != "0"]  # the Flatten of the input has nothing to differentiate
    expected = [
        ("before", "network", True),
        *((when, name, FORWARD) for name in names for when in ("before", "after")),
        *((when, name, BACKWARD) for name in reversed(moving) for when in ("before", "after")),
        ("after", "network", True),
    ]
    assert diary.lines == expected
    assert all(moment.elapsed_ns is not None and moment.elapsed_ns > 0 for moment in diary.moments)
    whole = diary.network[-1].elapsed_ns
    assert whole is not None and whole > sum(m.elapsed_ns or 0 for m in diary.moments[len(names) - 1 :])
    np.testing.assert_array_equal(diary.network[2].values["input"], made.inputs)
    assert list(diary.network[-1].values) == ["output", "loss"]


@every_framework
def test_the_same_values_and_gradients_are_told_in_every_framework(framework: str) -> None:
    """Tensor by tensor as NumPy tells them; and they are those of passes that nobody watches."""
    made = case("transformer", "float64")
    told = []
    for each in ("numpy", framework):
        collected = CollectValues()
        executor(each, made.network, events=collected).inference_and_backprop(made.given)
        told.append(collected)
    reference, found = told
    assert list(found.values) == list(reference.values)
    assert found.gradients.keys() == reference.gradients.keys()
    for name, value in reference.values.items():
        assert error(found.values[name], value) < 1e-8, name
    largest = max(float(np.abs(value).max()) for value in reference.gradients.values())
    for name, value in reference.gradients.items():
        assert float(np.abs(found.gradients[name] - value).max()) < 1e-8 * largest, name
    unwatched = executor(framework, made.network)  # whose linear layers are one node
    unwatched.inference_and_backprop(made.given)
    for name, value in gradients_of(unwatched).items():
        assert float(np.abs(found.gradients[name] - value).max()) < 1e-8 * largest, name


# -- what nobody listens to --------------------------------------------------------------------------------


class AroundTheNetwork(GraphEvent):
    def after_network(self, moment: NetworkMoment) -> None:
        pass


@pytest.mark.parametrize("events", [(), AroundTheNetwork()])
def test_without_listeners_the_code_has_no_events(events: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's graph holds one call for each node and nothing but."""
    made, graphs = case("mlp"), list[Any]()
    module: Any = importlib.import_module("d5ray.frameworks.torch.graph_executor")
    keep = module.graph

    def noting(*given: Any, **more: Any) -> Any:
        graphs.append(keep(*given, **more))
        return graphs[-1]

    monkeypatch.setattr(module, "graph", noting)
    for each in (events, Diary()):
        executor("torch", made.network, events=each).inference_and_backprop(made.given)
    plain, watched = ([node for node in graph.nodes if node.op == "call_function"] for graph in graphs)
    assert [node.meta["node"].name for node in plain] == [node.name for node in made.network.nodes]
    assert len(watched) > 3 * len(plain)


# -- the ready ones ----------------------------------------------------------------------------------------


@every_framework
def test_operator_times_have_a_row_for_every_operator_and_direction(framework: str) -> None:
    """In the network's order, with their calls; shares add up to one, and a recorder gets each call."""
    made = case("mlp")
    batches: list[Any] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    times = OperatorTimes(recorder)
    under_test = executor(framework, made.network, events=times)
    for _ in range(3):
        under_test.inference_and_backprop(made.given)
    rows = times.table().to_pylist()
    names = [node.name for node in under_test.network.nodes]
    assert [row["node"] for row in rows] == [*names, *(name for name in names if name != "0")]
    assert {row["calls"] for row in rows} == {3}
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    for row in rows:
        assert 0 < row["median_seconds"] <= row["total_seconds"] < 60
        assert row["direction"] in (FORWARD, BACKWARD)
    assert rows[1]["type"] == "Gemm"
    recorder.flush()
    told = [row for batch in batches for row in batch.to_pylist()]
    assert len(told) == 3 * len(rows)
    assert {row["metric"] for row in told} == {"operator_time"} and {row["unit"] for row in told} == {"s"}
    assert sum(row["value"] for row in told) == pytest.approx(sum(row["total_seconds"] for row in rows))


ELEMENTS = 1 << 20  # of float32: 4 MB
SIZE = 4 * ELEMENTS


def chain(length: int) -> Network:
    """x -> Abs -> Abs -> … of 4 MB each, and the mean of the last."""
    nodes = [Node("Abs", (f"t{at}",), (f"t{at + 1}",), name=f"abs_{at}") for at in range(length)]
    return network_of(
        Node("Mul", ("x", "w"), ("t0",)),
        *nodes,
        Node("ReduceMean", (f"t{length}",), ("loss",), {"keepdims": 0}, name="mean"),
        inputs={"x": TensorDescriptor("float32", ("n",))},
        parameters={"w": np.ones((), np.float32)},
        outputs=("loss",),
    )


@pytest.mark.skipif(allocated_bytes() is None, reason="no glibc that counts")
@every_framework
def test_tensors_are_let_go_when_nothing_needs_them(framework: str) -> None:
    """Inference through twelve operators never holds more than three tensors; in training all are needed.

    Whether TensorFlow has tensors in a pool of its own, as where oneDNN is on, or from the C library.
    """
    x = np.linspace(-1, 1, ELEMENTS, dtype=np.float32)
    memory = OperatorMemory()
    under_test = executor(framework, chain(12), events=memory)
    under_test.inference({"x": x})  # what is taken once, is
    under_test.inference({"x": x})
    peak = memory.peak
    assert peak is not None and SIZE <= peak.held_bytes < 3.5 * SIZE
    kept = {row.node: row.kept_bytes for row in memory.rows}
    assert len(kept) == 14
    assert kept["abs_3"] == pytest.approx(SIZE, abs=SIZE / 10)
    assert abs(kept["mean"]) < SIZE / 10
    under_test.inference_and_backprop({"x": x})
    assert memory.rows[-1].direction == BACKWARD
    peak = memory.peak
    assert peak is not None and peak.held_bytes > 11 * SIZE
    copies = 1 if framework == "cupy" else 0  # of the input, which lies on the device too
    assert memory.rows[-1].held_bytes < (4 + copies) * SIZE


@every_framework
def test_stop_at_nan_names_the_first_node_that_makes_one(framework: str) -> None:
    """Not the later ones, which only pass it on; nor what is fine."""
    network = network_of(
        Node("Mul", ("x", "w"), ("y",), name="scale"),
        Node("Log", ("y",), ("z",), name="logarithm"),
        Node("Exp", ("z",), ("back",), name="exponential"),
        Node("ReduceMean", ("back",), ("loss",), {"keepdims": 0}, name="mean"),
        inputs={"x": TensorDescriptor("float32", (3,))},
        parameters={"w": np.ones((), np.float32)},
        outputs=("loss",),
    )
    under_test = executor(framework, network, events=RaiseAtNaN())
    under_test.inference_and_backprop({"x": np.array([1, 2, 3], np.float32)})
    with pytest.raises(ValidationError, match=r"logarithm \(Log\), node 1 .*'z'") as caught:
        under_test.inference({"x": np.array([1, -2, 3], np.float32)})
    assert "(1,) of shape (3,)" in str(caught.value) and "forward" in str(caught.value)
    with pytest.raises(ValidationError, match="the input 'x' has NaN"):
        under_test.inference({"x": np.array([1, np.nan, 3], np.float32)})


@every_framework
def test_stop_at_nan_names_the_node_whose_gradient_is_none(framework: str) -> None:
    """√(x w) at x = 0 is fine forwards; backwards the slope of the root is ∞, and that times x is not."""
    network = network_of(
        Node("Mul", ("x", "w"), ("y",), name="scale"),
        Node("Sqrt", ("y",), ("root",), name="root"),
        Node("ReduceSum", ("root",), ("loss",), {"keepdims": 0}, name="sum"),
        inputs={"x": TensorDescriptor("float32", (2,))},
        parameters={"w": np.ones((), np.float32)},
        outputs=("loss",),
    )
    under_test = executor(framework, network, events=RaiseAtNaN())
    with pytest.raises(ValidationError) as caught:
        under_test.inference_and_backprop({"x": np.array([0, 1], np.float32)})
    for words in ("scale (Mul), node 0", "in its backward pass", "the gradient of its input 'w'"):
        assert words in str(caught.value)
