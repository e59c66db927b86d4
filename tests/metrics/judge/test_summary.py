"""The table `summary` against plain Python, and queries on finished runs beside those on growing ones"""

import statistics
from pathlib import Path

import numpy as np
import pytest

from d5ray.metrics.judge.summary import STOPPED, SUMMARY, summary
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.store import RunWriter
from d5ray.metrics.statistics.intervals import tukey_outliers
from d5ray.metrics.statistics.time_series import Quantile
from tests.metrics.statistics.test_estimates import row, tables

VALUES = np.random.default_rng(0).lognormal(size=240)
QUERIES = (
    "select * from samples order by agent, seq",
    "select * from events order by t_mono",
    "select metric, median(value) m, count(*) n, min(t_wall) w from samples group by metric order by metric",
    "select typeof(metric) a, typeof(t_wall) b, typeof(level) c, typeof(step) d from samples limit 1",
    "select * from summary order by metric, scope",
    "select s.value, r.seed from samples s join runs r using (run_id) where s.step = 3 order by s.seq",
)


@pytest.fixture
def run(tmp_path: Path) -> RunWriter:
    """Two metrics over 240 steps, three repetitions of another one with a stop reason."""
    writer = RunWriter(tmp_path, "r")
    writer.open({"seed": 3, "stop_reason": "interrupted by the user"})
    recorder = Recorder(
        run_id="r", agent="a", rank=0, node="n", send=writer.append, send_events=writer.append_events
    )
    frame = recorder.frame(("step_time", "loss"))
    for step, value in enumerate(VALUES):
        frame.append(step, 0, "warmup" if step < 20 else "train", (value, None if step == 50 else 2 * value))
    recorder.declare("query_time", "s")
    recorder.event(STOPPED, metric="query_time", scope="sql[1]", stop_reason="precise: …")
    for rep in range(6):
        for value in (rep + 1.0, rep + 3.0):
            recorder.record("query_time", value, scope="sql[1]", rep=rep, level=3)
    recorder.flush()
    return writer


def test_a_summary_has_every_figure(run: RunWriter) -> None:
    """n, median, p95, cv and outliers of the values as they are; the interval is that of dependent steps."""
    rows = {(r["metric"], r["phase"]): r for r in summary(Run(run.folder).tables()).to_pylist()}
    found, own = rows["step_time", "train"], VALUES[20:]
    interval, samples, _ = Quantile(own).interval()
    assert interval is not None
    assert found["sample_unit"] == ("moments" if samples == 220 else "effective of 220 moments")
    assert (found["n"], found["unavailable"], found["unit"], found["run_id"]) == (220, 0, "s", "r")
    assert found["median"] == pytest.approx(statistics.median(own))
    assert (found["ci_lo"], found["ci_hi"]) == pytest.approx(interval)
    assert found["p95"] == np.sort(own)[208]  # 209 of 220 take no longer
    assert found["cv"] == pytest.approx(statistics.stdev(own) / statistics.mean(own))
    assert found["outliers"] == tukey_outliers(own) > 0
    assert found["stop_reason"] == "interrupted by the user"
    assert (rows["loss", "train"]["n"], rows["loss", "train"]["unavailable"]) == (219, 1)
    warm = rows["step_time", "warmup"]  # kept, marked, and by itself
    assert (warm["n"], warm["ci_lo"]) == (20, None)
    run.leave()


def test_fresh_processes_are_the_unit_where_there_are_several(run: RunWriter) -> None:
    """Six repetitions of two values: the interval is over their six medians; the reason is their own."""
    (found,) = sql(Run(run.folder), "select * from summary where metric = 'query_time'").to_pylist()
    assert (found["n"], found["ci_lo"], found["ci_hi"], found["sample_unit"]) == (
        12,
        2.0,
        7.0,
        "fresh processes",
    )
    assert found["stop_reason"] == "precise: …"
    run.leave()


def test_a_summary_of_nothing_and_of_what_is_no_number() -> None:
    """No rows give no rows; NaN gives no interval; null alone gives n = 0."""
    assert summary(tables([])).schema == SUMMARY
    rows = [row("loss", float("nan"), step=0), row("loss", 1.0, step=1), row("energy", None, step=0)]
    found = {r["metric"]: r for r in summary(tables(rows)).to_pylist()}
    assert found["loss"]["ci_lo"] is None and np.isnan(found["loss"]["median"])
    assert (found["energy"]["n"], found["energy"]["unavailable"], found["energy"]["median"]) == (0, 1, None)


def test_a_finished_run_answers_as_a_growing_one(run: RunWriter) -> None:
    """From Parquet, column by column, and from memory: the same tables, types and times."""
    growing = [sql(Run(run.folder), query) for query in QUERIES]
    run.close()
    for query, before in zip(QUERIES, growing, strict=True):
        after = sql(Run(run.folder), query)
        assert after.to_pylist() == before.to_pylist(), query
        assert after.schema.names == before.schema.names, query
