"""Claims about runs whose agents and servers die at seeded moments: they go on, or end, as the policy says"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.group.run_row import RunOrigin, RunPlan
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.agent.outcome import Outcome
from tests.actors.looks import noted, processes
from tests.beside_kits import there
from tests.checked import agreements, assert_agreed
from tests.conftest import wait_until

DIGITS = d5.datasets.load_dataset("digits")
MOMENTUM = d5.optimizers.Momentum(0.03, 0.9)
SERVERS = d5.Servers(shards=2, snapshot_seconds=0.3)
EPOCHS = 12


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
    return d5.Experiment.from_values(**(values | changes))


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


@pytest.mark.slow
@pytest.mark.parametrize("on_failure", ["continue", "restart"])
@pytest.mark.parametrize("name", CASES)
def test_every_kind_of_optimizer_survives_kills(name: str, on_failure: str) -> None:
    """At seeded moments one agent is lost for good, or two are started again: all learn; events say so."""
    kills, rng = (1 if on_failure == "continue" else 2), np.random.default_rng(11)
    moments = [(float(rng.uniform(0.3, 2.5 * kills)), int(rng.integers(4))) for _ in range(kills)]
    with d5.launch(experiment(CASES[name], on_failure), quiet=True) as group:
        with killing(group, moments) as killed:
            outcome = group.train(progress=False)
        tables = group.tables()
        assert outcome.completed and outcome.step == EPOCHS * group.built.steps_per_epoch
        died = [row["rank"] for row in noted(group, "agent_died")]
        assert len(died) == len(killed)
        again = [row["rank"] for row in noted(group, "agent_restarted")]
        assert again == (died if on_failure == "restart" else [])
        accuracy = d5.metrics.TestAccuracy().estimate(tables).value
        assert accuracy is not None and accuracy > 0.5  # of the worst agent; chance is 0.1
        left = set(range(4)) - (set(died) if on_failure == "continue" else set())
        steps = {row["rank"] for row in tables["samples"].to_pylist() if row["metric"] == "test_accuracy"}
        assert steps >= left
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))


@pytest.mark.full
def test_an_agent_joins_late() -> None:
    """It is started when the others train already, and trains along from there; it is not replayed."""
    steps, slow = 700, d5.faults.ExponentialSlowdown(4.0)  # they wait more than they compute
    wanted = experiment(CASES["ASGD"], "stop", late=d5.faults.Late(3, 0.5), slow=slow, evaluate=False)
    with d5.launch(wanted, quiet=True) as group:
        assert group.agents[3] is None
        assert group.train(steps, progress=False).completed
        rows = group.metrics().to_pandas().query("metric == 'loss'").groupby("rank").step
        assert rows.min().tolist()[:3] == [0, 0, 0] and 0 < rows.min()[3] < steps
        assert rows.max().tolist() == [steps - 1] * 4
        assert rows.count()[3] == steps - rows.min()[3]
    with pytest.raises(d5.D5Error, match="cannot be replayed: an agent joined it late"):
        d5.replay(group.run_id)


@pytest.mark.full
def test_survivors_of_a_kill_have_one_model_and_say_so() -> None:
    """Parameters equal to the last bit; events say from whom and at which step; check sees a forged hash."""
    wanted = experiment(
        CASES["allreduce"], "continue", communicator="socket", evaluate=False,
        slow=d5.faults.ExponentialSlowdown(4.0),
    )  # fmt: skip
    with d5.launch(wanted, quiet=True) as group:
        with killing(group, [(0.5, 2)]) as killed:
            assert group.train(150, progress=False).completed
        assert killed == [2]
        left = [0, 1, 3]
        found = [group.parameters(rank) for rank in left]
        for other in found[1:]:
            for name, value in found[0].items():
                assert np.array_equal(value, other[name])
        tables = group.tables()
    told = [row | {"detail": json.loads(row["detail"])}
            for row in tables["events"].to_pylist() if row["name"] == "agreed"]  # fmt: skip
    (agreed,) = [row["detail"] for row in told if row["agent"] == "driver"]
    assert agreed["members"] == left and agreed["one_model"] and agreed["source"] in {0, 1, 3}
    assert agreed["new"] == []
    assert all(lost == 1 for lost in agreed["behind"].values())
    assert len(set(agreed["sha256"].values())) == 1
    own = [row["detail"]["sha256"] for row in told if row["rank"] >= 0]
    assert own == [agreed["sha256"]["0"]] * len(left)
    assert_agreed(d5.Run(group.folder))
    if there("laboratory"):
        assert_forgeries_are_seen(d5.Run(group.folder), agreed)


def assert_forgeries_are_seen(run: d5.Run, agreed: Any) -> None:
    """By `d5ray check`, in the run's events: another hash of a member's, and none at all."""
    events = run.tables()["events"]
    forged = events.to_pylist()
    for each in forged:
        if each["name"] == "agreed" and each["rank"] == 1:
            each["detail"] = each["detail"].replace(agreed["sha256"]["1"], "0" * 64)
    (text,) = agreements(run, events=pa.Table.from_pylist(forged, schema=events.schema))
    assert "rank 1: 000000000000…" in text and "must have the same" in text
    without = [each for each in forged if not (each["name"] == "agreed" and each["agent"] == "driver")]
    missing = agreements(run, events=pa.Table.from_pylist(without, schema=events.schema))
    assert missing and all("is not recorded" in each for each in missing)


class LeavesBeforeItDies(d5.DistributedOptimizer):
    """Synchronous SGD; agent 1 breaks its connections in its fifth step, and dies a second later."""

    def __init__(self, folder: str) -> None:
        self.folder, self.calls = folder, 0

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        self.calls += 1
        if self.communication.rank == 1 and self.calls == 5 and not any(Path(self.folder).iterdir()):
            (Path(self.folder) / "died").touch()
            self.communication.close()
            time.sleep(1.0)
            os.kill(os.getpid(), signal.SIGKILL)
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
    assert outcome.completed and outcome.step == 20
    named = [("agent_died", 1), ("group_formed_again", 1), ("agreed", -1), ("agents_changed", -1)]
    assert [(row["name"], row["rank"]) for row in noted(group)] == named


@pytest.mark.parametrize("on_failure", ["stop", "continue"])
def test_a_lost_peer_ends_the_run_at_once_where_the_policy_is_to_stop(on_failure: str) -> None:
    """Elsewhere it is waited until Ray tells of a death, and a group formed again where there is none."""
    none: Any = None  # nobody is called
    plan = RunPlan(experiment(CASES["allreduce"], on_failure), "r", Path(), RunOrigin(), none)
    calls = TrainCalls(plan, none, 9, none, none, none)
    calls.pending["a call"] = 1
    calls.keep(0, Outcome("peer_lost", 3))
    assert calls.failed == (on_failure == "stop") and not calls.parted
    calls.pending.clear()
    assert calls.parted == (on_failure == "continue")


CHUNK_BYTES = 200 << 20
MORE_SHARE = 0.15  # of the machine's memory that may be taken beside what is


class Grow(d5.Event):
    """Takes memory before step 5 of agent 1, once, until somebody ends it; a file says that it was."""

    def __init__(self, told: Path) -> None:
        self.told = str(told)

    def before_step(self, moment: d5.events.Moment) -> None:
        told = Path(self.told)
        if moment.rank != 1 or moment.step != 5 or told.exists():
            return
        told.touch()
        taken = []
        for _ in range(int(3 * MORE_SHARE * psutil.virtual_memory().total / CHUNK_BYTES)):
            taken.append(np.ones(CHUNK_BYTES, np.uint8))
            time.sleep(0.1)
        raise MemoryError("nobody ended an agent that took too much memory")


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An embedded Ray that ends processes when so much more of the memory is taken than now."""
    memory = psutil.virtual_memory()
    if memory.available < 4 * MORE_SHARE * memory.total:
        pytest.skip("the machine has too little memory left")
    d5.shutdown()
    taken = 1.0 - memory.available / memory.total
    monkeypatch.setenv("RAY_memory_usage_threshold", f"{taken + MORE_SHARE:.3f}")
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "1000")
    yield
    d5.shutdown()


@pytest.mark.full
@pytest.mark.usefixtures("little_memory")
def test_an_agent_that_ray_ends_as_memory_runs_short_is_started_again(tmp_path: Path) -> None:
    """Its calls end with `OutOfMemoryError`, no `RayActorError`: the policy holds, and the event says why."""
    experiment = d5.Experiment(
        "mlp", "digits", d5.optimizers.Momentum(0.05, 0.9), agents=3, batch_size=16, seed=3, evaluate=False,
        faults=d5.faults.FaultPolicy("restart"), cpus_per_agent=0.25, events=(Grow(tmp_path / "told"),),
    )  # fmt: skip
    with d5.launch(experiment, quiet=True) as group:
        assert group.train(20, progress=False).completed
    rows = d5.Run(group.folder).tables()["events"].to_pylist()
    died = [row for row in rows if row["name"] == "agent_died"]
    assert 1 in {row["rank"] for row in died}
    assert any("running low on memory" in row["detail"] for row in died)
