"""Claims about every distributed optimizer at work: LeNet learns the digits, whatever carries the arrays"""

from typing import Any

import pytest

import d5ray as d5
from d5ray.experiment import Experiment
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
