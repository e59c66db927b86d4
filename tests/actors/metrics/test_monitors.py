"""Claims about the monitors of a run's nodes: what they record, when, and that they end with the run"""

import os
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

import d5ray as d5
from d5ray.errors import AgentError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.store import Run
from tests.actors.test_launch import experiment


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    yield
    d5.shutdown()


def rows_of(run: Run) -> list[dict[str, Any]]:
    query = "select metric, scope, phase, value, source, status, seq from samples where agent like 'NodeMon%'"
    rows: list[dict[str, Any]] = sql(run, f"{query} order by seq").to_pylist()
    return rows


@pytest.mark.slow
def test_a_node_is_watched_by_phase_and_no_row_is_lost() -> None:
    """Two trainings: their time is that of phase train, in which the steps are; every row arrived once."""
    with d5.launch(experiment(monitor_seconds=0.1)) as group:
        pids = [place.pid for place in group.places]
        group.train(steps=150, progress=False)
        group.train(steps=150, progress=False)
        folder = group.folder
    run = Run(folder)
    rows = rows_of(run)
    assert [row["seq"] for row in rows] == list(range(len(rows)))
    assert run.row["rows"] == run.tables()["samples"].num_rows
    times = [(row["phase"], row["value"]) for row in rows if row["metric"] == "node_time"]
    phases = [phase for at, (phase, _) in enumerate(times) if not at or times[at - 1][0] != phase]
    assert phases == ["idle", "run", "train", "run", "train", "run"]
    trained = sum(value for phase, value in times if phase == "train")
    query = "select sum(value) s from samples where metric = 'step_time' and rank = 0"
    (steps,) = sql(run, query).to_pylist()
    assert trained >= 0.5 * steps["s"] > 0  # the phase begins when the monitor hears of it
    scopes = {row["scope"] for row in rows if row["metric"] == "peak_memory"}
    assert scopes == {"TrainingAgent(rank=0)", "TrainingAgent(rank=1)"}
    tables = run.tables()
    peak = d5.metrics.ProcessPeakMemory().estimate(tables).value
    assert peak is not None and 50e6 < peak < 20e9
    trained_rows = [row for row in rows if row["phase"] == "train"]
    shares = [row["value"] for row in trained_rows if row["metric"] == "process_utilisation"]
    assert shares and 0 < max(shares) <= 2 * (os.cpu_count() or 1)
    assert all((row["value"] is None) == (row["source"] == "unavailable") for row in rows)
    assert not any(psutil.pid_exists(pid) and _is_agent(pid) for pid in pids)


def _is_agent(pid: int) -> bool:
    try:
        return "TrainingAgent" in " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


@pytest.mark.slow
def test_without_a_monitor_nothing_is_watched_and_the_metrics_say_why() -> None:
    with d5.launch(experiment(monitor_seconds=0)) as group:
        group.train(steps=3, progress=False)
        tables = group.tables()
        for metric in (
            d5.metrics.ProcessPeakMemory(),
            d5.metrics.ProcessorUtilisation(),
            d5.metrics.Energy(),
        ):
            found = metric.estimate(tables)
            assert found.value is None and "monitor_seconds" in found.reason
    assert not rows_of(Run(group.folder))


def test_a_simulation_has_no_nodes_and_says_so() -> None:
    """Whatever monitor_seconds is: its tables are repeatable to the last bit, and no machine is in them."""
    with d5.simulate(experiment(monitor_seconds=0.05)) as group:
        group.train(steps=3, progress=False)
    found = d5.metrics.ProcessorEnergy().estimate(group.tables())
    assert found.value is None and "a simulation has no nodes" in found.reason


@pytest.mark.slow
def test_a_run_whose_agent_dies_keeps_what_its_node_showed() -> None:
    """The run fails, the monitor's rows are on disk, and the aggregator that it ran in is gone with it."""
    with pytest.raises(AgentError), d5.launch(experiment(monitor_seconds=0.05)) as group:
        group.train(steps=50, progress=False)
        os.kill(group.places[1].pid, 9)
        group.train(steps=100_000, progress=False)
    rows = rows_of(Run(group.folder))
    assert {"train", "run"} <= {row["phase"] for row in rows}
    gone = [row for row in rows if row["scope"] == "TrainingAgent(rank=1)" and row["value"] is None]
    assert all("has ended" in row["status"] for row in gone)
