"""Claims about simulations whose agents are replaced while the others train on: events and numbers"""

import json
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.dashboards.disturbances import disturbances
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import AgentError, ConfigurationError
from d5ray.simulated.group import SimulatedGroup
from d5ray.simulated.newcomers import START_SECONDS
from d5ray.training.samplers.shards import Sharing
from tests.checked import assert_agreed
from tests.distributed.checkpoints.test_changing_sizes import PLANNED, Reference, experiment
from tests.distributed.regrouped import Regrouped

STEP_SECONDS = 0.5  # a newcomer comes four steps after a death
NO_NETWORK = d5.simulation.UniformLinks(latency_seconds=0.0, bytes_per_second=1e30)


def simulated(plan: d5.Faults, **values: Any) -> SimulatedGroup:
    given: dict[str, Any] = {"epochs": 30, "warmup_steps": 0}
    pace = d5.simulation.ConstantTime(STEP_SECONDS)
    return d5.simulate(experiment(**(given | values)), NO_NETWORK, pace, faults=plan)


def told(group: SimulatedGroup, *names: str) -> list[tuple[str, int, int]]:
    """Name, rank and step of what the run as a whole noted, in order."""
    rows = group.tables()["events"].to_pylist()
    found = [row for row in rows if row["name"] in names and row["agent"] == "driver"]
    return [(row["name"], row["rank"], json.loads(row["detail"]).get("step", -1)) for row in found]


def sizes(group: SimulatedGroup) -> list[tuple[int, int]]:
    """From which step on how many agents there were."""
    rows = [row for row in group.tables()["events"].to_pylist() if row["name"] == "agents_changed"]
    details = [json.loads(row["detail"]) for row in rows]
    return [(detail["step"], detail["agents"]) for detail in details]


def assert_computed(group: SimulatedGroup, changes: list[tuple[int, int]]) -> Reference:
    """All have the bits of the first, and the numbers of NumPy with so many agents from these steps on."""
    assert sizes(group) == changes
    wanted = group.experiment
    rng = np.random.default_rng(wanted.seed)
    rng.uniform(0.5, 1.0, 500)
    reference = Reference(wanted, rng.standard_normal(500))
    agents, done = PLANNED, 0
    for step, size in [*changes, (group.outcome.step, 0)]:
        reference.go_on(agents, step - done)
        agents, done = size, step
    found = [group.agents[rank].flat_parameters() for rank in group.left]
    assert all(np.array_equal(x, found[0]) for x in found)
    np.testing.assert_allclose(found[0], reference.x, rtol=1e-10, atol=1e-12)
    return reference


def assert_checked(group: SimulatedGroup) -> None:
    """What `d5ray check` says of the agreements of a run that is closed."""
    run = d5.Run(group.folder)
    assert_agreed(run)


@pytest.mark.parametrize("scale_rate", ["none", "linear"])
@pytest.mark.parametrize("keep_batch", ["agent", "global"])
def test_survivors_train_on_and_take_the_newcomer_in(keep_batch: str, scale_rate: str) -> None:
    """As NumPy does with two agents from step 3, three from step 7: each sample once an epoch."""
    wanted: dict[str, Any] = {"keep_batch": keep_batch, "scale_rate": scale_rate}
    with simulated(d5.Faults().kill(agent=1, at_step=3), **wanted) as group:
        assert group.train(epochs=3, progress=False).completed
        reference = assert_computed(group, [(3, 2), (7, 3)])
        assert (reference.epoch, reference.done) == (3, 0)  # no sample is left, none came twice
        assert told(group, "agent_died", "group_formed_again", "agent_joined") == [
            ("agent_died", 1, -1), ("group_formed_again", 1, 3), ("agent_joined", 1, 7),
        ]  # fmt: skip
    assert_checked(group)


@pytest.mark.parametrize(
    "values",
    [{}, {"distributed": d5.optimizers.DPSGD(), "topology": d5.topologies.Ring(PLANNED)}],
    ids=["allreduce", "D-PSGD"],
)
def test_real_agents_whose_group_changes_at_the_same_steps_have_the_same_bits(values: dict[str, Any]) -> None:
    """Agents in threads, with communicators as agents on Ray have them; by D-PSGD each has its own model."""
    with simulated(d5.Faults().kill(agent=2, at_step=3), **values) as group:
        assert group.train(12, progress=False).completed
        assert sizes(group) == [(3, 2), (7, 3)]
        found = [agent.flat_parameters() for agent in group.agents]
    real, topology = Regrouped(group.experiment), group.experiment.topology
    assert topology is not None
    real.join()
    real.train(3)
    for size, gone, count in ((2, {2}, 4), (3, set[int](), 5)):
        agents = [*real.agents[:2], *(real.made(2) for _ in range(size - 2))]
        real.rejoin(agents, survivors(topology, gone), [Sharing(size, rank) for rank in range(size)])
        real.agents = agents
        real.train(count)
    try:
        assert all(np.array_equal(each.flat_parameters(), found[each.rank]) for each in real.agents)
        assert np.array_equal(found[0], found[1]) == (not values)
    finally:
        real.close()


def test_it_repeats_to_the_last_bit_among_deaths_close_together() -> None:
    """Two die, a survivor as newcomers are taken in, one of these again: all places are taken in the end."""
    plan = (
        d5.Faults()
        .kill(agent=1, at_seconds=1.2)
        .kill(agent=2, at_seconds=1.3)
        .kill(agent=0, at_seconds=3.7)
        .kill(agent=2, at_seconds=6.1)
    )
    found = []
    for _ in range(2):
        with simulated(plan) as group:
            assert group.train(30, progress=False).completed
            assert group.left == [0, 1, 2]
            assert_computed(group, sizes(group))
            died = [rank for _, rank, _ in told(group, "agent_died")]
            joined = [rank for _, rank, _ in told(group, "agent_joined")]
            assert died == [1, 2, 0, 2] and sorted(joined) == [0, 1, 2, 2]
            found.append((group.seconds, group.agents[0].flat_parameters().tobytes(), sizes(group)))
        assert_checked(group)
    assert found[0] == found[1]


def test_too_few_survivors_wait_for_newcomers_or_end_the_run() -> None:
    """With 'replace' those that are left wait; with 'continue' the run says how many are left, and fails."""
    plan = d5.Faults().kill(agent=1, at_step=3).kill(agent=0, at_seconds=3 * STEP_SECONDS + 1.0)
    with simulated(plan, min_agents=3, max_failures=9) as group:
        assert group.train(12, progress=False).completed
        assert_computed(group, [(3, 3)])
        assert told(group, "waiting") == [("waiting", -1, -1)]
        assert group.seconds == pytest.approx(12 * STEP_SECONDS + 1.0 + START_SECONDS)
    with (
        simulated(plan, min_agents=3, on_failure="continue") as group,
        pytest.raises(AgentError, match="2 of 3 agents are left, and min_agents is 3: set a smaller"),
    ):
        group.train(12, progress=False)


def test_a_newcomer_that_is_not_ready_before_the_end_comes_in_the_next_training() -> None:
    """A newcomer takes four steps, the training ends two after the death; if it never comes, that is told."""
    for more in (True, False):
        with simulated(d5.Faults().kill(agent=1, at_step=3)) as group:
            assert group.train(5, progress=False).completed
            assert group.left == [0, 2]
            if more:
                assert group.train(10, progress=False).completed
                assert_computed(group, [(3, 2), (7, 3)])
    assert told(group, "agent_did_not_come") == [("agent_did_not_come", 1, -1)]
    events = d5.Run(group.folder).tables()["events"]
    assert any("agent 1 did not come" in line for line in disturbances(events))


def test_a_run_is_resized_on_purpose() -> None:
    """To one agent, and to three again; nobody dies, and NumPy computes the same."""
    with simulated(d5.Faults(), on_failure="stop", scale_rate="sqrt") as group:
        group.train(4, progress=False)
        d5.resize(group, agents=1)
        group.train(4, progress=False)
        assert group.left == [0]
        d5.resize(group, agents=3)
        group.train(epochs=1, progress=False)
        assert_computed(group, [(5, 1), (12, 3)])
        assert [rank for _, rank, _ in told(group, "agent_left")] == [2, 1]
        assert [rank for _, rank, _ in told(group, "agent_joined")] == [1, 2]
        with pytest.raises(ConfigurationError, match=r"agents is 4: it must be .* 3 at most"):
            d5.resize(group, agents=4)
    assert_checked(group)


def test_agents_at_different_steps_pause_before_the_same_one() -> None:
    """On a ring of eight agents are now and then a step ahead of others; nobody waits for one that paused."""
    wanted = experiment(
        distributed=d5.optimizers.DPSGD(), topology=d5.topologies.Ring(8), agents=8, batch_size=16
    )
    pace = d5.simulation.LogNormalTime(median_seconds=STEP_SECONDS, sigma=1.0)
    with d5.simulate(wanted, NO_NETWORK, pace, faults=d5.Faults().kill(agent=5, at_step=3)) as group:
        assert group.train(20, progress=False).completed
        assert group.left == list(range(8))
        assert [rank for _, rank, _ in told(group, "agent_joined")] == [5]
        agreed = [row for row in group.tables()["events"].to_pylist() if row["name"] == "agreed"]
        assert any(json.loads(row["detail"]).get("behind") for row in agreed)  # as one of them died
