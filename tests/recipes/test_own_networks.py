"""Claims about benches of networks: in whatever form it is given, every framework runs it"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import d5ray as d5
from d5ray.actors.executors.operator_executor import OperatorExecutor
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.schema import SAMPLES
from d5ray.operators.framework import class_named
from d5ray.recipes.engine.bench.own_network import Asked, OwnNetwork
from d5ray.recipes.engine.bench.own_networks import NetworkBench

CODE = """
import numpy as np
import torch
from torch import nn

import d5ray as d5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                                    nn.Linear(4 * 8 * 8, 5))

    def forward(self, x):
        return self.layers(x)


class Tokens(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Embedding(11, 6), nn.Linear(6, 11))


class Branching(Net):  # no export follows what depends on values
    def forward(self, x):
        return super().forward(x) if float(x.sum()) < 1e9 else None


class Sized(nn.Linear):
    pass


class Unwell(Net):
    def forward(self, x):
        return super().forward(x) * float("nan")


def two_inputs():
    network = d5.Network("sums")
    a = network.add_input("a", d5.TensorDescriptor("float32", ("batch", 3)))
    b = network.add_input("b", d5.TensorDescriptor("float32", ("batch", 3)))
    network.add_node(d5.Node("Add", (a, b), ("c",)))
    network.add_output("c")
    return network


def keras_net():
    import keras

    return keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten(), keras.layers.Dense(5)])


net = Net()
three = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "own_nets.py"
    path.write_text(CODE)
    return str(path)


def bench(network: OwnNetwork, *batches: int, **changes: Any) -> NetworkBench:
    return NetworkBench(network=network, batches=batches or (2,), **{"frameworks": ("torch",), **changes})


def rows(made: NetworkBench, framework: str) -> list[dict[str, Any]]:
    """The measured rows of the first problem, by an executor as a run has it."""
    executor = OperatorExecutor(framework, "cpu", 1, "r", 0, 0, seed=1)
    executor.prepare()
    found = executor.measure(made.problems()[0], 0.0, 20.0)
    assert not found.reason
    table: list[dict[str, Any]] = pa.Table.from_batches(found.rows, SAMPLES).to_pylist()
    return [row for row in table if row["phase"] == "run"]


KINDS = ["lenet", "Net", "net", "onnx", "Tokens", "Branching"]


def asked(kind: str, file: str, tmp_path: Path, training: bool) -> OwnNetwork:
    if kind == "lenet":
        return Asked("lenet", "1x8x8", 5, training).found()
    if kind == "onnx":
        network = Asked(f"{file}:Net", "1x8x8", None, training).found().network
        assert network is not None
        network.to_onnx(tmp_path / "model.onnx")
        return Asked(str(tmp_path / "model.onnx"), training=training).found()
    return Asked(f"{file}:{kind}", "7" if kind == "Tokens" else "1x8x8", None, training).found()


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("framework", ["torch", "numpy"])
def test_every_network_is_timed(kind: str, training: bool, framework: str, file: str, tmp_path: Path) -> None:
    """Rows have the network's metric and level, and the rates that follow from its times."""
    if (kind, framework) == ("Branching", "numpy"):
        pytest.skip("only PyTorch runs it")
    made = bench(asked(kind, file, tmp_path, training), 3, frameworks=(framework,), training=training)
    found = rows(made, framework)
    times = [row["value"] for row in found if row["metric"] == "network_time"]
    rates = [row["value"] for row in found if row["metric"] == "samples_per_second"]
    np.testing.assert_allclose(np.multiply(times, rates), 3)
    assert {row["level"] for row in found} == {1}
    assert ("flop_rate" in {row["metric"] for row in found}) == (kind != "Branching")


@pytest.mark.full
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_a_keras_model_runs_as_it_is_and_as_a_network(training: bool, framework: str, file: str) -> None:
    """It knows its inputs; other frameworks run what it is exported to."""
    pytest.importorskip("keras")
    network = Asked(f"{file}:keras_net", training=training).found()
    made = bench(network, 3, frameworks=(framework,), training=training)
    (problem,) = made.problems()
    own = class_named(framework).on("cpu")
    found = problem.call(own, lambda each, low, high: own.array(np.full(each.sizes, low, each.dtype)))()
    numbers = found.values() if isinstance(found, dict) else [found]
    assert all(np.isfinite(np.asarray(each)).all() for each in numbers)
    assert problem.flops >= 2 * 3 * 64 * 5 * (3 if training else 1) - 2 * 3 * 64 * 5


@pytest.mark.full
def test_operations_are_those_that_pytorch_counts_and_what_it_does_not(file: str) -> None:
    """Its counter sees products and convolutions; beside them stand the few of the other layers."""
    (problem,) = bench(Asked(f"{file}:Net", "1x8x8").found(), 16).problems()
    assert problem.network.model is not None
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        problem.network.model.eval()(torch.zeros(16, 1, 8, 8))
    counted = counter.get_total_flops()
    assert counted <= problem.flops <= 1.2 * counted
    parameters = sum(each.numel() for each in problem.network.model.parameters())
    assert problem.moved_bytes == 4 * (16 * 64 + parameters)


def test_a_network_of_several_inputs_is_inferred_and_not_trained(file: str) -> None:
    """Each of its inputs gets a batch."""
    network = Asked(f"{file}:two_inputs").found()
    made = bench(network, 4, frameworks=("numpy", "torch"))
    assert made.problems()[0].input_bytes == 2 * 4 * 3 * 4
    assert rows(made, "numpy")
    with pytest.raises(ConfigurationError, match="is trained with one of each: measure its inference"):
        bench(network, training=True)


@pytest.mark.parametrize(
    ("text", "shape", "classes", "words"),
    [
        ("lenett", None, None, "did you mean 'lenet'"),
        ("transformer", None, None, "say by --shape how large one is"),
        ("lenet", "1x2x2x2", None, "found (1, 2, 2, 2): choose a model without convolutions"),
        ("lenet", "1xa", None, "'1xa', which is no shape"),
        ("lenet", None, 0, "classes is 0"),
        ("mlp", f"{2**39}", 3, f"mlp with --shape {2**39} and --classes 3 does not fit into the memory"),
        ("no.onnx", None, None, "there is no ONNX file 'no.onnx'"),
        ("FILE:Branch", "1x8x8", None, "did you mean 'Branching'"),
        ("FILE:Net", None, None, "say by --shape how large a sample is"),
        pytest.param(
            "FILE:Net", "1x9x9", None, "Net does not take samples of shape (1, 9, 9)", marks=pytest.mark.full
        ),
        ("FILE:Sized", "3", None, "Sized cannot be made without arguments"),
        ("FILE:three", "3", None, "three is a int: give an nn.Module"),
    ],
)
def test_what_is_no_network_is_one_clear_error(
    text: str, shape: str | None, classes: int | None, words: str, file: str
) -> None:
    with pytest.raises(ConfigurationError) as found:
        bench(Asked(text.replace("FILE", file), shape, classes).found())
    assert words in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.full
def test_a_network_that_cannot_run_is_one_clear_error(file: str) -> None:
    """NaN in its output, a framework that cannot have it, sizes of a batch that are none."""
    cases: tuple[tuple[OwnNetwork, dict[str, Any], str], ...] = (
        (Asked(f"{file}:Unwell", "1x8x8").found(), {}, "gives numbers that are not finite"),
        (Asked(f"{file}:Branching", "1x8x8").found(), {"frameworks": ("numpy",)}, "leave numpy out"),
        (Asked(f"{file}:Net", "1x8x8").found(), {"batches": (0,)}, "batch is 0"),
        (Asked(f"{file}:Net", "1x8x8").found(), {"batches": (2, 2)}, "none twice"),
    )
    for network, changes, words in cases:
        with pytest.raises(ConfigurationError, match=words):
            NetworkBench(network=network, **{"frameworks": ("torch",), **changes})


def test_a_network_of_one_size_of_batch_says_so() -> None:
    network = d5.Network("fixed")
    x = network.add_input("x", d5.TensorDescriptor("float32", (4, 3)))
    network.add_node(d5.Node("Relu", (x,), ("y",)))
    network.add_output("y")
    own = OwnNetwork("fixed", network, network, (3,), 3, network.outputs["y"])
    bench(own, 4)
    with pytest.raises(ConfigurationError, match="it takes batches of 4 alone; give --batch 4"):
        bench(own, 2)
