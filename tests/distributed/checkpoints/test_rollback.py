"""Claims about groups formed again after a death: agents that train one model have one, to the last bit"""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks.host import host_view
from tests.distributed.every_optimizer import EVERY
from tests.distributed.mortal import DIGITS, Array, gradient, state_of, weighted
from tests.together import together

AGENTS, MORE, BATCH, SEED = 4, 4, 16, 5
MOMENTUM, ADAM = d5.optimizers.Momentum(0.05, 0.9), d5.optimizers.Adam(0.01)


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": weighted, "model_kwargs": {"elements": 2000}, "executor": weighted, "dataset": DIGITS,
        "optimizer": MOMENTUM, "agents": AGENTS, "batch_size": BATCH, "seed": SEED, "evaluate": False,
        "on_failure": "continue", "communicator": "socket", "timeout_seconds": 30.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(given | values))


def in_numpy(optimizer: d5.Optimizer, ranks: list[int], x: Array, own: Any, step: int, steps: int) -> None:
    """What these agents' common x (n,) becomes, in place, from the union of their samples; own: the state."""
    model = weighted("", {"elements": len(x)}, seed=SEED)
    indices = len(DIGITS.train)
    length = -(-indices // (AGENTS * BATCH))
    for at in range(step, step + steps):
        epoch, place = divmod(at, length)
        order = np.random.Generator(np.random.PCG64(np.random.SeedSequence([SEED, epoch]))).permutation(
            indices
        )
        union = order[place * AGENTS * BATCH : (place + 1) * AGENTS * BATCH]
        shares = np.array_split(union, AGENTS)  # the dead agent's is left out
        g = np.zeros_like(x)
        for rank in ranks:
            inputs = DIGITS.train.inputs[shares[rank]].reshape(len(shares[rank]), -1)
            weight = len(inputs) * AGENTS / len(union)
            g += weight * gradient(model.weights, x, inputs.mean(axis=0, dtype=np.float64)) / len(ranks)
        optimizer.step(x, g, own)


DIFFER = {
    "D-PSGD", "D-PSGD on a one-peer graph", "adapt, then combine", "consistent neighbours",
    "gradient tracking", "exact diffusion", "stochastic gradient push", "CHOCO-SGD",
}  # fmt: skip


def spoil(agent: TrainingAgent, seed: int) -> None:
    """What an exchange leaves that was interrupted in the midst: anything."""
    rng = np.random.default_rng(seed)
    executor = agent.executor
    for array in (host_view(executor.parameters), host_view(executor.buffers)):
        array[...] = rng.standard_normal(len(array))
    for state in agent.connections.optimizer._states.values():
        for name, value in state.items():
            state[name] = value + 1 if isinstance(value, int) else value * rng.standard_normal()


@pytest.mark.parametrize("name", EVERY)
def test_every_rule_goes_on_with_one_model_or_with_every_agents_own(name: str, regrouped: Any) -> None:
    """What an interrupted step left is nobody's: all have the source's state, or each its own, as it was
    when they had met last."""
    entry = EVERY[name]
    wanted = experiment(
        distributed=entry.rule, topology=entry.topology, agents=entry.topology.agents, optimizer=MOMENTUM,
        model_kwargs={"elements": 600},
    )  # fmt: skip
    if name == "PowerSGD":
        wanted = replace(wanted, model="lenet", executor="torch", model_kwargs={})
    met = max(steps for steps in range(6) if entry.rule.meets_after(steps))
    group = regrouped(wanted, met)
    left = group.agents[:-1]
    before = [agent.flat_parameters() for agent in left]
    group.train(5 - met)
    for seed, agent in enumerate(left):
        spoil(agent, seed)
    topology = survivors(entry.topology, {entry.topology.agents - 1})
    agreed = group.rejoin(left, topology)
    assert {each.step for each in agreed} == {met} and {each.source for each in agreed} == {0}
    after = [agent.flat_parameters() for agent in left]
    assert len({each.sha256 for each in agreed}) == 1
    assert bool(agreed[0].sha256) == (name not in DIFFER)
    for rank, found in enumerate(after):
        assert np.array_equal(found, before[rank if name in DIFFER else 0])
    outcomes = together(lambda at: left[at].train(3), len(left))
    assert all(outcome.completed and outcome.step == met + 3 for outcome in outcomes), outcomes


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM], ids=repr)
def test_survivors_are_equal_and_go_on_as_numpy_does(optimizer: d5.Optimizer, regrouped: Any) -> None:
    """Parameters, momentum or moments, buffers and step, to the last bit; without the dead one's share."""
    group = regrouped(experiment(optimizer=optimizer), 5)
    ranks = [0, 2, 3]
    left = [group.agents[rank] for rank in ranks]
    agreed = group.rejoin(left, d5.topologies.Complete(3))
    assert len(agreed[0].sha256) == 64 and all(each == agreed[0] for each in agreed)
    before = [state_of(agent) for agent in left]
    assert before[0].base and all(each.same(before[0]) for each in before)
    expected, (own,) = before[0].x.copy(), copy.deepcopy(left[0].connections.optimizer._states).values()
    in_numpy(optimizer, ranks, expected, own, agreed[0].step, MORE)
    assert all(outcome.completed for outcome in together(lambda at: left[at].train(MORE), len(left)))
    first, *others = [state_of(agent) for agent in left]
    assert all(each.same(replace(first, buffers=each.buffers)) for each in others)
    np.testing.assert_allclose(first.x, expected, rtol=1e-11, atol=1e-13)
    assert np.abs(first.x - before[0].x).max() > 1e-3


def test_the_furthest_is_the_source_and_of_several_the_first(regrouped: Any) -> None:
    """One that did a step more is taken from, by survivors and by one that was started again."""
    group = regrouped(experiment(agents=3), 4)
    ahead = group.agents[1]
    ahead.connections.committed.keep(5, ahead.connections.optimizer, ahead.executor)
    ahead.executor.parameters += 1.0
    ahead.connections.committed.keep(5, ahead.connections.optimizer, ahead.executor)
    wanted = ahead.flat_parameters()
    fresh = group.made(2)
    members = [group.agents[0], ahead, fresh]
    agreed = group.rejoin(members, d5.topologies.Complete(3))
    assert [each.steps for each in agreed] == [(4, 5, -1)] * 3 and agreed[0].source == 1
    for agent in members:
        assert np.array_equal(agent.flat_parameters(), wanted)
        assert state_of(agent).same(state_of(ahead)) and state_of(agent).base
    group.agents[2] = fresh


def test_the_residual_of_error_feedback_stays_with_its_agent(regrouped: Any) -> None:
    """What an agent has not sent yet is its own; Q, by which all project, is everyone's."""
    rule = d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(16, bucket=512)))
    group = regrouped(experiment(distributed=rule, agents=3, optimizer=d5.optimizers.SGD(0.05)), 4)
    left = group.agents[:2]
    residuals = [agent.connections.optimizer.memory["residual"].copy() for agent in left]
    assert np.abs(residuals[0] - residuals[1]).max() > 1e-6
    group.rejoin(left, d5.topologies.Complete(2))
    for agent, expected in zip(left, residuals, strict=True):
        assert np.array_equal(agent.connections.optimizer.memory["residual"], expected)


def test_a_share_of_the_base_optimizers_state_that_died_is_said_to_begin_anew(regrouped: Any) -> None:
    """ZeRO's: the dead agent had the only copy of its slice."""
    group = regrouped(experiment(distributed=d5.optimizers.ShardedAllreduceSGD(), agents=3), 4)
    agreed = group.rejoin(group.agents[:2], d5.topologies.Complete(2))
    assert [each.anew for each in agreed] == [("the base optimizer's state, a share of which died",)] * 2


class NotAlike(d5.DistributedOptimizer):
    """Claims that its agents have something alike, which they have not."""

    shared_state = ("mine",)

    def start(self) -> None:
        self._rank = self.communication.rank

    @property
    def mine(self) -> int:
        return self._rank

    @mine.setter
    def mine(self, value: int) -> None:
        pass

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


def test_agents_that_differ_end_with_an_error_that_names_them(regrouped: Any) -> None:
    """On every agent, and never silently."""
    group = regrouped(experiment(distributed=NotAlike(), agents=3), 3)
    with pytest.raises(
        AgentError, match=r"differ after their group .* step 3 \(rank 0: .*, rank 1: .*one_model"
    ):
        group.rejoin(group.agents[:2], d5.topologies.Complete(2))


class Misspelt(NotAlike):
    shared_state = ("momentun",)


def test_state_that_is_not_there_is_refused_at_once(regrouped: Any) -> None:
    with pytest.raises(ConfigurationError, match="no 'momentun' after start"):
        regrouped(experiment(distributed=Misspelt(), agents=2), 1)
