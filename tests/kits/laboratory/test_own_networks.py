"""Claims about benches of networks: in whatever form it is given, every framework runs it"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import d5ray as d5
from d5ray.actors.executors.operator_executor import OperatorExecutor
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.bench.own_network import Asked, OwnNetwork
from d5ray.kits.laboratory.bench.own_networks import NetworkBench
from tests.kits.laboratory.comparing import check_rates, measured_rows

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


class Unwell(Net):
    def forward(self, x):
        return super().forward(x) * float("nan")


class Branching(Net):  # no export follows what depends on values
    def forward(self, x):
        return super().forward(x) if float(x.sum()) < 1e9 else None


def two_inputs():
    network = d5.Network("sums")
    a = network.add_input("a", d5.TensorDescriptor("float32", ("batch", 3)))
    b = network.add_input("b", d5.TensorDescriptor("float32", ("batch", 3)))
    network.add_node(d5.Node("Add", (a, b), ("c",)))
    network.add_output("c")
    return network


net = Net()
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
    return measured_rows(OperatorExecutor(framework, "cpu", 1, "r", 0, 0, seed=1), made.problems()[0])


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
    check_rates(found, "network_time", "samples_per_second", 3)
    assert {row["level"] for row in found} == {1}
    assert ("flop_rate" in {row["metric"] for row in found}) == (kind != "Branching")


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
        ("no.onnx", None, None, "there is no ONNX file 'no.onnx'"),
        ("FILE:Branch", "1x8x8", None, "did you mean 'Branching'"),
        ("FILE:Unwell", "1x8x8", None, "gives numbers that are not finite"),
        ("FILE:Net", None, None, "say by --shape how large a sample is"),
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
@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("Branching", {"frameworks": ("numpy",)}, "leave numpy out"),
        ("Net", {"batches": (0,)}, "batch is 0"),
        ("Net", {"batches": (2, 2)}, "none twice"),
    ],
)
def test_a_network_that_cannot_run_is_one_clear_error(
    name: str, changes: dict[str, Any], words: str, file: str
) -> None:
    """A framework that cannot have it, sizes of a batch that are none."""
    network = Asked(f"{file}:{name}", "1x8x8").found()
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


OF_JAX = """
import equinox as eqx
import jax
import jax.numpy as jnp
import torch
from flax import linen, nnx

torch.manual_seed(0)
TORCH = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 5))
WEIGHTS = [jnp.asarray(each.detach().numpy()) for each in TORCH.parameters()]


def hidden(w, b, v, c, x):
    return jax.nn.relu(x @ w.T + b) @ v.T + c


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.weights = nnx.data([nnx.Param(each) for each in WEIGHTS])

    def __call__(self, x):
        return hidden(*[each[...] for each in self.weights], x)


class Linen(linen.Module):
    @linen.compact
    def __call__(self, x):
        return hidden(*[self.param(str(at), lambda _, w=w: w) for at, w in enumerate(WEIGHTS)], x)


class Eqx(eqx.Module):
    weights: list

    def __call__(self, x):
        return hidden(*self.weights, x)


def made(key):
    return Eqx(list(WEIGHTS))


class Tokens(nnx.Module):
    def __init__(self, rngs):
        self.embedded = nnx.Embed(11, 5, rngs=rngs)

    def __call__(self, tokens):
        return self.embedded(tokens)


pair = (lambda key: list(WEIGHTS), lambda weights, x: hidden(*weights, x))
"""


@pytest.fixture
def of_jax(tmp_path: Path) -> str:
    for package in ("flax", "equinox"):
        pytest.importorskip(package, reason="d5ray[jax] is not installed")
    path = tmp_path / "of_jax.py"
    path.write_text(OF_JAX)
    return str(path)


@pytest.mark.parametrize("name", ["Nnx", "Linen", "made", "pair"])
def test_a_model_of_jax_is_measured_at_the_numbers_of_pytorch(name: str, of_jax: str) -> None:
    """A class, a function that makes one, a pair of functions: its output, and in training its loss."""
    x = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    labels = np.arange(6) % 5
    for wanted in (None, labels):
        found = []
        for model, framework in ((name, "jax"), ("TORCH", "torch")):
            own = Asked(f"{of_jax}:{model}", "8", None, wanted is not None).found()
            found.append(np.asarray(own.call(framework, "cpu", 1, 0, {"input": x}, wanted)()))
            made = bench(own, 6, frameworks=(framework,), training=wanted is not None)
            assert {row["level"] for row in rows(made, framework)} == {1}
        np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_a_model_of_jax_may_take_tokens(of_jax: str) -> None:
    """Which are drawn as such."""
    own = Asked(f"{of_jax}:Tokens", "7").found()
    (problem,) = bench(own, 3, frameworks=("jax",)).problems()
    assert problem.inputs["input"] == d5.TensorDescriptor("int64", (3, 7))
    assert problem.describe()["output"] == [3, 7, 5]


def test_jax_runs_its_own_models_alone(of_jax: str) -> None:
    """They are refused under others, and other networks under JAX, by name."""
    own, lenet = Asked(f"{of_jax}:Nnx", "8").found(), Asked("lenet").found()
    with pytest.raises(ConfigurationError, match=r"Nnx is a model of jax .* leave torch out"):
        bench(own, frameworks=("jax", "torch"))
    with pytest.raises(ConfigurationError, match=r"lenet is no model of JAX.* leave jax out"):
        bench(lenet, frameworks=("torch", "jax"))
    with pytest.raises(ConfigurationError, match="Nnx does not say what it takes: say by --shape"):
        Asked(f"{of_jax}:Nnx").found()
