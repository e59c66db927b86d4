"""Claims about the checksum that agents compare: its formula, who differs is named, healthy ones never do"""

import json
from typing import Any, final

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.agent.outcome import Outcome
from d5ray.distributed.buffers import SynchronizedBuffers
from d5ray.distributed.checkpoints import checksum as module
from d5ray.distributed.checkpoints.checksum import BLOCK, LOW, MULTIPLIER, checksum
from d5ray.distributed.checkpoints.equality import CHECK_STEPS, Divergence
from d5ray.errors import AgentError
from d5ray.frameworks.host import host_view
from tests.agents import Rows, agents_in_threads
from tests.distributed.checkpoints.test_rollback import experiment
from tests.distributed.every_optimizer import EVERY
from tests.distributed.mortal import DIGITS
from tests.distributed.regrouped import Regrouped
from tests.together import together

ONE_MODEL = [name for name, entry in EVERY.items() if entry.rule.invariant == "one model"]


@final
class OneUlp(d5.DistributedOptimizer):
    """Allreduce SGD in which one number of one agent changes by one unit in the last place."""

    invariant = "one model"
    buffer_policy = SynchronizedBuffers()

    def __init__(self, rank: int, at_step: int) -> None:
        self.rank, self.at_step = rank, at_step

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)
        if (self.communication.rank, batch.step) == (self.rank, self.at_step):
            x = host_view(self.x)
            x[7] = np.nextafter(x[7], np.inf, dtype=x.dtype)


class Apart(d5.DistributedOptimizer):
    """Agents that hear nothing of each other, and do not say so: one model is what they claim."""

    def step(self, batch: d5.Batch) -> None:
        self.apply(self.gradient(batch))


class SaysSo(Apart):
    invariant = "one model"


class TakesItBack(SaysSo):
    one_model = False


def outcomes_of(wanted: d5.Experiment, *steps: int) -> tuple[list[list[Outcome]], list[Rows]]:
    with agents_in_threads(wanted, DIGITS) as (agents, rows):
        found = []
        for each in steps:
            found.append(together(lambda rank, n=each: agents[rank].train(n), len(agents)))  # type: ignore[misc]
        return found, rows


@pytest.mark.parametrize("communicator", ["shared_memory", "socket"])
def test_an_agent_that_differs_by_one_ulp_is_named_at_the_next_check(communicator: str) -> None:
    """On every agent, with the step of the check and the one before, and in an event with all checksums."""
    rule, at = OneUlp(rank=1, at_step=2 * CHECK_STEPS - 1), 2 * CHECK_STEPS
    wanted = experiment(distributed=rule, agents=3, communicator=communicator, model_kwargs={"elements": 50})
    (outcomes,), rows = outcomes_of(wanted, 3 * CHECK_STEPS)
    for outcome in outcomes:
        assert (outcome.status, outcome.step) == ("failed", at)
        assert f"differ after step {at}" in outcome.reason
        assert f"equal after step {CHECK_STEPS}" in outcome.reason
        assert "TrainingAgent(rank=1) has" in outcome.reason and "rank=0" not in outcome.reason
    (event,) = [event for each in rows for event in each.sent_events if event["name"] == "diverged"]
    detail = json.loads(event["detail"])
    assert (event["step"], detail["since"], detail["differ"]) == (at, CHECK_STEPS, [1])
    first, other, last = (detail["checksums"][rank] for rank in "012")
    assert first == last != other


def test_the_end_of_every_training_is_a_check() -> None:
    """Of two agents both are named; of more those that differ from more than half, else all."""
    wanted = experiment(distributed=OneUlp(0, 11), agents=2, model_kwargs={"elements": 50})
    (first, second), _ = outcomes_of(wanted, 5, 7)
    assert all(outcome.completed for outcome in first)
    assert {(outcome.status, outcome.step) for outcome in second} == {("failed", 12)}
    for words in ("TrainingAgent(rank=0) has", "TrainingAgent(rank=1) has", "equal after step 5"):
        assert words in second[1].reason
    assert Divergence(2, 1, {0: "a", 3: "b", 4: "a", 5: "c"}).differ == (0, 3, 4, 5)
    assert Divergence(2, 1, {0: "a", 3: "b", 4: "a"}).differ == (3,)


def test_a_rule_that_claims_no_one_model_is_not_compared() -> None:
    """The claim itself is what is checked, also of one that says nothing, whose agents have one model."""
    for rule, status in ((TakesItBack(), "completed"), (Apart(), "failed"), (SaysSo(), "failed")):
        (outcomes,), _ = outcomes_of(experiment(distributed=rule, agents=2), 3)
        assert {outcome.status for outcome in outcomes} == {status}


def test_agents_that_differed_before_a_death_are_not_silently_made_equal(regrouped: Any) -> None:
    """The state that would be taken over is compared first."""
    group: Regrouped = regrouped(experiment(distributed=OneUlp(9, 0), agents=4), 4)
    astray = group.agents[1]
    astray.executor.parameters[5] += 1e-9
    astray.connections.commit(4)
    with pytest.raises(
        AgentError, match=r"differ after step 4, .* TrainingAgent\(rank=1\) has .* equal after step 4"
    ):
        group.rejoin(group.agents[:3], d5.topologies.Complete(3))


@pytest.mark.parametrize(
    ("name", "base"),
    [(name, d5.optimizers.Adam(0.01)) for name in ONE_MODEL]
    + [(name, d5.optimizers.Muon(0.01)) for name in ONE_MODEL if name != "sharded allreduce"],
    ids=repr,
)
def test_healthy_agents_never_differ(name: str, base: d5.Optimizer) -> None:
    """LeNet in float32 in the simulation, compared after every step at which the rule says they are equal."""
    entry = EVERY[name]
    wanted = d5.Experiment(
        model="lenet", dataset="digits", distributed=entry.rule, topology=entry.topology, optimizer=base,
        agents=entry.topology.agents, batch_size=8, evaluate=False, seed=3,
    )  # fmt: skip
    with d5.simulate(wanted) as group:
        compared = 0
        for steps in range(1, 14):
            assert group.train(1).completed
            if entry.rule.equal_after(steps):
                compared += 1
                assert len({agent.flat_parameters().tobytes() for agent in group.agents}) == 1
        assert compared >= 2


SIZES = (1, 2, 3, 1001, 2 * BLOCK, 2 * BLOCK + 1, 8 * BLOCK + 7)


def by_hand(values: np.ndarray) -> int:
    """The formula in Python's integers."""
    data = values.tobytes()
    whole = len(data) // 8
    words = [int.from_bytes(data[8 * at : 8 * at + 8], "little") for at in range(whole)]
    total = 0
    for begin in range(0, len(words) - len(words) % BLOCK + 1, BLOCK):
        block = words[begin : begin + BLOCK]
        total = MULTIPLIER * total + sum(((i + 1) * MULTIPLIER & LOW | 1) * v for i, v in enumerate(block))
    return (MULTIPLIER * total + int.from_bytes(data[8 * whole :], "little")) & LOW


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8"])
@pytest.mark.parametrize("size", SIZES)
def test_it_is_the_formula(size: int, dtype: str) -> None:
    values = (np.random.default_rng(size).standard_normal(size) * 100).astype(dtype)
    assert checksum(values) == by_hand(values)


@pytest.mark.parametrize("size", SIZES)
def test_tensors_of_pytorch_have_that_of_their_bytes(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In host memory as NumPy has it; on a device, whose operations are PyTorch's own, too."""
    tensor = torch.randn(size)
    expected = checksum(tensor.numpy())
    assert checksum(tensor) == expected
    monkeypatch.setattr(module, "on_device", lambda array: isinstance(array, torch.Tensor))
    assert checksum(tensor) == expected
    half = tensor.to(torch.bfloat16)
    found = checksum(half)
    monkeypatch.undo()
    assert checksum(half) == found != expected
