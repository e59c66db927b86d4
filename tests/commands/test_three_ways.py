"""The same recipe by name, as a program, and as a job of a Ray cluster: the same result."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from tests.conftest import REPOSITORY, Finished, Head, d5ray
from tests.patience import patience

SETTINGS = ("--set", "batch_size=64", "--seed", "7", "--json")


@pytest.fixture(scope="module")
def by_name() -> Finished:
    """`d5ray run digits_lenet`."""
    return d5ray("run", "digits_lenet", *SETTINGS)


def test_the_main_job_passes_and_its_tables_hold_what_the_verdict_says(by_name: Finished) -> None:
    """Accuracy at least 0.97, the median step time, also where a machine leaves no interval; every row."""
    result = by_name.json
    assert (result["status"], result["verdict"], by_name.code) == ("completed", "PASS", 0), by_name
    assert not by_name.left()
    accuracy, step_time = result["criteria"]
    assert accuracy["value"] >= 0.97 and accuracy["verdict"] == "PASS"
    assert 0 < step_time["value"] <= 0.05 and step_time["verdict"] == "PASS"
    assert step_time["high"] is not None or step_time["reason"].startswith("decided by its margin")
    startup, rest = result["startup_seconds"], "  of which neither ray.init nor framework import"
    others = startup["ray.init"] + startup["  of which framework import"]
    assert 0 < startup["interpreter and imports"] < startup[rest]
    assert startup[rest] == pytest.approx(startup["the command to its first step"] - others)
    run = Run.find(str(result["run"]))
    epochs, agents = 60, 2
    steps = epochs * -(-1438 // (64 * agents))
    of_agents = "from samples where agent like 'TrainingAgent%'"
    found = sql(run, f"select metric, count(*) as n {of_agents} group by metric").to_pylist()
    rows = {row["metric"]: row["n"] for row in found}
    assert (
        rows.pop("test_accuracy") == rows.pop("test_loss") == rows.pop("evaluation_time") == epochs * agents
    )
    assert len(rows) == 13, sorted(rows)
    assert set(rows.values()) == {steps * agents}
    counted = sql(run, f"select (select count(*) {of_agents}) own, count(*) whole from samples").to_pylist()
    own = 13 * steps * agents + 3 * epochs * agents
    assert counted == [{"own": own, "whole": run.row["rows"]}]
    assert run.row["rows"] > own  # those of the node's monitor
    assert run.row["status"] == "completed"
    median = sql(run, "select median(value) m from samples where metric = 'step_time' and phase = 'train'")
    assert median["m"][0].as_py() == pytest.approx(step_time["value"], rel=0.5)


@pytest.mark.full
def test_as_a_submitted_job_it_ends_with_the_same_parameters(
    by_name: Finished, head: Head, home: Path
) -> None:
    """`ray job submit --working-dir .` to a head that runs apart: the same, and seen in its dashboard."""
    ray = Path(sys.executable).parent / "ray"
    submission = f"d5ray-{time.time_ns()}"
    before = set((home / "runs").iterdir())
    environment = {name: os.environ[name] for name in ("RAY_AUTH_MODE",)} | {"D5RAY_HOME": str(home)}
    done = subprocess.run(
        [
            str(ray), "job", "submit", "--address", head.dashboard, "--working-dir", ".",
            "--submission-id", submission,
            "--runtime-env-json", json.dumps({"env_vars": environment}),
            "--", sys.executable, "-m", "d5ray.recipes.digits_lenet", *SETTINGS,
        ],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=patience(180), check=False,
        env=os.environ | {"RAY_ADDRESS": ""},
    )  # fmt: skip
    (folder,) = set((home / "runs").iterdir()) - before
    run = Run(folder)
    assert (done.returncode == 0) == (run.row["verdict"] == "PASS"), done.stdout + done.stderr
    assert run.row["status"] == "completed"
    assert run.row["ray_address"] == head.address
    assert run.row["parameters_sha256"] == by_name.json["parameters_sha256"]
    assert run.row["recipe_hash"] == by_name.json["recipe_hash"]
    job = _job(head, submission)
    assert job["metadata"]["recipe"] == "digits_lenet"
    assert job["metadata"]["recipe_hash"] == by_name.json["recipe_hash"]
    assert job["metadata"]["job_name"] == run.name  # what the dashboard shows in the column Name
    names = _actors(head, run.name)
    assert {name for name, _ in names} == {
        "MetricsAggregator",
        "TrainingAgent(rank=0)",
        "TrainingAgent(rank=1)",
    }
    assert {"TrainingAgent(rank=0)", "TrainingAgent(rank=1)"} <= {shown for _, shown in names}


@pytest.mark.full
def test_more_agents_than_the_cluster_can_place_is_refused_with_the_number_it_can(head: Head) -> None:
    """The head has 2 CPUs: 3 agents are refused at once, with the remedy."""
    begin = time.monotonic()
    result = d5ray("run", "digits_lenet", "--set", "agents=3", "--address", head.address)
    assert result.code == 3
    assert "can place 2 agents" in result.err
    assert "set agents=2" in result.err
    assert time.monotonic() - begin < patience(30)


def _job(head: Head, submission: str) -> dict[str, Any]:
    from ray.job_submission import JobSubmissionClient  # noqa: PLC0415 - only this test needs it

    return {"metadata": JobSubmissionClient(head.dashboard).get_job_info(submission).metadata or {}}


def _actors(head: Head, namespace: str) -> list[tuple[str, str]]:
    """(name, repr) of a run's actors as the dashboard shows them, also when they have ended."""
    import urllib.request  # noqa: PLC0415

    url = f"{head.dashboard}/api/v0/actors?detail=true&limit=1000"
    with urllib.request.urlopen(url, timeout=patience(30)) as answer:
        rows = json.loads(answer.read())["data"]["result"]["result"]
    return [(row["name"], row["repr_name"]) for row in rows if row["ray_namespace"] == namespace]
