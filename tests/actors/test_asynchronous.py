"""Claims about agents that do not wait for each other, in threads and on real Ray: replayed in their order in
the simulation, they reach the same parameters"""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import d5ray as d5
from d5ray.distributed.simulation.arrival_order import Recorded, RecordedSchedule
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import EVENTS
from d5ray.metrics.record.store import RunWriter
from tests.agents import agents_in_threads
from tests.conftest import Head, d5ray
from tests.distributed.compression.test_plain_data import FirstOnly
from tests.distributed.leftovers import nothing_left
from tests.together import together

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
AGENTS = 3
STEPS = (5, 7)  # of two calls of train
PLAIN = d5.optimizers.SGD(0.05)


class Overlapping(d5.DistributedOptimizer):
    """ASGD whose pushes travel while the next gradient is computed; one of them is waited for late."""

    exchange = d5.ExchangeVia.SERVERS

    def start(self) -> None:
        self.pushed: list[Any] = []

    def step(self, batch: d5.Batch) -> None:
        gradient = self.gradient(batch)
        if len(self.pushed) == 2:
            self.pushed.pop(0).wait()
        self.server.pull(into=self.x)
        self.pushed.append(self.server.start.push(gradient))

    def finish(self) -> None:
        while self.pushed:
            self.pushed.pop().wait()
        self.server.pull(into=self.x)


class Everything(d5.DistributedOptimizer):
    """Pushes to servers, averages with neighbours and writes messages, all at once."""

    exchange = d5.ExchangeVia.SERVERS | d5.ExchangeVia.PEERS

    def step(self, batch: d5.Batch) -> None:
        self.server.push_pull(self.gradient(batch), into=self.x)
        neighbors = self.peers.neighbors(batch.step)
        self.peers.send(int(self.rng.choice(neighbors)), np.array([batch.step, self.peers.rank], np.float32))
        self.peers.average(int(self.rng.choice(neighbors)))
        own = np.zeros_like(self.x)
        with self.peers.held(own):
            for message in self.peers.receive():
                own += message.arrays[0].sum() * 1e-4
            own += 0.1 * (np.asarray(self.x) - own)

    def finish(self) -> None:
        self.peers.read(into=self.x)


def experiment(rule: d5.DistributedOptimizer, base: d5.Optimizer = PLAIN, **changes: Any) -> Experiment:
    """LeNet on digits among three agents, of which one computes three times as long as the others."""
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": base, "distributed": rule, "batch_size": 16,
        "seed": 3, "cpus_per_agent": 0.25, "evaluate": False, "timeout_seconds": 60.0,
        "slow": d5.faults.Slowdown(agent=2, factor=3),
    }  # fmt: skip
    if "topology" not in changes:
        values["agents"] = AGENTS
    return Experiment(**(values | changes))


MOMENTUM = d5.optimizers.Momentum(0.02, 0.5)
RING, CYCLE = d5.topologies.Ring(AGENTS), d5.topologies.DirectedRing(AGENTS)
FAMILIES: dict[str, Experiment] = {
    "ASGD": experiment(d5.optimizers.ASGD(), servers=d5.Servers(shards=2)),
    "ASGD with momentum": experiment(d5.optimizers.ASGD(), MOMENTUM),
    "ASGD compressed": experiment(
        d5.optimizers.ASGD(compressor=d5.compression.TopK(0.05)), servers=d5.Servers(shards=2)
    ),
    "ASGD quantized": experiment(
        d5.optimizers.ASGD(compressor=d5.compression.QSGD(bits=4)), servers=d5.Servers(shards=3)
    ),
    "ASGD by a user's own compressor": experiment(
        d5.optimizers.ASGD(compressor=FirstOnly(200)), servers=d5.Servers(2)
    ),
    "ASGD in groups": experiment(d5.optimizers.ASGD(), MOMENTUM, servers=d5.Servers(shards=2, groups=2)),
    "stale-synchronous": experiment(d5.optimizers.StaleSynchronousSGD(1), servers=d5.Servers(shards=3)),
    "staleness-aware": experiment(d5.optimizers.StalenessAwareSGD(), servers=d5.Servers(shards=2)),
    "DC-ASGD": experiment(d5.optimizers.DelayCompensatedASGD(0.1, 0.9)),
    "Downpour": experiment(d5.optimizers.Downpour(3, 2)),
    "EASGD": experiment(
        d5.optimizers.EASGD(0.1, 3), d5.optimizers.Nesterov(0.03, 0.9), servers=d5.Servers(shards=2)
    ),
    "asynchronous local SGD": experiment(d5.optimizers.AsynchronousLocalSGD((4, 4, 2))),
    "asynchronous DiLoCo": experiment(
        d5.optimizers.AsynchronousDiLoCo(2, d5.optimizers.Nesterov(0.7, 0.5), delay=4)
    ),
    "AD-PSGD": experiment(d5.optimizers.ADPSGD(), MOMENTUM, topology=RING),
    "asynchronous gradient push": experiment(
        d5.optimizers.AsynchronousGradientPush(), MOMENTUM, topology=CYCLE
    ),
    "overlap SGP": experiment(
        d5.optimizers.OverlapSGP(1), MOMENTUM, topology=d5.topologies.OnePeerExponential(4)
    ),
    "gossip": experiment(d5.optimizers.RandomWalkGossip(), MOMENTUM, topology=RING),
    "handles": experiment(Overlapping(), servers=d5.Servers(shards=2)),
    "everything": experiment(Everything(), topology=RING, servers=d5.Servers(shards=2)),
}


UNEVEN = d5.simulation.LogNormalTime(median_seconds=1e-3, sigma=1.0)


# -- in threads ----------------------------------------------------------------------------------------------


def in_threads(wanted: Experiment, steps: Sequence[int] = STEPS) -> tuple[Array, list[dict[str, Any]]]:
    """The parameters of all agents (agents, n) at the end, and the rows of their events."""
    with agents_in_threads(wanted, DIGITS) as (agents, sinks):
        for count in steps:
            training = set(range(len(agents)))

            def train(rank: int, count: int = count, training: set[int] = training) -> None:
                outcome = agents[rank].train(count)
                assert outcome.completed, outcome.reason
                training.discard(rank)
                if not training:
                    for agent in agents:
                        agent.over()
                if wanted.distributed_optimizer.has_idle_rounds:
                    agents[rank].idle()

            together(train, len(agents))
            if wanted.distributed_optimizer.asynchronous:
                together(lambda rank: agents[rank].drain(), len(agents))
                together(lambda rank: agents[rank].conclude(), len(agents))
        found = np.stack([agent.flat_parameters() for agent in agents])
        return found, [event for sink in sinks for event in sink.sent_events]


def in_simulation(wanted: Experiment, schedule: RecordedSchedule, folder: Path) -> Array:
    """The parameters of all agents (agents, n) after the same operations in the same order."""
    order = Recorded(schedule)
    with d5.simulate(wanted, order=order, root=folder) as group:
        for count in STEPS:
            group.train(count, progress=False)
        found = np.stack([agent.flat_parameters() for agent in group.agents])
    order.check()
    return found


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "ASGD in groups"])  # needs a driver
def test_agents_in_threads_are_replayed_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """Every asynchronous optimizer, in two calls of train; agents came in between each other's operations,
    and in another order the same agents do something else. Nothing of the agents and servers is left."""
    wanted = FAMILIES[name]
    with nothing_left():
        found, events = in_threads(wanted)
    assert wanted.agents is not None
    schedule = RecordedSchedule.of(events, wanted.resolved_servers, wanted.agents)
    assert entangled(schedule)
    np.testing.assert_array_equal(in_simulation(wanted, schedule, tmp_path), found)
    others = (in_own_order(wanted, compute, tmp_path) for compute in (d5.simulation.ConstantTime(), UNEVEN))
    assert any(np.abs(other - found).max() > 1e-6 for other in others)


def in_own_order(wanted: Experiment, compute: d5.simulation.ComputeTime, folder: Path) -> Array:
    """The parameters of all agents (agents, n) of a simulation that goes by its own clock."""
    with d5.simulate(wanted, compute=compute, root=folder) as group:
        for count in STEPS:
            group.train(count, progress=False)
        return np.stack([agent.flat_parameters() for agent in group.agents])


def entangled(schedule: RecordedSchedule) -> bool:
    """Whether agents did not simply come one after the other."""
    places = [[rank for rank, _ in requests] for requests in schedule.requests.values()]
    changes = [sum(a != b for a, b in pairwise(ranks)) for ranks in places]
    return not places or max(changes) > AGENTS


def relative(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


# -- on Ray --------------------------------------------------------------------------------------------------

Launch = Callable[..., "Launched"]


class Launched:
    """A run on real Ray that has ended: its folder, the agents' parameters (agents, n) and tables."""

    def __init__(self, group: Any, steps: Sequence[int], **how: Any) -> None:
        with group:
            for count in steps:
                group.train(count, progress=False)
            self.parameters = np.stack([flat(group.parameters(rank)) for rank in range(len(group.agents))])
            self.run_id, self.folder = group.run_id, group.folder

    @property
    def run(self) -> Run:
        return Run(self.folder)


def flat(parameters: dict[str, Array]) -> Array:
    return np.concatenate([array.ravel() for array in parameters.values()])


@pytest.fixture(scope="module")
def launch(head: Head) -> Iterator[Launch]:
    """Runs an experiment on the head's cluster."""

    def start(wanted: Experiment, steps: Sequence[int] = STEPS) -> Launched:
        return Launched(d5.launch(wanted, address=head.address, quiet=True), steps)

    d5.shutdown()
    yield start
    d5.shutdown()


@pytest.fixture(scope="module")
def asgd(launch: Launch) -> Launched:
    """A run of ASGD with two shards."""
    return launch(FAMILIES["ASGD"])


ON_RAY = ["ASGD", "ASGD in groups", "overlap SGP", "everything"]  # by each way that messages go


@pytest.mark.full
@pytest.mark.parametrize(
    "name", ["ASGD", *(pytest.param(name, marks=pytest.mark.slow) for name in ON_RAY[1:])]
)
def test_agents_on_ray_are_replayed_to_the_last_bit(name: str, launch: Launch, request: Any) -> None:
    """Of ASGD every push and pull is in the events table, once at each shard: a pull, 12 pushes, two final
    pulls; also with groups of servers all agents end with the same parameters."""
    launched = request.getfixturevalue("asgd") if name == "ASGD" else launch(FAMILIES[name])
    replayed = d5.replay(launched.run_id)
    assert replayed.agrees and replayed.difference == 0.0
    assert (replayed.run_id, replayed.steps) == (launched.run_id, sum(STEPS))
    if name == "ASGD":
        assert replayed.operations == 2 * AGENTS * (1 + sum(STEPS) + len(STEPS))
    if "ASGD" in name:
        found = launched.parameters
        np.testing.assert_array_equal(found, np.broadcast_to(found[0], found.shape))


@pytest.mark.slow
def test_hogwild_learns_on_one_array_that_all_processes_share(launch: Launch) -> None:
    """Agents without a lock: the same parameters on all of them to the last bit, by which three digits of
    four are read. Such a run cannot be replayed, and the error says why."""
    steps_per_epoch = -(-len(DIGITS.train) // (AGENTS * 16))
    wanted = experiment(d5.optimizers.Hogwild(), d5.optimizers.SGD(0.1), evaluate=True)
    launched = launch(wanted, (8 * steps_per_epoch,))
    for found in launched.parameters:
        np.testing.assert_array_equal(found, launched.parameters[0])
    accuracy = launched.run.tables()["samples"].to_pandas().query("metric == 'test_accuracy'")
    assert accuracy.sort_values("step").groupby("rank").value.last().min() >= 0.75
    with pytest.raises(
        ConfigurationError, match=r"cannot be replayed: the updates of Hogwild.* have no order"
    ):
        d5.replay(launched.run_id)


def test_a_run_that_kept_no_schedule_or_did_not_complete_is_not_replayed(tmp_path: Path) -> None:
    """A simulated one kept none; one that was interrupted is refused by its status."""
    with d5.simulate(FAMILIES["ASGD"], root=tmp_path) as group:
        group.train(1, progress=False)
    run = Run(group.folder)
    with pytest.raises(ConfigurationError, match=r"kept no schedule, .* such as ASGD\(\), are replayed"):
        d5.replay(run)
    RunWriter(tmp_path, run.name).update_run(status="interrupted")
    with pytest.raises(ConfigurationError, match="is interrupted: only a completed run can be replayed"):
        d5.replay(run)


# -- runs that did something else ----------------------------------------------------------------------------

Rows = list[dict[str, Any]]


def copied(launched: Launched, home: Path, change: Callable[[Rows], None] | None = None) -> Path:
    """A copy of a run in another D5RAY_HOME; `change` gets its pushes and pulls, with detail as data."""
    folder: Path = home / "runs" / launched.run_id
    shutil.copytree(launched.folder, folder)
    rows = pa.parquet.read_table(folder / "events.parquet").to_pylist()
    operations = [row for row in rows if row["name"] in ("push_pull", "pull")]
    for row in operations:
        row["detail"] = json.loads(row["detail"])
    if change is not None:
        change(operations)
    for row in operations:
        row["detail"] = json.dumps(row["detail"])
    left = [row for row in rows if row not in operations or row["detail"] != "null"]
    pa.parquet.write_table(pa.Table.from_pylist(left, schema=EVENTS), folder / "events.parquet")
    return folder


def neighbours(operations: Rows) -> tuple[list[int], list[int]]:
    """The places of two pushes of different agents that came to the first shard one after the other."""
    pushes = [row for row in operations if row["name"] == "push_pull"]
    pushes.sort(key=lambda row: row["detail"]["orders"][0])
    for first, second in pairwise(pushes):
        one, other = first["detail"]["orders"], second["detail"]["orders"]
        if first["rank"] != second["rank"] and other[0] == one[0] + 1 and second["step"] < 8:
            return one, other
    raise AssertionError("no agent came after another one")


def swap(one: list[int], other: list[int], count: int = 2) -> None:
    """Exchange places at these many shards."""
    one[:count], other[:count] = other[:count], one[:count]


def own(operations: Rows) -> list[list[int]]:
    return [row["detail"]["orders"] for row in operations if (row["rank"], row["name"]) == (1, "push_pull")]


# at the other shard too, if there an agent waits first whose turn comes after one that stands at this shard
STILL = r"cannot be replayed: .* before one that it waits for .*ParameterServer\(shard=[01]\)"
IMPOSSIBLE: list[tuple[Callable[[Rows], None], str]] = [
    (lambda rows: swap(own(rows)[0], own(rows)[1]), STILL),  # an agent's second push came before its first
    (lambda rows: rows[5]["detail"].update(number=1000), STILL),  # one that the agent did not do
    (lambda rows: rows[20].update(detail=None), r"of 45 operations .* its events table has 44"),
]


@pytest.mark.full
@pytest.mark.parametrize(("change", "words"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_an_order_that_no_run_can_have_is_refused(
    change: Callable[[Rows], None], words: str, asgd: Launched, tmp_path: Path
) -> None:
    """With an error instead of a verdict, that says where the replay stands still or what is missing."""
    with pytest.raises(ConfigurationError, match=words):
        d5.replay(Run(copied(asgd, tmp_path, change)))


@pytest.mark.full
def test_a_run_whose_order_or_parameters_are_others_does_not_agree(asgd: Launched, tmp_path: Path) -> None:
    """Two neighbouring pushes of different agents exchanged at all shards or one, or one of 20,000 parameters
    of one agent changed by a thousandth of all: others, exit code 1; of another version it is refused."""
    for shards in (2, 1):
        home = tmp_path / str(shards)

        def exchanged(operations: Rows, shards: int = shards) -> None:
            swap(*neighbours(operations), shards)

        replayed = d5.replay(Run(copied(asgd, home, exchanged)))
        assert not replayed.agrees and replayed.tolerance < replayed.difference < 0.1
    done = d5ray("replay", asgd.run_id[:-2], env={"D5RAY_HOME": str(home)})
    assert done.code == 1 and "FAIL" in done.out and not done.left(), done
    folder = copied(asgd, tmp_path / "parameters")
    done = d5ray("replay", "last", "--json", env={"D5RAY_HOME": str(tmp_path / "parameters")})
    assert (done.code, done.json["agrees"], done.json["difference"]) == (0, True, 0.0), done
    with np.load(folder / "parameters.npz") as kept:
        parameters = {name: kept[name].copy() for name in kept.files}
    assert sorted(parameters) == [str(rank) for rank in range(AGENTS)]
    parameters["2"][7] += 1e-3 * float(np.linalg.norm(parameters["2"]))
    np.savez(folder / "parameters.npz", allow_pickle=False, **parameters)
    assert d5.replay(Run(folder)).difference == pytest.approx(1e-3, rel=0.01)
    RunWriter(folder.parent, folder.name).update_run(d5ray_version="0.0.1")
    with pytest.raises(ConfigurationError, match=r"made by d5ray 0\.0\.1, this is .*: replay it with"):
        d5.replay(Run(folder))
