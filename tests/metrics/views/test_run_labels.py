"""Claims about labels: a run is told by what it is, and from others by what differs"""

import functools
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.judge.run_filters import RunFilter, instant
from d5ray.metrics.record.store import RunWriter
from d5ray.metrics.views.run_labels import besides, differences, label_of, labels, short_label
from tests.conftest import d5ray

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


def row(run_id: str = "run", real: bool = True, recipe: str = "study", **changes: Any) -> dict[str, Any]:
    """The row of a run of an experiment, as it is described; ended well unless the changes say otherwise."""
    columns: dict[str, Any] = {
        name: changes.pop(name) for name in ("status", "verdict", "started") if name in changes
    }
    given: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1), "agents": 2, "seed": 1,
    }  # fmt: skip
    if "topology" in changes:
        del given["agents"]
    described = d5.Experiment(**(given | changes)).describe()
    text = json.dumps(described, sort_keys=True)
    return {
        "run_id": run_id, "recipe": recipe, "experiment": text, "runs": None,
        "ray_address": "10.0.0.1:6379" if real else None, "status": "completed", "verdict": "PASS",
        "started": NOW, **columns,
    }  # fmt: skip


def ring(run_id: str) -> dict[str, Any]:
    return row(
        run_id, real=False, distributed=d5.optimizers.DPSGD, topology=d5.topologies.Ring(4),
        optimizer=d5.optimizers.Momentum(0.05, 0.9),
    )  # fmt: skip


def test_a_label_says_model_data_method_optimizer_topology_and_place() -> None:
    assert str(label_of(row())) == "mlp on digits, AllreduceSGD, SGD(0.1), Complete(2), real"
    told = "mlp on digits, DPSGD, Momentum(learning_rate=0.05, momentum=0.9), Ring(4), simulated"
    assert str(label_of(ring("a"))) == told
    assert str(short_label(ring("a"))) == "mlp on digits, DPSGD, Momentum, Ring(4), simulated"


def test_an_optimizer_of_a_frameworks_is_called_as_there() -> None:
    """Also where runs differ in nothing else, and in its settings alone."""
    runs = [
        row(optimizer=functools.partial(torch.optim.AdamW, lr=0.01)),
        row(optimizer=functools.partial(torch.optim.AdamW, lr=0.02)),
        row(optimizer=torch.optim.SGD),
    ]
    assert [label_of(each).optimizer for each in runs] == ["AdamW(0.01)", "AdamW(0.02)", "SGD"]
    assert [short_label(each).optimizer for each in runs] == ["AdamW", "AdamW", "SGD"]
    assert besides(runs) == ["lr=0.01", "lr=0.02", ""]
    assert differences(runs)["optimizer"] == ("AdamW", "AdamW", "SGD")


def test_how_steps_are_computed_is_told_where_it_is_not_the_usual() -> None:
    said = str(label_of(row(precision="float64", accumulate=2)))
    assert said.endswith(", float64, 2 pieces a step, real")
    assert label_of(row(accumulate=1, precision="float32")).computed == ""


def test_a_model_of_the_users_is_called_by_its_name() -> None:
    def own(**given: Any) -> Any:
        """A function that nobody calls here."""

    assert label_of(row(model=own)).model == "own"


def test_a_run_that_is_no_experiment_has_a_place_at_most() -> None:
    empty = {"run_id": "x", "recipe": "bench", "experiment": None, "ray_address": None}
    assert str(label_of(empty)) == ""
    assert str(label_of({**empty, "experiment": '{"suite": "deepbench"}', "ray_address": "a:1"})) == "real"
    assert labels([empty, row("y", recipe="study")])[0] == "bench"


def test_what_differs_is_told_and_nothing_else() -> None:
    """Kinds where they differ, though the agents do so too; others where it takes them; seeds never."""
    rows = [row("a"), row("b", batch_size=64), row("c", seed=2), ring("d")]
    assert labels(rows[:2]) == ["batch_size=32", "batch_size=64"]
    assert labels(rows[::3]) == [
        "2 agents, AllreduceSGD, real", "4 agents, DPSGD, simulated",
    ]  # fmt: skip
    assert labels([rows[0], rows[2]]) == ["study (a)", "study (c)"]
    assert besides(rows) == ["batch_size=32", "batch_size=64", "batch_size=32", ""]
    assert labels([row("a"), row("a", real=False)]) == ["real", "simulated"]


def test_differences_are_those_of_the_descriptions() -> None:
    found = differences([row("a"), row("b", batch_size=64, optimizer=d5.optimizers.Momentum(0.1, 0.9))])
    assert found == {
        "optimizer": ("SGD", "Momentum"), "optimizer.momentum": ("–", "0.9"), "batch_size": ("32", "64"),
    }  # fmt: skip
    assert differences([row("a"), row("b", seed=3)]) == {}


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        (RunFilter(), "abcd"), (RunFilter(recipe="stud*"), "abc"), (RunFilter(recipe="STUDY"), "abc"),
        (RunFilter(method="dpsgd"), "b"), (RunFilter(method="*SGD"), "abcd"), (RunFilter(failed=True), "cd"),
        (RunFilter(since=instant("1h", NOW)), "abd"), (RunFilter(recipe="other", failed=True), "d"),
    ],
)  # fmt: skip
def test_runs_are_chosen(chosen: RunFilter, names: str) -> None:
    """c began before and failed its verdict, d of another recipe died."""
    rows = [
        row("a"), ring("b"), row("c", verdict="FAIL", started=instant("2d", NOW)),
        row("d", recipe="other", status="died", verdict=None),
    ]  # fmt: skip
    assert "".join(each["run_id"] for each in rows if chosen.takes(each)) == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30m", datetime(2026, 11, 25, 11, 30, tzinfo=UTC)),
        ("1.5 h", datetime(2026, 11, 25, 10, 30, tzinfo=UTC)),
        ("2d", datetime(2026, 11, 23, 12, tzinfo=UTC)), ("1w", datetime(2026, 11, 18, 12, tzinfo=UTC)),
        ("today", datetime(2026, 11, 25, tzinfo=UTC)), ("Yesterday", datetime(2026, 11, 24, tzinfo=UTC)),
        ("2026-11-20", datetime(2026, 11, 20, tzinfo=UTC)),
        ("2026-11-20 08:05", datetime(2026, 11, 20, 8, 5, tzinfo=UTC)),
        ("2026-11-20T08:05+02:00", datetime(2026, 11, 20, 6, 5, tzinfo=UTC)),
    ],
)  # fmt: skip
def test_times_are_ago_or_dates(text: str, expected: datetime) -> None:
    assert instant(text, NOW) == expected


@pytest.mark.parametrize("text", ["", "soon", "2", "3y", "99999999999w", "2026-13-01", "-1h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no time: write how long ago"):
        instant(text, NOW)


def test_why_nothing_was_found_is_said() -> None:
    rows = [row("a"), ring("b")]
    with pytest.raises(ConfigurationError, match="no run fits --recipe stuby: did you mean 'study'"):
        RunFilter(recipe="stuby").check(rows)
    RunFilter(recipe="stuby").check([])
    with pytest.raises(ConfigurationError, match="known: AllreduceSGD, DPSGD"):
        RunFilter(method="x").check(rows)
    assert (
        RunFilter(method="dpsgd", failed=True).nothing(rows) == "none of 2 runs fits --method dpsgd, --failed"
    )


def test_the_command_shows_and_filters(tmp_path: Path) -> None:
    """What each is stands in the table and in the JSON; a filter leaves the others out."""
    for each in (row("a-1"), ring("b-1")):
        writer = RunWriter(tmp_path / "runs", each["run_id"])
        writer.open({name: value for name, value in each.items() if name not in ("run_id", "runs")})
        writer.close()
    env = {"D5RAY_HOME": str(tmp_path)}
    shown = d5ray("runs", env=env).out
    assert "mlp on digits, AllreduceSGD, SGD, Complete(2), real" in shown
    assert "mlp on digits, DPSGD, Momentum, Ring(4), simulated" in shown
    (only,) = json.loads(d5ray("runs", "--method", "DPSGD", "--json", env=env).out)
    assert (only["run_id"], only["label"]["topology"], only["label"]["place"]) == (
        "b-1",
        "Ring(4)",
        "simulated",
    )
    nothing = d5ray("runs", "--recipe", "stuby", env=env)
    assert (nothing.code, "did you mean 'study'?" in nothing.err) == (3, True)
    wrong = d5ray("runs", "--since", "soon", env=env)
    assert (wrong.code, wrong.err.startswith("error: 'soon' is no time")) == (3, True)
    asked = d5ray("sql", "select run_id from runs order by run_id", "--json", env=env)
    assert json.loads(asked.out) == [{"run_id": "a-1"}, {"run_id": "b-1"}]
    version = d5ray("--version", env=env)
    assert (version.code, version.out.split()[0]) == (0, "d5ray")
