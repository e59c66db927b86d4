"""Claims about the monitors of a run's nodes, and about the numbers of agents that it may be resized to"""

import os
from typing import Any

import psutil
import pytest

import d5ray as d5
from d5ray.actors.metrics.aggregator import check_resize
from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from tests.actors.test_launch import experiment
from tests.beside_kits import needs_kit


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


def test_a_simulation_has_no_nodes_and_says_so() -> None:
    """Whatever monitor_seconds is: its tables are repeatable to the last bit, and no machine is in them."""
    with d5.simulate(experiment(monitor_seconds=0.05)) as group:
        group.train(steps=3, progress=False)
    found = d5.metrics.ProcessorEnergy().estimate(group.tables())
    assert found.value is None and "a simulation has no nodes" in found.reason


def described(min_agents: int) -> dict[str, object]:
    split = d5.networks.FullyConnectedSplit()
    wanted = d5.Experiment(
        model="mlp", dataset="digits", optimizer=d5.optimizers.SGD(0.1),
        faults=d5.faults.FaultPolicy(min_agents=min_agents), mesh=d5.Mesh(3, 2, parts=2, split=split),
    )  # fmt: skip
    return wanted.describe() | {"agents": wanted.agents}


@needs_kit("parallel")
@pytest.mark.parametrize(("min_agents", "possible"), [(1, "4, 8, 12"), (5, "8, 12")])
def test_a_mesh_has_whole_replicas_and_an_error_says_how_many(min_agents: int, possible: str) -> None:
    """Every number from min_agents to all is taken, or refused with those that are possible."""
    for agents in range(min_agents, 13):
        if str(agents) in possible.split(", "):
            check_resize(described(min_agents), agents)
            continue
        with pytest.raises(ConfigurationError) as caught:
            check_resize(described(min_agents), agents)
        assert str(caught.value) == (
            f"agents is {agents}, and a replica of the run's mesh is 4 agents, which come and go "
            f"together: take one of {possible}"
        )


@needs_kit("parallel")
def test_beyond_the_experiments_agents_nothing_is_possible() -> None:
    """13 of 12."""
    with pytest.raises(ConfigurationError, match=r"agents is 13: it must be .* 12 at most"):
        check_resize(described(1), 13)
