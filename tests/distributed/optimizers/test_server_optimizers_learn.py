"""Claims about optimizers with parameter servers at work: LeNet learns the digits, stragglers or not"""

from itertools import product

import pytest

import d5ray as d5
from tests.distributed.every_optimizer import SERVERED

DIGITS = d5.datasets.load_dataset("digits")
AGENTS, BATCH = 4, 16
LOOK_EPOCHS = 5  # between two looks; agents do not wait for each other meanwhile
OFTEN = ("parameter server", "EASGD")  # the others learn in `make test-slow`
LEARNING = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in SERVERED]


def learns(name: str, slow: tuple[d5.faults.Slowdown, ...]) -> None:
    """What all agents made together has a test accuracy of 0.95 within the epochs that the table allows."""
    entry = SERVERED[name]
    wanted = d5.Experiment(
        model="lenet", dataset=DIGITS, optimizer=entry.base, distributed=entry.rule, agents=AGENTS,
        batch_size=BATCH, seed=1, slow=slow, servers=d5.Servers(shards=2),
    )  # fmt: skip
    reached: list[float] = []
    with d5.simulate(wanted) as group:
        for _ in range(0, entry.epochs, LOOK_EPOCHS):
            group.train(epochs=LOOK_EPOCHS, progress=False)
            reached.append(min(agent.progress().accuracy or 0.0 for agent in group.agents))
            if reached[-1] >= 0.95:
                return
    pytest.fail(f"at best {max(reached):.3f} within {entry.epochs} epochs: {reached}")


@pytest.mark.full
@pytest.mark.parametrize("name", LEARNING)
def test_lenet_learns_the_digits(name: str) -> None:
    """Agents of one speed."""
    learns(name, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERED)
def test_lenet_learns_the_digits_with_a_straggler(name: str) -> None:
    """One of four agents takes four times as long."""
    learns(name, (d5.faults.Slowdown(3, 4),))


QUICK = [("mlp", agents, 3, 1) for agents in (2, 4)]
CASES = [
    pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow)
    for case in product(("mlp", "lenet"), (2, 4, 8), (1, 3), (1, 2, 3))
]


@pytest.mark.full
@pytest.mark.parametrize(("model", "agents", "slowness", "seed"), CASES)
def test_asynchronous_diloco_learns_by_default(model: str, agents: int, slowness: int, seed: int) -> None:
    """Every agent has a test accuracy of 0.9 after 20 epochs, 0.1 being a guess; one may be slower."""
    wanted = d5.Experiment(
        model=model, dataset=DIGITS, optimizer=d5.optimizers.Momentum(0.05, 0.9),
        distributed=d5.optimizers.AsynchronousDiLoCo(8),
        agents=agents, batch_size=BATCH, seed=seed, slow=d5.faults.Slowdown(agents - 1, slowness),
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        group.train(epochs=20, progress=False)
        assert min(agent.progress().accuracy or 0.0 for agent in group.agents) >= 0.9
