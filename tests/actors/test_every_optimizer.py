"""Claims about every distributed optimizer at work: LeNet learns the digits, whatever carries the arrays"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators import backends
from d5ray.experiment import Experiment
from d5ray.training.batches.batch import Batch
from tests.agents import agents_in_threads
from tests.distributed.every_optimizer import EVERY, Entry
from tests.together import together

DIGITS = d5.datasets.load_dataset("digits")
AGENTS = 4
BATCH = 16
STEPS_PER_EPOCH = -(-len(DIGITS.train) // (AGENTS * BATCH))


def experiment(entry: Entry, **changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": entry.base, "distributed": entry.rule,
        "topology": entry.topology, "batch_size": BATCH, "seed": 1, "timeout_seconds": 30.0,
        "evaluate": False,
    }  # fmt: skip
    return Experiment(**(values | changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_lenet_learns_the_digits(name: str) -> None:
    """Every agent's model has a test accuracy of 0.95 after one of the epochs that the table allows."""
    entry = EVERY[name]
    with agents_in_threads(experiment(entry, evaluate=True), DIGITS) as (agents, sinks):
        reached: list[float] = []
        for _ in range(entry.epochs):
            for outcome in together(lambda rank: agents[rank].train(STEPS_PER_EPOCH), len(agents)):
                assert outcome.completed, outcome.reason
            reached.append(min(sink.of("test_accuracy")[-1] for sink in sinks))
            if reached[-1] >= 0.95:
                return
        pytest.fail(f"at best {max(reached):.3f} within {entry.epochs} epochs: {reached}")


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_the_parameters_do_not_depend_on_the_backend(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared memory, sockets and the NumPy oracle give the same parameters after each of six steps: 1e-5."""

    def course(backend: str) -> list[list[np.ndarray[Any, Any]]]:
        wanted = experiment(EVERY[name], communicator="auto")
        monkeypatch.setattr(backends, "chosen", lambda group: backend)
        with agents_in_threads(wanted, DIGITS) as (agents, _):
            taken = []
            for _ in range(6):
                for outcome in together(lambda rank: agents[rank].train(1), len(agents)):
                    assert outcome.completed, outcome.reason
                taken.append([flat(agent.parameters()) for agent in agents])
            return taken

    oracle = course("reference")
    assert not np.array_equal(oracle[0][0], oracle[-1][0])
    for backend in ("shared_memory", "socket"):
        for step, (found, expected) in enumerate(zip(course(backend), oracle, strict=True)):
            for rank in range(len(expected)):
                scale = np.abs(expected[rank]).max()
                difference = np.abs(found[rank] - expected[rank]).max()
                assert difference <= 1e-5 * scale, f"{backend}, step {step}, rank {rank}"


class Medley(d5.DistributedOptimizer):
    """Each of the rules in turn, two steps at a time, on the same model and among the same agents."""

    one_model = False  # between the meetings of its rules

    def __init__(self, rules: tuple[d5.DistributedOptimizer, ...]) -> None:
        self.rules = rules

    def start(self) -> None:
        for rule in self.rules:
            rule.bind(
                executor=self._executor, base=self.base, communication=self.communication, rng=self.rng,
                shared_rng=self.shared_rng,
            )  # fmt: skip

    def step(self, batch: Batch) -> None:
        rule = self.rules[batch.step // 2 % len(self.rules)]
        rule.step(batch)
        self.loss = rule.loss


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_thirty_two_agents_on_this_machine_run_every_optimizer() -> None:
    """As Ray actors on a ring, on however few cores: no error, no agent lost, a finite loss at the end."""
    rules = tuple(entry.rule for entry in EVERY.values())
    wanted = Experiment(
        model="lenet", dataset=DIGITS, optimizer=d5.optimizers.SGD(0.01), distributed=Medley(rules),
        topology=d5.topologies.Ring(32), batch_size=4, seed=1, cpus_per_agent=0.01, evaluate=False,
        timeout_seconds=120.0,
    )  # fmt: skip
    try:
        with d5.launch(wanted, quiet=True) as group:
            assert group.communicator == "shared_memory"
            assert group.train(2 * len(rules), progress=False).completed
            assert len(set(group.places)) == 32
    finally:
        d5.shutdown()


def flat(parameters: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return np.concatenate([array.ravel() for array in parameters.values()])
