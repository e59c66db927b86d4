"""Claims about runs whose agents and servers die at seeded moments: they go on, or end, as the policy says"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray

import d5ray as d5
from d5ray.actors.cluster.placement import place_of
from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.servers.server_actors import ServerActors
from d5ray.errors import AgentError, ConfigurationError
from d5ray.recipes.engine.checking.agreements import agreements
from d5ray.recipes.engine.checking.folder import Folder
from tests.conftest import wait_until
from tests.patience import patience

DIGITS = d5.datasets.load_dataset("digits")
MOMENTUM = d5.optimizers.Momentum(0.03, 0.9)
SERVERS = d5.Servers(shards=2, snapshot_seconds=0.3)
EPOCHS = 12


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    """One embedded Ray for the module's launches, and none afterwards."""
    yield
    d5.shutdown()


@dataclass(frozen=True)
class Case:
    """An optimizer among four agents, at a rate with which it reaches 0.7 at least when nobody dies."""

    rule: d5.DistributedOptimizer
    base: d5.Optimizer = MOMENTUM
    topology: d5.Topology = field(default_factory=lambda: d5.topologies.Complete(4))
    servers: d5.Servers | None = None


CASES = {
    "ASGD": Case(d5.optimizers.ASGD(), d5.optimizers.SGD(0.05), servers=SERVERS),
    "parameter server": Case(d5.optimizers.ParameterServerSGD(), servers=SERVERS),
    "stale-synchronous": Case(d5.optimizers.StaleSynchronousSGD(2), d5.optimizers.SGD(0.3), servers=SERVERS),
    "EASGD": Case(d5.optimizers.EASGD(0.1, 4), servers=SERVERS),
    "AD-PSGD": Case(d5.optimizers.ADPSGD(), topology=d5.topologies.Ring(4)),
    "gradient push": Case(
        d5.optimizers.AsynchronousGradientPush(),
        d5.optimizers.Momentum(0.06, 0.9),
        topology=d5.topologies.DirectedRing(4),
    ),
    "overlap SGP": Case(
        d5.optimizers.OverlapSGP(1), d5.optimizers.Momentum(0.06, 0.9), topology=d5.topologies.DirectedRing(4)
    ),
    "random walk": Case(d5.optimizers.RandomWalkGossip(), topology=d5.topologies.Ring(4)),
    "D-PSGD": Case(d5.optimizers.DPSGD(), topology=d5.topologies.Ring(4)),
    "allreduce": Case(d5.optimizers.AllreduceSGD()),
}


def experiment(case: Case, on_failure: str, **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": case.base, "distributed": case.rule,
        "topology": case.topology, "servers": case.servers, "batch_size": 16, "seed": 3,
        "cpus_per_agent": 0.25, "epochs": EPOCHS, "on_failure": on_failure, "timeout_seconds": 40.0,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


@contextmanager
def killing(group: TrainingGroup, moments: list[tuple[float, int]]) -> Iterator[list[int]]:
    """SIGKILL to an agent by rank, after each of these seconds; gives the ranks that were killed.

    One that was killed is killed again when its place is known to be another process's.
    """
    killed: list[int] = []
    dead: set[int] = set()
    over = threading.Event()

    def run() -> None:
        begin = time.monotonic()
        for seconds, rank in sorted(moments):
            if over.wait(max(0.0, begin + seconds - time.monotonic())):
                return
            while (pid := group.places[rank].pid) in dead:
                if over.wait(0.01):
                    return
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            dead.add(pid)
            killed.append(rank)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def moments(seed: int, kills: int, low: float, high: float) -> list[tuple[float, int]]:
    """Seconds and ranks of 0 to 3, drawn from the seed."""
    rng = np.random.default_rng(seed)
    return [(float(rng.uniform(low, high)), int(rng.integers(4))) for _ in range(kills)]


def driver_events(tables: dict[str, pa.Table]) -> list[tuple[str, int]]:
    """(name, rank) of what the driver noted, beside the servers' loads."""
    rows = sorted(tables["events"].to_pylist(), key=lambda row: row["t_mono"])
    return [(r["name"], r["rank"]) for r in rows if r["agent"] == "driver" and r["name"] != "load"]


def processes(group: TrainingGroup) -> list[int]:
    """Those of the group's agents that still run."""
    return [place.pid for place in group.places if Path(f"/proc/{place.pid}").exists()]


def survive(case: Case, on_failure: str, seed: int, kills: int, more: int = 0) -> None:
    """Train through the kills, and more deaths: the run completes, learns, and says what happened."""
    wanted = experiment(case, on_failure)
    with d5.launch(wanted, quiet=True) as group:
        with killing(group, moments(seed, kills, 0.3, 2.5 * kills)) as killed:
            outcome = group.train(progress=False)
        tables = group.tables()
        assert outcome.completed and outcome.step == EPOCHS * group.built.steps_per_epoch
        noted = [rank for name, rank in driver_events(tables) if name == "agent_died"]
        assert len(noted) == len(killed) + more
        again = [rank for name, rank in driver_events(tables) if name == "agent_restarted"]
        assert again == (noted if on_failure == "restart" else [])
        accuracy = d5.metrics.TestAccuracy().estimate(tables).value
        assert accuracy is not None and accuracy > 0.5  # of the worst agent; chance is 0.1
        left = set(range(4)) - (set(noted) if on_failure == "continue" else set())
        steps = {row["rank"] for row in tables["samples"].to_pylist() if row["metric"] == "test_accuracy"}
        assert steps >= left
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ASGD", "AD-PSGD", "overlap SGP"])
def test_an_agent_joins_late(name: str) -> None:
    """It is started when the others train already, and trains along from there; it is not replayed."""
    steps, slow = 700, d5.faults.ExponentialSlowdown(4.0)  # they wait more than they compute
    wanted = experiment(CASES[name], "stop", late=d5.faults.Late(3, 0.5), slow=slow, evaluate=False)
    with d5.launch(wanted, quiet=True) as group:
        assert group.agents[3] is None
        assert group.train(steps, progress=False).completed
        rows = group.metrics().to_pandas().query("metric == 'loss'").groupby("rank").step
        assert rows.min().tolist()[:3] == [0, 0, 0] and 0 < rows.min()[3] < steps
        assert rows.max().tolist() == [steps - 1] * 4
        assert rows.count()[3] == steps - rows.min()[3]
        parameters = [
            np.concatenate([array.ravel() for array in group.parameters(rank).values()]) for rank in range(4)
        ]
        for found in parameters:
            assert np.linalg.norm(found - parameters[0]) < 0.6 * np.linalg.norm(parameters[0])
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))
    with pytest.raises(ConfigurationError, match="cannot be replayed: an agent joined it late"):
        d5.replay(group.run_id)


@pytest.mark.slow
def test_a_run_goes_on_through_kills_with_agents_started_again() -> None:
    """ASGD, two kills at seeded moments."""
    survive(CASES["ASGD"], "restart", seed=1, kills=2)


@pytest.mark.slow
def test_neighbours_of_one_that_is_killed_go_on_without_it() -> None:
    """AD-PSGD on a ring: its two neighbours become each other's."""
    survive(CASES["AD-PSGD"], "continue", seed=2, kills=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [11, 12])
@pytest.mark.parametrize("on_failure", ["continue", "restart"])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_optimizer_survives_kills(name: str, on_failure: str, seed: int) -> None:
    """At seeded moments: one agent is lost for good, or two are started again one after the other."""
    survive(CASES[name], on_failure, seed, kills=1 if on_failure == "continue" else 2)


def die_once(folder: str) -> None:
    """SIGKILL to the first process that comes here."""
    try:
        (Path(folder) / "died").touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DiesWhenFormedAgain(d5.DistributedOptimizer):
    """Synchronous SGD; one of the agents dies that form a group for the second time."""

    starts = 0

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def start(self) -> None:
        DiesWhenFormedAgain.starts += 1
        if DiesWhenFormedAgain.starts > 1:
            die_once(self.folder)

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


class DiesWhenItJoins(d5.DistributedOptimizer):
    """Pair averages; the first agent dies that comes in the place of another."""

    exchange = d5.ExchangeVia.PEERS

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def start(self) -> None:
        if not self.peers.complete:
            die_once(self.folder)

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.peers.average(self.peers.neighbors()[0])
        with self.peers.held(self.x):
            self.apply(gradient)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "on_failure"),
    [(DiesWhenFormedAgain, "restart"), (DiesWhenFormedAgain, "continue"), (DiesWhenItJoins, "restart")],
)
def test_another_agent_dies_while_the_first_is_replaced(
    rule: Callable[[str], d5.DistributedOptimizer], on_failure: str, tmp_path: Path
) -> None:
    """Two deaths, the second in the recovery of the first: the run goes on after both."""
    survive(Case(rule(str(tmp_path)), topology=d5.topologies.Ring(4)), on_failure, seed=2, kills=1, more=1)


def server_pid(group: TrainingGroup, number: int) -> int:
    servers: ServerActors = group._servers._servers[0, 0]
    place = ray.get(servers._shards[number].actor.__ray_call__.remote(place_of), timeout=patience(20))
    return int(place.pid)


def kill_servers(case: Case, seconds: list[float]) -> None:
    """Kill the first shard's process again and again; the run completes and its ledger has nothing twice."""
    with d5.launch(experiment(case, "continue"), quiet=True) as group:
        over = threading.Event()

        def run() -> None:
            for pause in seconds:
                pid = server_pid(group, 0)
                if not over.wait(pause):
                    os.kill(pid, signal.SIGKILL)
                    wait_until(lambda gone=pid: server_pid_or(group, gone) != gone, 30)  # type: ignore[misc]

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            outcome = group.train(progress=False)
        finally:
            over.set()
            thread.join(60)
        tables = group.tables()
        assert outcome.completed
        died = [name for name, _ in driver_events(tables) if name == "server_died"]
        assert died and len(died) == len([n for n, _ in driver_events(tables) if n == "server_restored"])
        accuracy = d5.metrics.TestAccuracy().estimate(tables).value
        assert accuracy is not None and accuracy > 0.5
        versions: dict[int, list[int]] = {0: [], 1: []}
        for row in tables["events"].to_pylist():
            if row["name"] == "push_pull":
                for shard, version in enumerate(json.loads(row["detail"])["versions"]):
                    versions[shard].append(version)
        pushes = len(versions[1])
        assert max(versions[1]) <= pushes and max(versions[0]) <= pushes  # no push is two updates


def server_pid_or(group: TrainingGroup, otherwise: int) -> int:
    try:
        return server_pid(group, 0)
    except Exception:
        return otherwise


@pytest.mark.slow
def test_a_server_that_is_killed_comes_back_with_its_last_snapshot() -> None:
    """ASGD with two shards: one is killed, and the agents find it again."""
    kill_servers(CASES["ASGD"], [0.8])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ASGD", "parameter server", "stale-synchronous", "EASGD"])
def test_servers_are_killed_twice(name: str) -> None:
    """Each time its state is that of the last snapshot."""
    kill_servers(CASES[name], [0.7, 0.9])


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["agent", "server"])
def test_without_a_policy_a_death_ends_the_run_with_a_clear_error(whom: str) -> None:
    """on_failure='stop': who died, and what is kept."""
    group = d5.launch(experiment(CASES["ASGD"], "stop"), quiet=True)
    pid: Callable[[], int] = (
        (lambda: group.places[1].pid) if whom == "agent" else (lambda: server_pid(group, 1))
    )
    victim = pid()
    name = "TrainingAgent(rank=1)" if whom == "agent" else "ParameterServer(shard=1)"
    with pytest.raises(AgentError) as caught, group:
        threading.Timer(0.7, os.kill, (victim, signal.SIGKILL)).start()
        group.train(progress=False)
    assert f"{name} died" in str(caught.value) and f"d5ray show {group.run_id}" in str(caught.value)
    assert d5.Run(group.folder).row["status"] == "failed"


def agreed_of(tables: dict[str, pa.Table]) -> list[dict[str, Any]]:
    """What the driver noted when a group was formed again, in order."""
    rows = sorted(tables["events"].to_pylist(), key=lambda row: row["t_mono"])
    return [json.loads(r["detail"]) for r in rows if r["name"] == "agreed" and r["agent"] == "driver"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("communicator", "on_failure"),
    [("socket", "continue"), pytest.param("shared_memory", "restart", marks=pytest.mark.slow)],
)
def test_survivors_of_a_kill_have_one_model_and_say_so(communicator: str, on_failure: str) -> None:
    """Parameters equal to the last bit; events say from whom and at which step; check sees a forged hash."""
    wanted = experiment(
        CASES["allreduce"], on_failure, communicator=communicator, evaluate=False,
        slow=d5.faults.ExponentialSlowdown(4.0),
    )  # fmt: skip
    with d5.launch(wanted, quiet=True) as group:
        with killing(group, [(0.5, 2)]) as killed:
            assert group.train(300, progress=False).completed
        assert killed == [2]
        left = [0, 1, 3] if on_failure == "continue" else [0, 1, 2, 3]
        found = [group.parameters(rank) for rank in left]
        for other in found[1:]:
            for name, value in found[0].items():
                assert np.array_equal(value, other[name])
        tables = group.tables()
    (agreed,) = agreed_of(tables)
    assert agreed["members"] == left and agreed["one_model"] and agreed["source"] in {0, 1, 3}
    assert agreed["new"] == ([] if on_failure == "continue" else [2])
    assert all(lost == 1 for lost in agreed["behind"].values())
    assert len(set(agreed["sha256"].values())) == 1
    own = [
        json.loads(r["detail"])
        for r in tables["events"].to_pylist()
        if r["name"] == "agreed" and r["rank"] >= 0
    ]
    assert [each["sha256"] for each in own] == [agreed["sha256"]["0"]] * len(left)
    run = d5.Run(group.folder)

    def broken(events: Any) -> list[str]:
        return list(agreements(Folder(run, run.row, {"events": events})))

    assert broken(tables["events"]) == []
    forged = tables["events"].to_pylist()
    for each in forged:
        if each["name"] == "agreed" and each["rank"] == 1:
            each["detail"] = each["detail"].replace(agreed["sha256"]["1"], "0" * 64)
    (text,) = broken(pa.Table.from_pylist(forged, schema=tables["events"].schema))
    assert "rank 1: 000000000000…" in text and "must have the same" in text
    without = [each for each in forged if not (each["name"] == "agreed" and each["agent"] == "driver")]
    told = broken(pa.Table.from_pylist(without, schema=tables["events"].schema))
    assert told and all("is not recorded" in each for each in told)


class LeavesBeforeItDies(d5.DistributedOptimizer):
    """Synchronous SGD; agent 1 breaks its connections in its fifth step, and dies a second later."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.calls = 0

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.calls += 1
        if self.communication.rank == 1 and self.calls == 5 and not any(Path(self.folder).iterdir()):
            self.communication.close()
            time.sleep(1.0)
            die_once(self.folder)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


@pytest.mark.full
def test_agents_that_lose_a_peer_before_its_death_is_known_go_on(tmp_path: Path) -> None:
    """The others say that they lost it, and Ray says that it died only after them."""
    wanted = experiment(
        Case(LeavesBeforeItDies(str(tmp_path)), d5.optimizers.SGD(0.1)), "continue", communicator="socket",
        evaluate=False,
    )  # fmt: skip
    with d5.launch(wanted, quiet=True) as group:
        outcome = group.train(20, progress=False)
        tables = group.tables()
    assert outcome.completed and outcome.step == 20
    named = [("agent_died", 1), ("group_formed_again", 1), ("agreed", -1), ("agents_changed", -1)]
    assert driver_events(tables) == named
