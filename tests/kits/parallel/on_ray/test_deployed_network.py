"""Claims about a network over operator executors, on Ray: against PyTorch's own autograd in one process."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks.torch import training_network_of
from tests.patience import patience

Array = np.ndarray[Any, Any]
BATCH, MICRO = 18, 4
CUTS = (4, 9, 13)  # after which samples a micro-batch ends
RANDOM = np.random.default_rng(7)
X, Y = RANDOM.standard_normal((BATCH, 6)), RANDOM.integers(0, 4, BATCH)


def module() -> nn.Sequential:
    """Four layers with running statistics, in float64; the same every time.

    ONNX has epsilon and momentum in float32, which these are exactly.
    """
    torch.manual_seed(3)
    layers = (
        nn.Linear(6, 16, bias=False), nn.BatchNorm1d(16, 2.0**-17, 0.25), nn.ReLU(),
        nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4),
    )  # fmt: skip
    return nn.Sequential(*layers).double()


def network() -> d5.Network:
    made = training_network_of(module(), X)
    assert isinstance(made, d5.Network)
    return made


class LastInFirstOut(d5.pipelines.PipelineSchedule):
    """One of the user's own, of which every process has another object."""

    def of_stage(
        self, stage: int, stages: int, micro_batches: int
    ) -> Iterator[d5.pipelines.Forward | d5.pipelines.Backward]:
        yield from (d5.pipelines.Forward(0, micro) for micro in range(micro_batches))
        yield from (d5.pipelines.Backward(0, micro) for micro in reversed(range(micro_batches)))


@pytest.fixture(scope="module", params=["three stages, encrypted", "two stages of two parts"])
def deployed(request: pytest.FixtureRequest) -> Iterator[d5.pipelines.DeployedNetwork]:
    """The network over as many executors; the claims change its parameters and statistics."""
    whole = network()
    products = [node.name for node in whole.nodes if node.type in ("Gemm", "MatMul")]
    mesh = d5.Mesh(stages=3, micro_batches=MICRO, schedule=LastInFirstOut())
    if "parts" in request.param:
        split: dict[str, Any] = {products[1]: d5.networks.ByColumns(), products[2]: d5.networks.ByRows()}
        mesh = d5.Mesh(stages=2, parts=2, split=split, micro_batches=MICRO)
    hidden: dict[str, Any] = (
        {"encryption": True, "communicator": "socket"} if "encrypted" in request.param else {}
    )
    with d5.pipelines.deploy(
        whole, mesh, framework="numpy", cpus_per_executor=0.25, quiet=True, **hidden
    ) as made:
        yield made


def close_to(found: Any, expected: Any) -> bool:
    expected = expected.detach().numpy() if isinstance(expected, torch.Tensor) else expected
    return bool(np.linalg.norm(found - expected) <= 1e-10 * np.linalg.norm(expected))


@pytest.mark.full
def test_it_computes_and_learns_as_pytorch_does(deployed: d5.pipelines.DeployedNetwork) -> None:
    """Loss, gradients, running statistics, scores, of three steps of gradient descent: to 1e-10."""
    expected = module()
    variance = torch.ones(16, dtype=torch.float64)  # ONNX's is the batch's own, PyTorch's n / (n - 1) of it
    for _ in range(3):
        expected.zero_grad()
        total = torch.tensor(0.0)
        for x, y in zip(np.split(X, CUTS), np.split(Y, CUTS), strict=True):
            own_variance = expected[0](torch.from_numpy(x)).detach().var(0, correction=0)
            variance = 0.75 * variance + 0.25 * own_variance
            scores: torch.Tensor = expected(torch.from_numpy(x))
            total = total + nn.functional.cross_entropy(scores, torch.from_numpy(y), reduction="sum") / BATCH
        total.backward()  # type: ignore[no-untyped-call]
        assert deployed.inference_and_backprop(X, Y) == pytest.approx(total.item(), rel=1e-10)
        found = deployed.gradients()
        own = dict(expected.named_parameters())
        assert found.keys() == own.keys()
        assert all(close_to(found[name], value.grad) for name, value in own.items())
        values = deployed.parameters()
        assert all(close_to(values[name], value) for name, value in own.items())
        deployed.feed({name: value - 0.3 * found[name] for name, value in values.items()})
        torch.optim.SGD(expected.parameters(), lr=0.3).step()
    expected[1].running_var = variance
    state = deployed.state()
    assert state.keys() == {"1.running_mean", "1.running_var"}
    assert all(close_to(state[name], expected.state_dict()[name]) for name in state)
    scores = expected.eval()(torch.from_numpy(X))
    assert close_to(deployed.inference(X), scores)
    for each in (deployed.inference(X), *deployed.parameters().values(), *deployed.state().values()):
        each += 1.0  # the caller's own
    assert close_to(deployed.inference(X), scores)
    assert deployed.last_pass is not None and 0.0 < deployed.last_pass.bubble < 1.0
    told = deployed.evaluate(X, Y)
    assert told.accuracy == (scores.argmax(1).numpy() == Y).mean()
    assert told.loss == pytest.approx(
        nn.functional.cross_entropy(scores, torch.from_numpy(Y)).item(), rel=1e-10
    )


@pytest.mark.full
def test_wrong_input_is_refused_and_nothing_ends(deployed: d5.pipelines.DeployedNetwork) -> None:
    """Found, expected, what to do."""
    for inputs, labels, words in (
        (X.astype(np.float32), Y, "astype"),
        (X[:, :5], Y, "axis 1"),
        (X[:3], Y, "agree"),
        (X.tolist(), Y, "numpy.asarray"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            deployed.inference_and_backprop(inputs, labels)
    for values, words in (
        ({"3.wieght": np.zeros((12, 16))}, "did you mean '3.weight'"),
        ({"3.bias": np.zeros(11)}, r"must be \(12,\)"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            deployed.feed(values)
    assert np.isfinite(deployed.inference_and_backprop(X, Y))


def test_what_does_not_fit_is_refused_before_anything_starts() -> None:
    whole = network()
    wrong: tuple[tuple[Any, dict[str, Any], str], ...] = (
        (d5.Mesh(2, 2), {}, "2 replicas"),
        (d5.pipelines.Balanced(3), {}, "it must be a Mesh"),
        (d5.Mesh(stages=2), {"framework": "torhc"}, "did you mean 'torch'"),
        (d5.Mesh(stages=2), {"communicator": "sock"}, "did you mean 'socket'"),
        (d5.Mesh(stages=2), {"pass_seconds": 0}, "pass_seconds is 0"),
        (d5.Mesh(stages=2, cut=d5.pipelines.Cut(("nowhere",))), {}, "nowhere"),
        (d5.Mesh(stages=9), {}, "9"),
    )
    for mesh, options, words in wrong:
        with pytest.raises(ConfigurationError, match=words):
            d5.pipelines.deploy(whole, mesh, **options)
    with pytest.raises(ConfigurationError, match=r"network is a Sequential.*Network.from_model"):
        d5.pipelines.deploy(module(), d5.Mesh(stages=2))  # type: ignore[arg-type]
    with_loss = whole.copy()
    with_loss.add_loss()
    with pytest.raises(ConfigurationError, match="the network has 2 inputs"):
        d5.pipelines.deploy(with_loss, d5.Mesh(stages=2))


@pytest.mark.full
def test_a_stage_that_dies_is_an_error_on_the_driver() -> None:
    """It says which one; the others have ended, and what is asked afterwards says so."""
    mesh = d5.Mesh(stages=3)
    with d5.pipelines.deploy(network(), mesh, framework="numpy", cpus_per_executor=0.25, quiet=True) as made:
        pids = [place.pid for place in made.places]
        assert len(set(pids)) == 3
        made.inference_and_backprop(X, Y)
        os.kill(pids[1], signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(AgentError, match="the executor of stage 1 died in inference"):
            while True:
                made.inference(X)
        assert time.monotonic() - begin < patience(20)
        with pytest.raises(AgentError, match="have ended, since the executor of stage 1 died"):
            made.parameters()
    assert not any(psutil.pid_exists(pid) for pid in pids)
