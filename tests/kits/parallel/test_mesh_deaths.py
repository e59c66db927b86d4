"""Claims about deaths in meshes: the other replicas have one model, and go on as whole networks do"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.checkpoints.rollback import NOTHING, RestartPoint
from d5ray.kits.parallel.mesh.mesh import Mesh
from d5ray.kits.parallel.pipeline.executor import PipelineExecutor
from d5ray.training.datasets.catalogue import load_dataset
from tests.agents import shares_of
from tests.distributed.regrouped import Regrouped
from tests.kits.parallel.mortal import Death, float64_mlp, killed, without
from tests.together import together

Array = np.ndarray[Any, Any]
DIGITS = load_dataset("digits")
LAST = 12
COMPLETE = d5.topologies.Complete


NETWORK = float64_mlp(DIGITS)
PRODUCTS = [node.name for node in NETWORK.nodes if node.type in ("Gemm", "MatMul")]
SPLIT: dict[str, Any] = {PRODUCTS[0]: d5.networks.ByColumns(), PRODUCTS[1]: d5.networks.ByRows()}
IN_STAGES, IN_PARTS = Mesh(3, 2, micro_batches=2), Mesh(3, 1, parts=2, split=SPLIT, micro_batches=2)
BOTH = Mesh(3, 2, parts=2, split=SPLIT, micro_batches=2)


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": NETWORK, "executor": "numpy", "dataset": DIGITS, "optimizer": d5.optimizers.Adam(0.01),
        "mesh": IN_STAGES, "batch_size": 12, "seed": 3, "evaluate": False, "on_failure": "continue",
        "timeout_seconds": 30.0,
    }  # fmt: skip
    return d5.Experiment.from_values(**(given | values))


class Members(Regrouped):
    """Agents in threads, which form one group after another."""

    def rejoined(self, left: list[int], topology: d5.Topology) -> dict[int, RestartPoint]:
        """As after the death of all others."""
        agreed = self.rejoin([self.agents[rank] for rank in left], topology)
        return dict(zip(left, agreed, strict=True))

    def go_on(self, ranks: list[int], steps: int) -> None:
        done = together(lambda at: self.agents[ranks[at]].train(steps), len(ranks))
        assert all(outcome.completed for outcome in done), done

    def networks(self) -> dict[int, dict[str, Array]]:
        """The parameters of every replica's whole network."""
        mesh, held = self.wanted.mesh, {rank: agent.parameters() for rank, agent in enumerate(self.agents)}
        if mesh is None:
            return held
        shares = shares_of(self.wanted, DIGITS)
        return {replica: shares.whole(held, replica) for replica in range(mesh.replicas)}


@contextmanager
def made(wanted: d5.Experiment, steps: int) -> Iterator[Members]:
    """All agents, who have joined and done so many steps."""
    with closing(Members(wanted)) as members:
        members.join()
        members.train(steps)
        yield members


def expected(wanted: d5.Experiment, left: list[int], step: int, last: int) -> dict[int, dict[str, Array]]:
    """What agents with the whole network have, of which these are left from this step on."""
    with made(without(wanted), step) as members:
        members.rejoined(left, COMPLETE(len(left)))
        members.go_on(left, last - step)
        networks = members.networks()
        return {replica: networks[replica] for replica in left}


def assert_close(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert np.linalg.norm(found[name] - value) <= 1e-10 * np.linalg.norm(value), name


@pytest.mark.parametrize(
    ("mesh", "rule"),
    [
        (IN_STAGES, d5.optimizers.AllreduceSGD()),
        (IN_PARTS, d5.optimizers.AllreduceSGD()),
        (BOTH, d5.optimizers.LocalSGD(2)),
        (IN_STAGES, d5.optimizers.DPSGD()),
        (Mesh(3, micro_batches=2), d5.optimizers.AllreduceSGD()),
    ],
    ids=["stages", "parts", "both", "gossip", "replicas alone"],
)
@pytest.mark.parametrize("orphans", ["left_out", "taken_over"])
def test_the_other_replicas_go_on_as_agents_with_whole_networks_do(
    mesh: Mesh, rule: d5.DistributedOptimizer, orphans: str
) -> None:
    """Without one in the middle, with momenta as they were, each with the data of its own, since they met."""
    met = rule.met_before(5)
    wanted = experiment(mesh=mesh, distributed=rule, topology=COMPLETE(3), orphans=orphans)
    left = [rank for rank in range(mesh.agents) if mesh.seat(rank).replica != 1]
    with made(wanted, 5) as members:
        agreed = members.rejoined(left, COMPLETE(2))
        assert {each.step for each in agreed.values()} == {met}
        members.go_on(left, LAST - met)
        networks = members.networks()
    for replica, parameters in expected(wanted, [0, 2], met, LAST).items():
        assert_close(networks[replica], parameters)


@pytest.mark.parametrize("ahead", [{0}, {3}, {0, 4}, {1, 5}, {0, 1}, {0, 1, 5}])
def test_a_network_goes_back_to_a_step_that_all_its_stages_have_done(ahead: set[int]) -> None:
    """Whoever is a step ahead of another stage of his network goes back; a whole network ahead is taken."""
    with made(experiment(), 4) as members:
        kept = [agent.parameters() for agent in members.agents]
        for rank in ahead:
            agent = members.agents[rank]
            agent.executor.parameters[...] += 1.0 + rank % 2
            agent.connections.commit(5)
        further = [agent.parameters() for agent in members.agents]
        agreed = members.rejoined([0, 1, 4, 5], COMPLETE(2))
        whole = {0, 1} <= ahead
        assert {each.step for each in agreed.values()} == {5 if whole else 4}
        for rank in (0, 1, 4, 5):
            source = (further if whole else kept)[rank % 2]
            assert all(
                np.array_equal(members.agents[rank].parameters()[name], source[name]) for name in source
            )


def test_a_replica_of_which_an_agent_was_started_again_takes_the_state_of_another() -> None:
    """All of it: what the others of that replica have is of no use without the one that died."""
    with made(experiment(on_failure="restart"), 5) as members:
        members.agents[0].leave()
        members.agents[0] = members.made(0)
        agreed = members.rejoined(list(range(6)), COMPLETE(3))
        assert agreed[0].steps == agreed[1].steps == (NOTHING, 5, 5) and agreed[0].source == 1
        members.train(LAST - 5)
        networks = members.networks()
    with made(experiment(on_failure="restart"), LAST) as undisturbed:
        for replica, parameters in undisturbed.networks().items():
            assert all(np.array_equal(networks[replica][name], parameters[name]) for name in parameters)


def test_where_no_replica_is_whole_all_go_back_to_a_checkpoint(tmp_path: Any) -> None:
    """One agent of each was started again: the end is that of an undisturbed run, bit for bit."""
    event = d5.events.Checkpoint(tmp_path, every_steps=4, keep=5)
    wanted = experiment(mesh=Mesh(2, 2), on_failure="restart", events=(event,))
    with made(replace(wanted, events=()), LAST) as undisturbed:
        whole = undisturbed.networks()
    with made(wanted, 5) as members:
        members.rejoined(list(range(4)), COMPLETE(2))  # after a death before: the data go on from there
        members.train(1)
        for rank in (0, 3):
            members.agents[rank].leave()
            members.agents[rank] = members.made(rank)
        groups = members.groups(4)
        given = (str(tmp_path), 4), None
        agreed = together(lambda rank: members.agents[rank].begin_again(groups[rank], given), 4)
        assert {each.step for each in agreed} == {4} and len({each.sha256 for each in agreed}) == 2
        members.train(LAST - 4)
        for replica, parameters in members.networks().items():
            assert all(np.array_equal(whole[replica][name], parameters[name]) for name in parameters)


def death_of(mesh: Mesh, seed: int) -> Death:
    """Of an agent drawn from the seed, at a step and an instant of it likewise."""
    rng = np.random.default_rng([23, seed])
    return Death(int(rng.integers(mesh.agents)), int(rng.integers(3, 8)), float(rng.uniform(0.0, 1.2)))


@pytest.mark.full
@pytest.mark.parametrize("mesh", [IN_STAGES, IN_PARTS], ids=["stages", "parts"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("backend", ["socket", "shared_memory"])
def test_a_death_at_any_instant_of_a_step_leaves_one_model(mesh: Mesh, seed: int, backend: str) -> None:
    """SIGKILL to a process: the others' replicas are equal, share by share, and go on as they should."""
    death = death_of(mesh, seed)
    wanted = experiment(mesh=mesh, communicator=backend, events=(death,))
    found = killed(wanted, DIGITS, [death], 4)
    left = sorted({0, 1, 2} - {mesh.seat(death.agent).replica})
    (step,) = {each.agreed.step for each in found.values()}
    assert step >= death.at_step
    shares = shares_of(wanted, DIGITS)
    networks = [shares.whole({rank: each.after for rank, each in found.items()}, at) for at in left]
    for name, value in networks[0].items():
        assert np.array_equal(networks[1][name], value), name
    assert len({each.passes for each in found.values()}) == 1
    for replica, parameters in expected(wanted, left, step, step + 4).items():
        assert_close(networks[left.index(replica)], parameters)


def test_passes_are_drawn_again_after_a_step_that_did_not_count() -> None:
    """Parts of a stage draw the same masks, also where one was a pass further when a peer died."""
    with made(experiment(mesh=BOTH), 3) as members:
        executor = members.agents[0].executor
        assert isinstance(executor, PipelineExecutor)
        executor.executor.begin_pass()
        members.rejoined(list(range(8)), COMPLETE(2))
        passes = {agent.executor.random_state().tobytes() for agent in members.agents[:8]}
        assert passes == {np.array([3], np.int64).tobytes()}


def test_who_is_told_too_late_does_not_pause_alone_and_a_pause_costs_no_bit() -> None:
    """One stage was told of a step that it had begun; then all pause before a later one, and go on."""
    with made(experiment(on_failure="stop"), 5) as members:
        assert not members.agents[1].pause(5)
        assert all(agent.pause(8) for agent in members.agents)
        done = together(lambda rank: members.agents[rank].train(LAST - 5), 6)
        assert [(outcome.status, outcome.step) for outcome in done] == [("paused", 8)] * 6
        members.train(LAST - 8)
        paused = members.networks()
    with made(experiment(on_failure="stop"), LAST) as members:
        calm = members.networks()
    for replica, network in calm.items():
        assert all(np.array_equal(paused[replica][name], value) for name, value in network.items())
