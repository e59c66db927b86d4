"""Claims about TrainingAgent, a plain class here: agents in threads over sockets against one PyTorch loop."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from d5ray.agent.outcome import Outcome
from d5ray.agent.records import EVALUATION_METRICS, STEP_METRICS
from d5ray.agent.training_agent import TrainingAgent
from d5ray.agent.vitals import WorkClock
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import AgentError, ConfigurationError, StorageError
from d5ray.experiment import Experiment
from d5ray.training.batches.batch import Batch
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.optimizers.gradient_descent import SGD, Momentum
from d5ray.training.optimizers.optimizer import Optimizer
from d5ray.training.samplers.sampler import OrderedSampler
from tests.agents import Rows, agents_in_threads
from tests.distributed.communicators.collective_costs import costs_of
from tests.patience import patience
from tests.together import together

TIMEOUT_SECONDS = patience(20.0)
_runs = itertools.count()


class InFloat64(nn.Module):
    """A small network whose parameters are float64, so that sums in another order still agree closely."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh(), nn.Linear(12, 10)).double()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.layers(inputs.double())
        return scores


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@pytest.fixture(scope="module")
def hundred(digits: Dataset) -> Dataset:
    """The first 100 training samples, and 30 to test."""
    train, test = digits.train, digits.test
    return replace(
        digits,
        train=Split(train.inputs[:100], train.labels[:100]),
        test=Split(test.inputs[:30], test.labels[:30]),
    )


@pytest.fixture
def start() -> Iterator[Callable[[Experiment, Dataset], tuple[list[TrainingAgent], list[Rows]]]]:
    """Every agent of an experiment, ready to train."""
    with ExitStack() as stack:
        yield lambda experiment, data: stack.enter_context(agents_in_threads(experiment, data))


Start = Callable[[Experiment, Dataset], tuple[list[TrainingAgent], list[Rows]]]


def experiment(**values: Any) -> Experiment:
    given: dict[str, Any] = {
        "model": "lenet", "dataset": "digits", "optimizer": SGD(0.05), "agents": 1, "batch_size": 16,
        "seed": 3, "timeout_seconds": TIMEOUT_SECONDS,
    }  # fmt: skip
    return Experiment.from_values(**(given | values))


def flat(agent: TrainingAgent) -> np.ndarray[Any, Any]:
    return np.concatenate([piece.ravel() for piece in agent.parameters().values()])


def relative(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def one_process(
    network: nn.Module, data: Dataset, optimizer: Optimizer, *, seed: int, union_batch: int, steps: int
) -> np.ndarray[Any, Any]:
    """The parameters after `steps` steps of a plain PyTorch loop over batches of the union's size."""
    momentum = optimizer.momentum if isinstance(optimizer, Momentum) else 0.0
    rule = torch.optim.SGD(network.parameters(), optimizer.learning_rate, momentum=momentum)
    done = 0
    for epoch in itertools.count():
        order = np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, epoch])))
        indices = order.permutation(len(data.train))
        for begin in range(0, len(indices), union_batch):
            chosen = indices[begin : begin + union_batch]
            rule.zero_grad()
            scores = network(torch.from_numpy(data.train.inputs[chosen]))
            loss = nn.functional.cross_entropy(scores, torch.from_numpy(data.train.labels[chosen]))
            loss.backward()  # type: ignore[no-untyped-call]
            rule.step()
            done += 1
            if done == steps:
                pieces = [piece.detach().numpy().ravel() for piece in network.parameters()]
                return np.concatenate(pieces)
    raise AssertionError("unreachable")


# -- against one process -------------------------------------------------------------------------------


@pytest.mark.parametrize(("agents", "batch_size"), [(2, 7), (3, 8), (4, 24)])
@pytest.mark.parametrize("optimizer", [SGD(0.5), Momentum(0.2, 0.9)], ids=["sgd", "momentum"])
def test_a_remainder_of_an_epoch_is_the_mean_over_its_samples(
    start: Start, hundred: Dataset, agents: int, batch_size: int, optimizer: Optimizer
) -> None:
    """100 samples that no step size divides, 20 steps over several epochs, in float64: 1e-12 from one loop.

    The last steps take 2, 4 and 4 samples: one each for two agents; 2, 1, 1 for three; one each for four.
    """
    made = experiment(model=InFloat64, agents=agents, batch_size=batch_size, optimizer=optimizer)
    group, _ = start(made, hundred)
    together(lambda rank: group[rank].train(20), agents)
    torch.manual_seed(3)
    expected = one_process(InFloat64(), hundred, optimizer, seed=3, union_batch=agents * batch_size, steps=20)
    for agent in group:
        assert relative(flat(agent), expected) < 1e-12


def test_an_agent_without_samples_in_the_last_step_still_takes_part(start: Start, hundred: Dataset) -> None:
    """3 agents with batches of 33 leave one of 100 samples: ranks 1 and 2 have no loss there, and update."""
    made = experiment(model=InFloat64, agents=3, batch_size=33, optimizer=SGD(0.5), evaluate=False)
    group, sinks = start(made, hundred)
    together(lambda rank: group[rank].train(4), 3)  # two epochs of two steps
    assert [sink.of("samples") for sink in sinks] == [[33, 1, 33, 1], [33, 0, 33, 0], [33, 0, 33, 0]]
    for rank, sink in enumerate(sinks):
        assert [loss is None for loss in sink.of("loss")] == [False, rank > 0, False, rank > 0]
    torch.manual_seed(3)
    expected = one_process(InFloat64(), hundred, SGD(0.5), seed=3, union_batch=99, steps=4)
    for agent in group:
        assert relative(flat(agent), expected) < 1e-12


# -- what is recorded ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "evaluate", "evaluations"),
    [
        ([8], True, 2),  # 4 steps an epoch: at the end of both
        ([6], True, 2),  # at the end of the first epoch and at the end
        ([3, 3], True, 3),  # after each call, and where the epoch ends
        ([6], False, 0),
    ],
)
def test_rows_are_steps_times_metrics_and_evaluations_times_three(
    start: Start, hundred: Dataset, steps: list[int], evaluate: bool, evaluations: int
) -> None:
    """Not a row more or less, numbered without a gap, and `rows()` says so."""
    made = experiment(batch_size=25, evaluate=evaluate)
    (agent,), (sink,) = start(made, hundred)
    for count in steps:
        agent.train(count)
    total = sum(steps)
    rows = sink.all()
    assert len(rows) == agent.rows() == total * len(STEP_METRICS) + evaluations * len(EVALUATION_METRICS)
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    for metric in STEP_METRICS:
        assert [row["step"] for row in rows if row["metric"] == metric] == list(range(total))
    for metric in EVALUATION_METRICS:
        assert len(sink.of(metric)) == evaluations
    assert sink.drained == len(steps)


def test_rows_say_epoch_phase_and_samples(start: Start, hundred: Dataset) -> None:
    """5 steps of 30 samples and 10: epoch 1 begins after 4, the first 2 are warm-up, samples are counted."""
    (agent,), (sink,) = start(experiment(batch_size=30, warmup_steps=2, evaluate=False), hundred)
    agent.train(5)
    rows = [row for row in sink.all() if row["metric"] == "samples"]
    assert [row["epoch"] for row in rows] == [0, 0, 0, 0, 1]
    assert [row["phase"] for row in rows] == ["warmup", "warmup", "train", "train", "train"]
    assert [row["value"] for row in rows] == [30, 30, 30, 10, 30]
    assert {row["agent"] for row in rows} == {"TrainingAgent(rank=0)"}


def test_an_evaluation_is_of_the_whole_test_split(start: Start, hundred: Dataset) -> None:
    """test_loss and test_accuracy are those that PyTorch computes of the parameters on all test samples."""
    (agent,), (sink,) = start(experiment(model=InFloat64, batch_size=25), hundred)
    agent.train(3)
    network = InFloat64()
    network.load_state_dict({name: torch.from_numpy(value) for name, value in agent.parameters().items()})
    scores = network(torch.from_numpy(hundred.test.inputs))
    labels = torch.from_numpy(hundred.test.labels)
    assert sink.of("test_loss") == [pytest.approx(nn.functional.cross_entropy(scores, labels).item(), 1e-12)]
    assert sink.of("test_accuracy") == [(scores.argmax(1) == labels).double().mean().item()]
    assert agent.progress().accuracy == sink.of("test_accuracy")[0]


def test_times_of_all_steps_are_the_time_of_training(start: Start, hundred: Dataset) -> None:
    """Steps follow one another without a hole: their times sum to nearly the time that train took."""
    (agent,), (sink,) = start(experiment(batch_size=32, evaluate=False), hundred)
    agent.train(5)
    begin = time.perf_counter()
    agent.train(200)
    seconds = time.perf_counter() - begin
    assert 0.5 * seconds < sum(sink.of("step_time")[5:]) < seconds


def test_step_time_covers_its_parts(start: Start, digits: Dataset) -> None:
    """In every step of both agents: data, forward, backward, exchange, update and record fit into it."""
    group, sinks = start(experiment(agents=2), digits)
    together(lambda rank: group[rank].train(60), 2)  # an epoch ends within
    parts = ("data_time", "forward_time", "backward_time", "exchange_time", "update_time", "record_time")
    for sink in sinks:
        pieces = np.array([sink.of(part) for part in parts])  # (parts, steps)
        assert (pieces >= 0).all()
        for name, piece in zip(parts, pieces, strict=True):
            assert piece[1:].max() > 0, name
        whole = np.array(sink.of("step_time"))
        assert (whole >= pieces.sum(axis=0)).all()
        assert pieces.sum() > 0.5 * whole.sum()  # and hardly anything else is in it


@pytest.mark.parametrize("communicator", ["socket", "shared_memory"])
def test_bytes_of_a_step_are_those_of_its_allreduce(
    start: Start, hundred: Dataset, communicator: str
) -> None:
    """What the closed form of recursive doubling among three says, every step of every agent over sockets;
    with shared memory each reads the two others' arrays."""
    wanted = experiment(model=InFloat64, agents=3, evaluate=False, communicator=communicator)
    group, sinks = start(wanted, hundred)
    together(lambda rank: group[rank].train(3), 3)
    payload = flat(group[0]).nbytes
    for rank, sink in enumerate(sinks):
        cost = costs_of(rank, 3, payload, 1)["doubling"]
        sent = cost.bytes_sent if communicator == "socket" else 2 * payload
        assert sink.of("bytes_sent") == sink.of("bytes_received") == [sent] * 3
        assert sink.of("messages_sent") == [cost.messages_sent if communicator == "socket" else 2] * 3


# -- seeds ---------------------------------------------------------------------------------------------


class Drawing(DistributedOptimizer):
    """Allreduce SGD that draws a number a step, and keeps it on itself."""

    drawn: tuple[float, ...] = ()

    def step(self, batch: Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)
        self.drawn += (float(self.rng.random()),)


def test_equal_seeds_give_equal_losses_bit_by_bit(start: Start, digits: Dataset) -> None:
    """Two runs of two agents with seed 3 record the same losses and parameters; seed 4 another course.

    So are the numbers that each agent draws with its own generator. One instance of the optimizer is given
    to all: what a step writes on itself stays with its agent.
    """
    given = Drawing()

    def course(seed: int) -> tuple[list[Any], str, list[tuple[float, ...]]]:
        group, sinks = start(experiment(agents=2, seed=seed, evaluate=False, distributed=given), digits)
        together(lambda rank: group[rank].train(10), 2)
        rules: list[Any] = [agent.connections.optimizer for agent in group]
        losses = [sink.of("loss") for sink in sinks]
        return losses, group[0].parameters_sha256(), [rule.drawn for rule in rules]

    first, again, other = course(3), course(3), course(4)
    assert first == again
    assert first[0] != other[0] and first[1] != other[1]
    assert first[0][0] != first[0][1]  # the agents see different samples
    assert len({*first[2][0], *first[2][1], *other[2][0], *other[2][1]}) == 40 and given.drawn == ()


# -- ends that are not the end ---------------------------------------------------------------------------


def test_the_peer_of_an_agent_with_nan_loss_ends_with_peer_lost(start: Start, hundred: Dataset) -> None:
    """A NaN among rank 1's samples of step 2: rank 1 says nan_loss and where, rank 0 does not wait for it."""
    inputs = hundred.train.inputs.copy()
    inputs[2 * 20 + 15] = np.nan  # the third step's samples are 40..59, rank 1 takes 50..59
    poisoned = replace(hundred, train=Split(inputs, hundred.train.labels))
    made = experiment(agents=2, batch_size=10, train_sampler=OrderedSampler())
    group, sinks = start(made, poisoned)
    begin = time.monotonic()
    healthy, sick = together(lambda rank: group[rank].train(5), 2)
    assert (sick.status, sick.step) == ("nan_loss", 3)
    assert "the loss became nan at step 2 on TrainingAgent(rank=1)" in sick.reason
    assert "nan_loss" in [event["name"] for event in sinks[1].sent_events]
    assert (healthy.status, healthy.step) == ("peer_lost", 3)
    assert time.monotonic() - begin < TIMEOUT_SECONDS / 2


class FailsAt(Drawing):
    """One whose step raises on one agent."""

    def __init__(self, rank: int, step: int, error: Exception) -> None:
        self.rank = rank
        self.at = step
        self.error = error

    def step(self, batch: Batch) -> None:
        if (self.communication.rank, batch.step) == (self.rank, self.at):
            raise self.error
        super().step(batch)


def test_an_exception_in_step_ends_with_its_traceback(start: Start, hundred: Dataset) -> None:
    """The agent fails with the text and the line of the user's step, its peers lose it; none raises."""
    made = experiment(agents=3, distributed=FailsAt(1, 2, KeyError("the user's own mistake")))
    group, sinks = start(made, hundred)
    begin = time.monotonic()
    outcomes = together(lambda rank: group[rank].train(5), 3)
    assert [outcome.status for outcome in outcomes] == ["peer_lost", "failed", "peer_lost"]
    assert [outcome.step for outcome in outcomes] == [2, 2, 2]
    for part in ("Traceback", "raise self.error", "KeyError", "the user's own mistake"):
        assert part in outcomes[1].reason
    told = [[event["name"] for event in sink.sent_events if event["name"] != "probe"] for sink in sinks]
    assert [names[0] for names in told] == ["peer_lost", "failed", "peer_lost"]
    assert time.monotonic() - begin < TIMEOUT_SECONDS / 2


def test_an_error_of_d5ray_in_step_is_its_text_without_a_traceback(start: Start, hundred: Dataset) -> None:
    """A ConfigurationError out of the step is told as it is."""
    (agent,), _ = start(experiment(distributed=FailsAt(0, 1, ConfigurationError("set it to 3"))), hundred)
    assert agent.train(5) == Outcome("failed", 1, "set it to 3")


def test_a_sink_that_cannot_keep_the_rows_fails_the_training(start: Start, hundred: Dataset) -> None:
    """A full disk at the aggregator becomes the outcome, not an exception out of train."""
    (agent,), (sink,) = start(experiment(), hundred)

    def full() -> None:
        raise StorageError("the disk is full")

    sink.drain = full  # type: ignore[method-assign]
    assert agent.train(2) == Outcome("failed", 2, "the disk is full")


def test_stop_ends_within_a_step(start: Start, hundred: Dataset) -> None:
    """Of two agents that would train for days, both are stopped: at most one step after it was asked for."""
    group, _ = start(experiment(agents=2, evaluate=False), hundred)
    asked: list[int] = []

    def stopper() -> None:
        while group[0].progress().step < 5:
            time.sleep(0.001)
        for agent in group:
            agent.stop()
        asked.append(max(agent.progress().step for agent in group))

    thread = threading.Thread(target=stopper)
    thread.start()
    outcomes = together(lambda rank: group[rank].train(10**9), 2)
    thread.join()
    assert [outcome.status for outcome in outcomes] == ["stopped", "stopped"]
    assert all(5 <= outcome.step <= asked[0] + 1 for outcome in outcomes)


# -- building and joining ------------------------------------------------------------------------------


def test_an_error_of_the_users_model_says_who_and_when(hundred: Dataset) -> None:
    """An exception in the model's constructor is an AgentError with the agent and the user's traceback."""

    def broken() -> nn.Module:
        raise ZeroDivisionError("in the user's model")

    agent = TrainingAgent(2, experiment(model=broken, agents=3), "run", "node", Rows())
    with pytest.raises(AgentError) as caught:
        agent.build(hundred)
    text = str(caught.value)
    for part in ("TrainingAgent(rank=2) failed while it built the model", "in the user's model", "in broken"):
        assert part in text


def test_built_tells_the_sizes(hundred: Dataset) -> None:
    """The number of parameters and their bytes, and the steps of an epoch with its remainder."""
    made = experiment(model=InFloat64, agents=3, batch_size=8)
    built = TrainingAgent(0, made, "run", "node", Rows()).build(hundred)
    count = 64 * 12 + 12 + 12 * 10 + 10
    assert (built.parameters, built.parameter_bytes, built.steps_per_epoch) == (count, 8 * count, 5)


def test_an_error_in_the_distributed_optimizers_start_says_who_and_when(
    start: Start, hundred: Dataset
) -> None:
    """An exception in `start` is an AgentError with the user's own text."""

    class Broken(DistributedOptimizer):
        def start(self) -> None:
            raise ZeroDivisionError("in the user's start")

        def step(self, batch: Batch) -> None: ...

    with pytest.raises(AgentError, match="while its distributed optimizer started") as caught:
        start(experiment(distributed=Broken), hundred)
    assert "in the user's start" in str(caught.value)


def test_agents_start_from_the_first_agents_parameters(start: Start, hundred: Dataset) -> None:
    """A model that is random beyond the seed starts equal everywhere, namely as the agent of rank 0."""
    drawn = itertools.count(100)

    def unseeded() -> nn.Module:
        torch.manual_seed(next(drawn))
        return InFloat64()

    group, _ = start(experiment(model=unseeded, agents=3), hundred)
    torch.manual_seed(100)
    expected = np.concatenate([p.detach().numpy().ravel() for p in InFloat64().parameters()])
    for agent in group:
        np.testing.assert_array_equal(flat(agent), expected)


def test_the_work_of_an_agent_is_what_its_own_thread_computes() -> None:
    """Whoever reads it, and whatever other threads compute meanwhile."""
    clock = WorkClock()
    clock.start()
    with ThreadPoolExecutor(1) as other:
        other.submit(sum, range(3_000_000)).result()
        before = time.thread_time()
        assert before <= other.submit(clock.seconds).result() <= time.thread_time()
