"""Claims about groups formed again after a death: agents that train one model have one, to the last bit"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.checkpoints.rollback import Committed, RestartPoint
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks.host import host_view
from tests.agents import Rows
from tests.distributed.every_optimizer import EVERY
from tests.distributed.mortal import DIGITS, Death, State, Survivor, gradient, killed, state_of, weighted
from tests.distributed.regrouped import Regrouped
from tests.together import together

AGENTS, MORE, BATCH, SEED = 4, 4, 16, 5
MOMENTUM, ADAM = d5.optimizers.Momentum(0.05, 0.9), d5.optimizers.Adam(0.01)


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": weighted, "model_kwargs": {"elements": 2000}, "executor": weighted, "dataset": DIGITS,
        "optimizer": MOMENTUM, "agents": AGENTS, "batch_size": BATCH, "seed": SEED, "evaluate": False,
        "on_failure": "continue", "communicator": "socket", "timeout_seconds": 30.0,
    }  # fmt: skip
    return d5.Experiment(**(given | values))


# -- deaths in the midst of an allreduce -----------------------------------------------------------------


def death_of(seed: int) -> Death:
    """Of an agent drawn from the seed, at a step and an instant of its exchange likewise."""
    rng = np.random.default_rng([17, seed])
    return Death(int(rng.integers(AGENTS)), int(rng.integers(3, 9)), float(rng.uniform(0.0, 1.0)))


def in_numpy(optimizer: d5.Optimizer, ranks: list[int], state: State, step: int, steps: int) -> State:
    """What these agents' common state becomes: plain NumPy, from the union of their samples."""
    x, base = state.x.copy(), {name.split()[-1]: value for name, value in state.base.items()}
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
        if isinstance(optimizer, d5.optimizers.Adam):
            t = base["t"] = base["t"] + 1
            m, v = (base[name] for name in sorted(base.keys() - {"t"}))
            m[...] = 0.9 * m + 0.1 * g
            v[...] = 0.999 * v + 0.001 * g * g
            x -= 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        else:
            (velocity,) = base.values()
            velocity[...] = 0.9 * velocity + g
            x -= 0.05 * velocity
    return replace(state, x=x)


def survive(backend: str, seed: int) -> None:
    """One death: all survivors are equal, not behind any of them, and go on as NumPy does from there."""
    optimizer = ADAM if seed % 2 else MOMENTUM
    death = death_of(seed)
    found = killed(experiment(optimizer=optimizer, communicator=backend, events=(death,)), death, MORE)
    left = [each for each in found if isinstance(each, Survivor)]
    assert len(left) == AGENTS - 1, found
    ranks = [rank for rank in range(AGENTS) if rank != death.agent]
    first = left[0]
    for each in left:
        assert isinstance(each.agreed, RestartPoint) and isinstance(first.agreed, RestartPoint)
        assert each.agreed == first.agreed and len(each.agreed.sha256) == 64
        assert each.agreed.step == max(each.agreed.steps) == max(other.stopped_at for other in left)
        assert each.before.base and each.before.same(first.before)
        assert each.after.same(replace(first.after, untrained=each.after.untrained))
        (event,) = (event for event in each.events if event["name"] == "agreed")
        assert event["step"] == each.agreed.step and each.agreed.sha256 in event["detail"]
    expected = in_numpy(optimizer, ranks, first.before, first.agreed.step, MORE)  # type: ignore[union-attr]
    np.testing.assert_allclose(first.after.x, expected.x, rtol=1e-11, atol=1e-13)
    assert np.abs(first.after.x - first.before.x).max() > 1e-3


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_survivors_of_a_death_in_an_allreduce_over_sockets_are_equal(seed: int) -> None:
    """Parameters, momentum or Adam's moments, buffers and step, to the last bit."""
    survive("socket", seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 58))
def test_fifty_deaths_in_an_allreduce_over_sockets(seed: int) -> None:
    """The same; without an agreement about half of these deaths leave survivors at different steps."""
    survive("socket", seed)


@pytest.mark.parametrize("seed", [1, 2])
def test_survivors_of_a_death_in_an_allreduce_over_shared_memory_are_equal(seed: int) -> None:
    survive("shared_memory", seed)


# -- every rule, in threads ------------------------------------------------------------------------------

DIFFER = {
    "D-PSGD", "D-PSGD on a one-peer graph", "adapt, then combine", "consistent neighbours",
    "gradient tracking", "exact diffusion", "stochastic gradient push", "CHOCO-SGD",
}  # fmt: skip


@pytest.fixture
def trained() -> Iterator[Any]:
    """Agents of an experiment that have done so many steps."""
    made: list[Regrouped] = []

    def make(wanted: d5.Experiment, steps: int) -> Regrouped:
        made.append(Regrouped(wanted))
        made[-1].join()
        made[-1].train(steps)
        return made[-1]

    yield make
    for each in made:
        each.close()


def spoil(agent: TrainingAgent, seed: int) -> None:
    """What an exchange leaves that was interrupted in the midst: anything."""
    rng = np.random.default_rng(seed)
    executor = agent.executor
    for array in (host_view(executor.parameters), host_view(executor.untrained)):
        array[...] = rng.standard_normal(len(array))
    for state in agent.connections.optimizer._states.values():
        for name, value in state.items():
            state[name] = value + 1 if isinstance(value, int) else value * rng.standard_normal()


@pytest.mark.parametrize("name", EVERY)
def test_every_rule_goes_on_with_one_model_or_with_every_agents_own(name: str, trained: Any) -> None:
    """What an interrupted step left is nobody's: all have the source's state, or each its own, as it was
    when they had met last.

    The rules whose agents are meant to differ are named; all others say so by their common hash.
    """
    entry = EVERY[name]
    wanted = experiment(
        distributed=entry.rule, topology=entry.topology, agents=entry.topology.agents, optimizer=MOMENTUM,
        model_kwargs={"elements": 600},
    )  # fmt: skip
    if name == "PowerSGD":
        wanted = replace(wanted, model="lenet", executor="torch", model_kwargs={})
    met = max(steps for steps in range(6) if entry.rule.meets_after(steps))
    group = trained(wanted, met)
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


def test_the_furthest_is_the_source_and_of_several_the_first(trained: Any) -> None:
    """One that did a step more is taken from, by survivors and by one that was started again."""
    group = trained(experiment(agents=3), 4)
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


def test_the_residual_of_error_feedback_stays_with_its_agent(trained: Any) -> None:
    """What an agent has not sent yet is its own; Q, by which all project, is everyone's."""
    rule = d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.TopK(16, bucket=512)))
    group = trained(experiment(distributed=rule, agents=3, optimizer=d5.optimizers.SGD(0.05)), 4)
    left = group.agents[:2]
    residuals = [agent.connections.optimizer.memory["residual"].copy() for agent in left]
    assert np.abs(residuals[0] - residuals[1]).max() > 1e-6
    group.rejoin(left, d5.topologies.Complete(2))
    for agent, expected in zip(left, residuals, strict=True):
        assert np.array_equal(agent.connections.optimizer.memory["residual"], expected)


def test_the_outer_momentum_survives(trained: Any) -> None:
    """DiLoCo's outer state, and the model its period began with."""
    group = trained(experiment(distributed=d5.optimizers.DiLoCo(2), agents=3), 5)
    left = group.agents[:2]
    common = left[0].connections.optimizer.common.copy()
    outer = {name: np.array(value) for name, value in left[0].connections.optimizer.outer_state.items()}
    assert any(np.abs(value).max() > 0 for value in outer.values())
    group.rejoin(left, d5.topologies.Complete(2))
    for agent in left:
        assert np.array_equal(agent.connections.optimizer.common, common)
        for name, value in outer.items():
            assert np.array_equal(agent.connections.optimizer.outer_state[name], value)


def test_a_share_of_the_base_optimizers_state_that_died_is_said_to_begin_anew(trained: Any) -> None:
    """ZeRO's: the dead agent had the only copy of its slice."""
    group = trained(experiment(distributed=d5.optimizers.ShardedAllreduceSGD(), agents=3), 4)
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


def test_agents_that_differ_end_with_an_error_that_names_them(trained: Any) -> None:
    """On every agent, and never silently."""
    group = trained(experiment(distributed=NotAlike(), agents=3), 3)
    with pytest.raises(
        AgentError, match=r"differ after their group .* step 3 \(rank 0: .*, rank 1: .*one_model"
    ):
        group.rejoin(group.agents[:2], d5.topologies.Complete(2))


class Misspelt(NotAlike):
    shared_state = ("momentun",)


def test_state_that_is_not_there_is_refused_at_once(trained: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"'momentun' in shared_state .* no 'momentun' after start"):
        trained(experiment(distributed=Misspelt(), agents=2), 1)


def test_nothing_is_kept_where_a_death_ends_the_run() -> None:
    """Nor where agents do not wait for each other: a step costs what it did."""

    def committed(wanted: d5.Experiment) -> Committed | None:
        agent = TrainingAgent(0, wanted, "run", "node", Rows())
        agent.build(DIGITS)
        return agent.connections.committed

    assert committed(experiment()) is not None
    assert committed(experiment(on_failure="stop")) is None
    asynchronous = experiment(distributed=d5.optimizers.ASGD(), topology=d5.topologies.Complete(2), agents=2)
    assert committed(asynchronous) is None
