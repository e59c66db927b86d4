"""Claims about optimizers with parameter servers at work: LeNet learns the digits, stragglers or not"""

import pytest

import d5ray as d5
from tests.distributed.every_optimizer import SERVERED

DIGITS = d5.load_dataset("digits")
AGENTS, BATCH = 4, 16
LOOK_EPOCHS = 5  # between two looks; agents do not wait for each other meanwhile
OFTEN = ("parameter server", "EASGD")  # the others learn in `make test-slow`
LEARNING = [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in SERVERED]


def learns(name: str, slow: tuple[d5.Slowdown, ...]) -> None:
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


@pytest.mark.parametrize("name", LEARNING)
def test_lenet_learns_the_digits(name: str) -> None:
    """Agents of one speed."""
    learns(name, ())


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERED)
def test_lenet_learns_the_digits_with_a_straggler(name: str) -> None:
    """One of four agents takes four times as long."""
    learns(name, (d5.Slowdown(3, 4),))
