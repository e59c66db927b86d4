"""Claims about agents that become fewer and more: what they compute is what NumPy does with that many"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.archive.unfinished import GoingOn
from d5ray.distributed.checkpoints.checkpoint import Checkpoints
from tests.distributed.mortal import DIGITS, gradient, state_of, weighted
from tests.together import together

PLANNED, BATCH, SEED = 3, 120, 5  # 1438 samples are 4 steps of 360, the last of 358
RATE = d5.schedules.Piecewise(0.05, {1: 0.02})


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": weighted, "model_kwargs": {"elements": 500}, "executor": weighted, "dataset": DIGITS,
        "optimizer": d5.optimizers.Scheduled(d5.optimizers.Momentum(0.05, 0.9), learning_rate=RATE),
        "agents": PLANNED, "batch_size": BATCH, "seed": SEED, "evaluate": False, "epochs": 3,
        "on_failure": "replace", "timeout_seconds": 30.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(given | values))


@dataclass
class Reference:
    """Momentum on the union of all samples of a step, in NumPy and float64."""

    wanted: d5.Experiment
    x: Any
    epoch: int = 0
    done: int = 0  # samples of the epoch

    def __post_init__(self) -> None:
        self.model = weighted("", {"elements": len(self.x)}, seed=SEED)
        self.velocity = np.zeros_like(self.x)

    def go_on(self, agents: int, steps: int) -> None:
        count = len(DIGITS.train)
        among = PLANNED if self.wanted.elastic.keep_batch == "global" else agents
        scale = {"none": 1.0, "linear": among / PLANNED, "sqrt": (among / PLANNED) ** 0.5}
        for _ in range(steps):
            order = np.random.Generator(np.random.PCG64(np.random.SeedSequence([SEED, self.epoch])))
            union = order.permutation(count)[self.done : self.done + among * BATCH]
            inputs = DIGITS.train.inputs[union].reshape(len(union), -1)
            g = gradient(self.model.weights, self.x, inputs.mean(axis=0, dtype=np.float64))
            self.velocity[...] = 0.9 * self.velocity + g
            self.x -= RATE.at(0, self.epoch) * scale[self.wanted.elastic.scale_rate] * self.velocity
            self.done += len(union)
            if self.done == count:
                self.epoch, self.done = self.epoch + 1, 0


@pytest.mark.parametrize("scale_rate", ["none", "linear", "sqrt"])
@pytest.mark.parametrize("keep_batch", ["agent", "global"])
def test_fewer_and_more_agents_compute_what_numpy_does(
    keep_batch: str, scale_rate: str, regrouped: Any
) -> None:
    """3, 2, 1 and 3 agents again: one model, momentum and scheduled rate, each sample of an epoch once."""
    wanted = experiment(keep_batch=keep_batch, scale_rate=scale_rate)
    group = regrouped(wanted)
    reference = Reference(wanted, group.agents[0].flat_parameters().astype(np.float64))
    for size, steps in ((3, 2), (2, 3), (1, 2), (3, 6)):
        if size != len(group.agents):
            group.change(size)
        group.train(steps)
        reference.go_on(size, steps)
        first, *others = (state_of(agent) for agent in group.agents)
        assert all(each.same(replace(first, buffers=each.buffers)) for each in others)
        np.testing.assert_allclose(first.x, reference.x, rtol=1e-11, atol=1e-13)
    place = group.agents[0].data.epochs.at(13)
    assert (place.epoch, place.samples) == (reference.epoch, reference.done) and place.epoch >= 1


def test_a_checkpoint_after_a_change_knows_how_far_the_epoch_is(regrouped: Any, tmp_path: Path) -> None:
    """Three agents, then two, then three: who goes on from there has the bits of who was never stopped."""
    event = d5.events.Checkpoint(tmp_path, every_steps=4, keep=9)
    before = regrouped(experiment(events=(event,)))
    before.train(1)
    before.change(2)
    before.train(1)
    before.change(3)
    before.train(2)  # which ends at the fourth step
    before.train(3)
    after = regrouped(experiment(events=(event,)))
    together(lambda at: after.agents[at].resume(str(tmp_path), 4), PLANNED)
    after.train(3)
    for one, other in zip(before.agents, after.agents, strict=True):
        assert np.array_equal(one.flat_parameters(), other.flat_parameters())
        assert one.data.epochs.at(7) == other.data.epochs.at(7)


def test_a_run_that_died_as_it_closed_goes_on_before_its_end_wherever_that_came(
    regrouped: Any, tmp_path: Path
) -> None:
    """With two agents for a step an epoch took five: the run ended after 13 steps, and 12 were planned.

    What it saved at its end leaves nothing to do; what it saved at step 12 leaves a step.
    """
    wanted = experiment(events=(d5.events.Checkpoint(tmp_path, every_steps=4, keep=9),))
    group = regrouped(wanted)
    planned = group.agents[0].data.epochs
    for agents, steps in ((3, 1), (2, 1), (3, 11)):
        if agents != len(group.agents):
            group.change(agents)
        group.train(steps)
    assert (planned.begin(3), group.agents[0].data.epochs.begin(3)) == (12, 13)
    saved = tuple(Checkpoints(str(tmp_path), step) for step in (13, 12, 8, 4))
    assert GoingOn(saved, "the run before").chosen(wanted, planned) == saved[1]
