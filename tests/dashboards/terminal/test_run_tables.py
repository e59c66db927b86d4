"""Claims about the table of criteria: what is infinite is over its budget, and what is missing says so"""

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from rich.console import Console

import d5ray as d5
from d5ray.dashboards.terminal import series_tables
from d5ray.dashboards.terminal.run_tables import apartness, breakdown, criteria, notes, unsteady
from d5ray.metrics.definitions.catalogue import StepTime, TrainingLoss
from d5ray.metrics.definitions.convergence import TimeToAccuracy
from d5ray.metrics.judge.run_series import RunSeries
from tests.dashboards.made_runs import Made
from tests.metrics.definitions.test_table_ii import trained
from tests.metrics.statistics.test_estimates import row, steps_of, tables


def test_a_bound_that_is_infinite_is_shown_as_over_the_budget() -> None:
    """Six runs reach it, two do not: a median, an interval up to the budget, and a note that tells it."""
    rows = [
        one for at in range(8) for one in trained([[0.5], [0.9 if at < 6 else 0.6]], f"run-{at}", 1.0 + at)
    ]
    verdict = (TimeToAccuracy(0.8) <= 100).judge(tables(rows))
    assert verdict.value == np.median([10.0 * (1 + at) for at in range(6)] + [math.inf] * 2)
    shown = io.StringIO()
    Console(width=200, file=shown).print(criteria([verdict]))
    text = shown.getvalue()
    assert "[10, > budget]" in text and "8 runs, 2 censored" in text and "inf" not in text
    assert "2 of 8 runs did not reach 0.8 within their budget" in notes([verdict])[0]


def test_many_outliers_are_told_and_few_are_not() -> None:
    """12 of 100 steps are ten times as long: a note has the share; of 8, warm-up and losses, none."""
    seconds = 1.0 + 0.01 * np.random.default_rng(1).random((100, 1))
    judged = [(StepTime() <= 5).judge(tables([])), (TrainingLoss() <= 5).judge(tables([]))]
    for disturbed, told in ((8, False), (12, True)):
        slow = seconds.copy()
        slow[:disturbed] *= 10
        rows = steps_of(slow) + [row("loss", float(v), step=at, unit="1") for at, (v,) in enumerate(slow)]
        rows += [row("step_time", 100.0 ** (at % 5 == 0), step=-at, phase="warmup") for at in range(100)]
        found = unsteady({**tables(rows)}, judged)
        assert len(found) == told
        assert not told or found[0].startswith("step_time of agent: 12% of 100 values are outliers")


def test_a_series_shows_its_runs_and_where_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it is, a line for each run, and last its folder and the command that asks its tables."""
    for seed in (7, 8):
        Made(tmp_path / "runs", f"run-{seed}", agents=1, seed=seed).close()
    series = RunSeries(tmp_path / "series" / "both")
    runs = {"runs": ["run-7", "run-8"], "seeds": [7, 8], "status": "completed", "verdict": "PASS"}
    series.write({"purpose": "seeds", "recipe": "study", **runs})
    series_tables.show(series)
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == "d5ray  study  seeds 7 to 8  2 runs  PASS"
    assert [line.split()[:3] for line in lines if "run-" in line] == [
        ["7", "run-7", "completed"], ["8", "run-8", "completed"],
    ]  # fmt: skip
    assert last == f'data  {series.folder}   sql  d5ray sql both "select …"'


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, pa.Table]:
    """Three agents, of which one is slow, that push to a server without waiting; many steps are warm-up."""
    experiment = d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.1), distributed=d5.optimizers.ASGD(), agents=3,
        batch_size=16, slow=d5.faults.Slowdown(1, 4.0),
        recording=d5.metrics.Recording(warmup_steps=10),
    )  # fmt: skip
    with d5.simulate(experiment, root=tmp_path_factory.mktemp("runs")) as group:
        group.train()
        return group.tables()


def test_the_mean_staleness_that_is_shown_is_the_metric(apart: Mapping[str, pa.Table]) -> None:
    """Without warm-up; the pushes beside it are all, which the line says."""
    found = d5.metrics.Staleness().estimate(apart).value
    pushes = apart["events"].filter(pc.equal(apart["events"]["name"].cast(pa.utf8()), "push_pull"))
    counted = [stale for each in pushes["detail"].to_pylist() for stale in json.loads(each)["staleness"]]
    assert found is not None and f"{found:.3g}" != f"{np.mean(counted):.3g}"
    said = apartness(apart) or ""
    assert said.startswith(f"mean staleness {found:.3g}   ")
    assert f"all pushes, warm-up included, by staleness 0: {counted.count(0) / len(counted):.0%}, " in said


def test_the_rate_of_agents_that_do_not_wait_is_said_to_be_theirs(apart: Mapping[str, pa.Table]) -> None:
    """It is not that of `Throughput`, for which a step ends when the slowest agent is done."""
    own, together = (
        metric().estimate(apart).value
        for metric in (d5.metrics.AsynchronousThroughput, d5.metrics.Throughput)
    )
    assert own is not None and together is not None and own > 1.3 * together
    said = f"mean: {own:,.0f} samples/s, each agent at its own pace (asynchronous_samples_per_second)"
    assert said in (breakdown(apart) or "")
