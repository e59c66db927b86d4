"""The views of a run, against NumPy on the same numbers and against the metrics of d5ray."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.actors.group.run_row import RunOrigin
from d5ray.distributed.topologies.picture import MOST_EDGES
from d5ray.distributed.topologies.topology import drawn
from d5ray.errors import StorageError
from d5ray.metrics.definitions import asynchrony
from d5ray.metrics.definitions.catalogue import metric_named
from d5ray.metrics.judge.criteria import Criterion
from d5ray.metrics.record import store
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES, table_of
from d5ray.metrics.record.store import RunWriter
from d5ray.metrics.views import communication, consensus, events, key_figures, steps, time_series, verdicts
from d5ray.metrics.views.growing_streams import Growing
from d5ray.metrics.views.view import RunView, opened

BEGIN = 1_000_000_000_000_000_000  # ns: any time on the wall


class Fed:
    """A run whose agents' rows are written by hand: step s of every agent ends at (s + 1) · 10 ms."""

    def __init__(self, root: Path, agents: int, **row: Any) -> None:
        self.writer = RunWriter(root, "fed")
        self.writer.open({"agents": agents, "started": datetime.now(UTC)} | row)
        self.now = 0
        self.recorders = [
            Recorder(
                run_id="fed", agent=f"TrainingAgent(rank={rank})", rank=rank, node="n", attempt=0,
                send=self.writer.append, send_events=self.writer.append_events,
                now=lambda: self.now, wall_minus_mono=BEGIN,
            )
            for rank in range(agents)
        ]  # fmt: skip

    def step(self, step: int, **values: list[float]) -> None:
        """A value for each agent of each of these metrics."""
        self.now = (step + 1) * 10_000_000
        for name, of_agents in values.items():
            for recorder, value in zip(self.recorders, of_agents, strict=True):
                recorder.record(name, value, step=step, epoch=0, phase="train")

    def flush(self) -> None:
        for recorder in self.recorders:
            recorder.flush()

    def close(self) -> None:
        self.flush()
        self.writer.update_run(status="completed", ended=datetime.now(UTC))
        self.writer.close()


@pytest.fixture
def fed(tmp_path: Path) -> Iterator[Callable[..., Fed]]:
    made: list[Fed] = []

    def make(agents: int = 2, **row: Any) -> Fed:
        made.append(Fed(tmp_path, agents, **row))
        return made[-1]

    yield make
    for each in made:
        each.writer.leave()


SMALL: dict[str, Any] = {
    "model": "mlp", "dataset": "digits", "executor": "numpy", "optimizer": d5.optimizers.SGD(0.05), "seed": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Runs of four kinds, thirty steps each."""
    root = tmp_path_factory.mktemp("runs")
    kinds: dict[str, dict[str, Any]] = {
        "allreduce": {"agents": 4},
        "gossip": {"topology": d5.topologies.Ring(6), "distributed": d5.optimizers.DPSGD()},
        "servers": {
            "agents": 3, "distributed": d5.optimizers.ASGD(), "servers": d5.Servers(shards=2),
            "slow": d5.faults.Slowdown(agent=2, factor=3),
        },
        "pairs": {"topology": d5.topologies.Ring(4), "distributed": d5.optimizers.ADPSGD()},
    }  # fmt: skip
    criteria = [metric_named("test_accuracy") >= 0.1, metric_named("step_time") <= 1e-9]
    found = {}
    for name, kind in kinds.items():
        told = json.dumps([criterion.described() for criterion in criteria])
        with d5.simulate(
            d5.Experiment(**SMALL, **kind), root=root, origin=RunOrigin(recipe=name, criteria=told)
        ) as group:
            group.train(steps=70, progress=False)
        found[name] = Run(group.folder)
    return found


def rows(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist()
    return found


# -- following a run -----------------------------------------------------------------------------------------


def test_a_growing_stream_gives_every_batch_once(fed: Callable[..., Fed]) -> None:
    """New rows come once, and only new bytes are read; a piece that is cut off comes when it is complete."""
    run = fed(1)
    file = run.writer.folder / "samples.arrows"
    growing = Growing(file, SAMPLES)
    assert growing.read() == []
    run.step(0, loss=[1.0])
    run.flush()
    first = file.stat().st_size
    assert [batch["value"].to_pylist() for batch in growing.read()] == [[1.0]]
    assert growing.read() == []
    run.step(1, loss=[2.0], samples=[32.0])
    run.flush()
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    assert growing.read() == []
    file.write_bytes(b"x" * first + whole[first:])  # what was read is not looked at again
    assert [batch["value"].to_pylist() for batch in growing.read()] == [[2.0, 32.0]]


def test_a_stream_longer_than_a_piece_is_read_whole(
    fed: Callable[..., Fed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches larger than what is read at once arrive too."""
    monkeypatch.setattr("d5ray.metrics.views.growing_streams.PIECE_BYTES", 100)
    run = fed(1)
    for step in range(50):
        run.step(step, loss=[float(step)])
    run.flush()
    growing, found = Growing(run.writer.folder / "samples.arrows", SAMPLES), list[float]()
    while batches := growing.read():
        found += [value for batch in batches for value in batch["value"].to_pylist()]
    assert found == [float(step) for step in range(50)]


def test_a_view_follows_a_run_to_its_end(fed: Callable[..., Fed]) -> None:
    """What is asked of a running run is what is there, and of the finished one the same as of its tables."""
    run = fed(2)
    with RunView(Run(run.writer.folder)) as view:
        assert view.row["status"] == "running"
        assert time_series.thinned(view, "loss").num_rows == 0
        assert not view.refresh()
        for step in range(5):
            run.step(step, loss=[1.0 + step, 2.0 + step], step_time=[0.01, 0.01])
        run.flush()
        before = view.version
        assert view.refresh() and view.version == before + 1
        running = rows(time_series.thinned(view, "loss"))
        assert [row["last"] for row in running if row["rank"] == 1] == [2.0, 3.0, 4.0, 5.0, 6.0]
        run.close()
        assert view.refresh() and not view.running
        assert rows(time_series.thinned(view, "loss")) == running
        assert view.row["status"] == "completed"
        assert not view.refresh()
        assert view.one("SELECT count(*) AS n FROM samples") == {"n": 20}


def test_a_long_stream_is_taken_in_turns(fed: Callable[..., Fed], monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bound on its time a refresh says that it is behind; the rest comes with the next ones."""
    monkeypatch.setattr("d5ray.metrics.views.growing_streams.PIECE_BYTES", 2000)
    run = fed(1)
    for step in range(20):
        run.step(step, loss=[float(step)])
        run.flush()
    with RunView(Run(run.writer.folder), seconds=0.0) as view:
        taken = view.one("SELECT count(*) AS n FROM samples")["n"]
        assert 0 < taken < 20
        while view.behind:
            view.refresh(0.0)
        assert view.one("SELECT count(*) AS n FROM samples") == {"n": 20}


def test_rows_of_a_metric_lie_together_in_the_file(
    fed: Callable[..., Fed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full row group has one metric: the statistics of the others' say that they need not be read."""
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 16)
    run = fed(2)
    for step in range(40):
        run.step(step, loss=[1.0 + step, 2.0], samples=[32.0, 32.0], step_time=[0.01, 0.02])
        run.flush()
    run.close()
    file = pq.ParquetFile(run.writer.folder / "samples.parquet")
    place = SAMPLES.get_field_index("metric")
    stretches = [
        file.metadata.row_group(group).column(place).statistics for group in range(file.num_row_groups)
    ]
    assert sum(found.min == found.max for found in stretches) >= 3 * (80 // 16)
    assert file.metadata.num_rows == 240
    loss = file.read().filter(pc.equal(file.read()["metric"], "loss"))
    assert loss.filter(pc.equal(loss["rank"], 0))["value"].to_pylist() == [1.0 + step for step in range(40)]


# -- courses -------------------------------------------------------------------------------------------------


def test_a_thinned_course_keeps_what_sticks_out(fed: Callable[..., Fed]) -> None:
    """Least, mean, greatest and last of each stretch are NumPy's; one spike in 1,000 steps is there."""
    run = fed(2)
    drawn_values = np.random.default_rng(0).lognormal(size=(1000, 2))
    drawn_values[377, 1] = 1e3
    for step, values in enumerate(drawn_values):
        run.step(step, loss=values.tolist())
    run.close()
    with opened("fed", run.writer.folder.parent) as view:
        table = time_series.thinned(view, "loss", points=10)
        for rank in range(2):
            own = [row for row in rows(table) if row["rank"] == rank]
            blocks = drawn_values[:, rank].reshape(10, 100)
            assert [row["x"] for row in own] == list(range(99, 1000, 100))
            for name, expected in (
                ("least", blocks.min(1)), ("mean", blocks.mean(1)), ("greatest", blocks.max(1)),
                ("last", blocks[:, -1]),
            ):  # fmt: skip
                np.testing.assert_allclose([row[name] for row in own], expected, rtol=1e-12)
        assert max(row["greatest"] for row in rows(table)) == 1e3
        zoomed = time_series.thinned(view, "loss", points=10, low=370, high=379)
        assert [row["last"] for row in rows(zoomed) if row["rank"] == 1] == drawn_values[370:380, 1].tolist()
        together = time_series.thinned(view, "loss", points=10, together=True)
        np.testing.assert_allclose(together["mean"], drawn_values.reshape(10, 200).mean(1), rtol=1e-12)
        over_time = time_series.thinned(view, "loss", points=10, over="seconds")
        assert max(row["x"] for row in rows(over_time)) == pytest.approx(9.99)


def test_values_that_are_no_numbers_are_counted(fed: Callable[..., Fed]) -> None:
    """NaN and infinity are in no figure of a stretch, and their number stands beside it."""
    run = fed(1)
    for step, value in enumerate([1.0, float("nan"), 3.0, float("inf")]):
        run.step(step, loss=[value])
    run.flush()
    with RunView(Run(run.writer.folder)) as view:
        (row,) = rows(time_series.thinned(view, "loss", points=1))
    assert (row["least"], row["mean"], row["greatest"], row["last"], row["n"], row["bad"]) == (
        1.0, 2.0, 3.0, 3.0, 4, 2,
    )  # fmt: skip


def test_throughput_is_samples_over_the_time_on_the_wall(fed: Callable[..., Fed]) -> None:
    """Two agents of 32 samples every 10 ms are 6,400 samples a second, over steps and over time."""
    run = fed(2)
    for step in range(100):
        run.step(step, samples=[32.0, 32.0])
    run.flush()
    with RunView(Run(run.writer.folder)) as view:
        for over in ("step", "seconds"):
            found = time_series.throughput(view, over=over, points=10)
            np.testing.assert_allclose(found["rate"], 6400.0, rtol=0.02)


# -- steps ---------------------------------------------------------------------------------------------------


def test_who_comes_last_waits_for_nobody(fed: Callable[..., Fed]) -> None:
    """The wait is what an exchange took longer than the shortest of its step; parts add up to it."""
    run = fed(2)
    exchange = np.random.default_rng(1).uniform(1e-3, 3e-3, size=(60, 2))
    for step, each in enumerate(exchange):
        run.step(
            step, step_time=[8e-3, 8e-3], data_time=[1e-4, 2e-4], forward_time=[1e-3, 1e-3],
            backward_time=[2e-3, 2e-3], exchange_time=each.tolist(), update_time=[1e-4, 1e-4],
            record_time=[1e-5, 1e-5],
        )  # fmt: skip
    run.flush()
    wait = exchange - exchange.min(axis=1, keepdims=True)
    with RunView(Run(run.writer.folder)) as view:
        agents = rows(steps.parts_of_agents(view))
        np.testing.assert_allclose([row["wait"] for row in agents], wait.mean(0), rtol=1e-9)
        np.testing.assert_allclose([row["exchange"] for row in agents], (exchange - wait).mean(0), rtol=1e-9)
        for row in [*agents, *rows(steps.parts(view, points=6))]:
            assert sum(row[part] for part in steps.PARTS) == pytest.approx(8e-3)
        np.testing.assert_allclose(
            steps.parts(view, points=6)["wait"], wait.mean(1).reshape(6, 10).mean(1), rtol=1e-9
        )
        intervals = rows(events.timeline(view))
        waited = [
            row["end"] - row["begin"] for row in intervals if row["kind"] == "wait" and row["rank"] == 0
        ]
        assert sum(waited) == pytest.approx(wait[:, 0].sum())
        few = rows(events.timeline(view, most=64))
        assert len(few) <= 64 + 8
        together = sum(row["end"] - row["begin"] for row in few if row["rank"] == 0)
        assert together == pytest.approx(60 * 8e-3)


# -- agents that are apart -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gossip", "servers", "pairs"])
def test_consensus_is_that_of_the_metric(simulated: dict[str, Run], name: str) -> None:
    """The root mean square over the steps is `consensus_over_steps`, also of synchronous gossip."""
    expected = asynchrony.consensus_over_steps(simulated[name].tables())
    assert len(expected) >= 3
    with RunView(simulated[name]) as view:
        found = {
            row["step"]: row["distance"] for row in rows(consensus.consensus(view)) if row["rank"] is None
        }
        assert found == pytest.approx(expected)
        few = {row["step"] for row in rows(consensus.consensus(view, points=2))}
        assert few == {min(expected), max(expected)}


def test_staleness_is_that_of_the_events(simulated: dict[str, Run]) -> None:
    """Over all agents the histogram of the metrics, and nothing for agents without servers."""
    with RunView(simulated["servers"]) as view:
        found: dict[int, int] = {}
        for row in rows(consensus.staleness(view)):
            found[row["staleness"]] = found.get(row["staleness"], 0) + row["pushes"]
    assert found == asynchrony.staleness_histogram(simulated["servers"].tables())
    assert sum(found.values()) > 100
    with RunView(simulated["gossip"]) as view:
        assert consensus.staleness(view).num_rows == 0


def test_traffic_of_links_adds_up(simulated: dict[str, Run]) -> None:
    """Neighbours of a ring get equal parts of what was sent; counted links are the agents' own totals."""
    for name in ("gossip", "allreduce"):
        with RunView(simulated[name]) as view:
            edges, actors = rows(communication.edges(view)), rows(communication.actors(view))
            assert not any(edge["counted"] for edge in edges)
            for actor in actors:
                own = [edge["bytes"] for edge in edges if edge["sender"] == actor["actor"]]
                assert sum(own) == pytest.approx(actor["bytes_sent"])
                assert len(own) == (2 if name == "gossip" else 3)
    with RunView(simulated["servers"]) as view:
        edges, actors = rows(communication.edges(view)), rows(communication.actors(view))
    assert {actor["actor"] for actor in actors if actor["rank"] is None} == {
        "ParameterServer(shard=0)", "ParameterServer(shard=1)",
    }  # fmt: skip
    for actor in actors[:3]:
        own = sum(edge["bytes"] for edge in edges if edge["sender"] == actor["actor"])
        assert edges[0]["counted"] and own == pytest.approx(actor["bytes_sent"], rel=0.05)  # pulls at the end


def test_a_timeline_has_agents_and_servers(simulated: dict[str, Run]) -> None:
    """An agent does one thing at a time, in the whole of its steps; servers work while they are asked."""
    with RunView(simulated["servers"]) as view:
        found = rows(events.timeline(view, most=100_000))
        seconds = key_figures.figures(view)["seconds"]
    by_actor: dict[str, list[dict[str, Any]]] = {}
    for row in found:
        by_actor.setdefault(row["actor"], []).append(row)
    assert len(by_actor) == 5
    for own in by_actor.values():
        own.sort(key=lambda row: row["begin"])
        ends = [row["end"] for row in own]
        assert all(a["end"] <= b["begin"] + 1e-9 for a, b in pairwise(own))
        assert own[0]["begin"] >= -1e-9 and max(ends) <= seconds + 1e-9
    computing = {
        rank: sum(
            row["end"] - row["begin"] for row in found if row["rank"] == rank and row["kind"] == "compute"
        )
        for rank in range(3)
    }
    assert computing[2] / computing[0] == pytest.approx(3.0, rel=0.01)


# -- verdicts, events, figures -------------------------------------------------------------------------------


def test_the_verdict_so_far_is_that_of_the_rows(simulated: dict[str, Run]) -> None:
    """Criteria that a run keeps are judged as `Criterion.judge` does; a metric of one's own stays open."""
    run = simulated["allreduce"]
    own = {"metric": "mine", "arguments": {}, "label": "mine", "unit": "s", "relation": "<=", "target": 1.0}
    with RunView(run) as view:
        found = rows(verdicts.so_far(view))
        tables = run.tables()
        for row, (name, relation, target) in zip(
            found, [("test_accuracy", ">=", 0.1), ("step_time", "<=", 1e-9)], strict=True
        ):
            assert row == Criterion(metric_named(name), relation, target).judge(tables).row  # type: ignore[arg-type]
        assert [row["verdict"] for row in found] == ["PASS", "FAIL"]
        view.row["criteria"] = json.dumps([own])
        (row,) = rows(verdicts.so_far(view))
    assert (row["metric"], row["verdict"]) == ("mine", "INCONCLUSIVE") and "ended" in row["reason"]


def test_figures_are_those_of_the_tables(simulated: dict[str, Run]) -> None:
    """Loss, accuracy, step time, bytes, rate and rows against NumPy on the tables."""
    run = simulated["allreduce"]
    samples = run.tables()["samples"]
    with RunView(run) as view:
        found = key_figures.figures(view)
    value = {
        name: samples.filter(pc.equal(samples["metric"], name))
        for name in ("loss", "step_time", "bytes_sent", "samples")
    }
    last = value["loss"].filter(pc.equal(value["loss"]["step"], 69))["value"].to_numpy()
    assert found["loss"] == pytest.approx(last.mean())
    trained = value["step_time"].filter(pc.not_equal(value["step_time"]["phase"], "warmup"))
    assert found["step_time"] == pytest.approx(np.median(trained["value"].to_numpy()))
    assert found["bytes_sent"] == value["bytes_sent"]["value"].to_numpy().sum()
    assert found["test_accuracy"] == metric_named("test_accuracy").estimate(run.tables()).value
    assert (found["steps"], found["rows"]) == (70, samples.num_rows)
    seconds = pc.sum(value["step_time"].group_by("step").aggregate([("value", "max")])["value_max"]).as_py()
    assert found["samples_per_second"] == pytest.approx(pc.sum(value["samples"]["value"]).as_py() / seconds)


def test_failures_stand_out_among_events(fed: Callable[..., Fed]) -> None:
    """A death is a failure, a checkpoint is none; what happens in every step is left out unless asked for."""
    run = fed(1)
    for name in ("checkpoint", "push", "agent_died"):
        run.now += 1_000_000_000
        run.recorders[0].event(name, step=3, why="<b>so</b>")
    run.flush()
    with RunView(Run(run.writer.folder)) as view:
        found = rows(events.events(view))
        assert [(row["name"], row["failure"], row["seconds"]) for row in found] == [
            ("checkpoint", False, 0.0), ("agent_died", True, 2.0),
        ]  # fmt: skip
        assert events.events(view, schedule=True).num_rows == 3
        assert [row["name"] for row in rows(events.counts(view))] == ["agent_died", "checkpoint", "push"]


# -- what is kept of a topology, and bad input ---------------------------------------------------------------


def test_a_topology_as_data_has_its_edges() -> None:
    """Those of `adjacency`, of all rounds, each once; more than anyone can see are left out."""
    for topology in (
        d5.topologies.Ring(5),
        d5.topologies.Star(4),
        d5.topologies.DirectedRing(4),
        d5.topologies.OnePeerExponential(8),
    ):
        found = json.loads(drawn(topology))
        expected = set()
        for round in range(topology.period):
            for receiver, sender in zip(*np.nonzero(topology.adjacency(round)), strict=True):
                ends = (int(sender), int(receiver))
                expected.add(ends if topology.directed else (min(ends), max(ends)))
        assert {tuple(edge) for edge in found["edges"]} == expected
        assert len(found["edges"]) == len(expected) and len(found["positions"]) == topology.agents
    assert MOST_EDGES < 300 * 299 // 2 and json.loads(drawn(d5.topologies.Complete(300)))["edges"] is None


def test_runs_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    """A file that is no table, and columns that are missing: StorageErrors with the file and what to do."""
    writer = RunWriter(tmp_path, "r")
    writer.open({"d5ray_version": "99.0"})
    writer.leave()
    folder = tmp_path / "r"
    (folder / "events.arrows").unlink()
    pq.write_table(table_of("events").drop_columns(["duration"]), folder / "events.parquet")
    with pytest.raises(StorageError, match=r"duration.*written by d5ray 99\.0, this is .*: look at it with"):
        RunView(Run(folder))
    (folder / "events.parquet").write_bytes(b"PAR1 and then nothing")
    with pytest.raises(StorageError, match=r"events\.parquet is not a table"):
        RunView(Run(folder))
    (folder / "events.parquet").unlink()
    with (folder / "events.arrows").open("wb") as file, pa.ipc.new_stream(file, EVENTS.remove(3)):
        pass
    with pytest.raises(StorageError, match=r"events\.arrows has no name: it was written by another version"):
        RunView(Run(folder))


def test_a_run_with_more_columns_than_are_known_is_shown(tmp_path: Path, fed: Callable[..., Fed]) -> None:
    """A newer version's extra column does no harm, in a stream or in a table."""
    run = fed(1)
    run.step(0, loss=[1.0])
    run.close()
    file = run.writer.folder / "samples.parquet"
    table = pq.read_table(file)
    pq.write_table(table.append_column("colour", pa.array(["red"])), file)
    with RunView(Run(run.writer.folder)) as view:
        assert time_series.thinned(view, "loss")["last"].to_pylist() == [1.0]
