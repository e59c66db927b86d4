"""What the built-in metrics make of the rows of a run, against plain Python over the same rows."""

import math
import statistics
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from d5ray.metrics.definitions.catalogue import (
    BytesSent,
    EvaluationTime,
    SamplesSeen,
    StepTime,
    TestAccuracy,
    TestLoss,
    Throughput,
    TrainingLoss,
)
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.statistics.time_series import Quantile, Quotient
from tests.metrics.statistics.coverage import autoregressive

Row = dict[str, Any]


def row(metric: str, value: float | None, *, rank: int = 0, **columns: Any) -> Row:
    given = {"metric": metric, "value": value, "rank": rank, "agent": f"agent-{rank}"}
    rest = {
        "run_id": "r", "node": "n", "attempt": 0, "seq": 0, "level": 3, "unit": "s", "scope": "agent",
        "phase": "train", "rep": 0, "loops": 1, "status": "ok", "source": "measured", "t_wall": 0,
        "t_mono": 0,
    }  # fmt: skip
    return rest | given | columns


def tables(rows: list[Row]) -> RunTables:
    numbered = [{"seq": seq} | {k: v for k, v in one.items() if k != "seq"} for seq, one in enumerate(rows)]
    return {"samples": table_of("samples", numbered)}


def steps_of(seconds: np.ndarray[Any, Any], run_id: str = "r") -> list[Row]:
    """seconds: (steps, ranks)."""
    return [
        row("step_time", float(seconds[step, rank]), rank=rank, step=step, run_id=run_id)
        for step in range(seconds.shape[0])
        for rank in range(seconds.shape[1])
    ]


def test_step_time_is_the_median_of_the_slowest_rank() -> None:
    """220 steps of 3 ranks: the median of the slowest, with the ranks of the samples that they are worth."""
    seconds = np.random.default_rng(1).lognormal(size=(220, 3))
    warm = [row("step_time", 1000.0, rank=r, step=s, phase="warmup") for r in range(3) for s in range(-5, 0)]
    found = StepTime().estimate(tables(warm + steps_of(seconds)))
    slowest = [max(step) for step in seconds]
    series = Quantile(np.array(slowest))
    interval, samples, _ = series.interval()
    assert interval is not None
    assert found.value == pytest.approx(statistics.median(slowest))
    assert (found.low, found.high) == interval
    unit = "steps" if samples == 220 else "effective of 220 steps"
    assert (found.n, found.sample_unit, found.exact) == (samples, unit, False)
    assert 150 <= samples <= 220  # they are independent


def test_steps_that_are_all_alike_count_each() -> None:
    found = StepTime().estimate(tables(steps_of(np.ones((65, 1)))))
    assert (found.n, found.sample_unit, found.low, found.high) == (65, "steps", 1.0, 1.0)


@pytest.mark.parametrize(("steps", "missing"), [(1, 29), (25, 5), (29, 1)])
def test_too_few_steps_say_how_many_more(steps: int, missing: int) -> None:
    """Below 30 steps there is a value and no interval, the reason tells the missing steps, and no verdict."""
    run = tables(steps_of(np.full((steps, 2), 0.5)))
    found = StepTime().estimate(run)
    assert (found.value, found.low, found.high) == (0.5, None, None)
    assert f"run {missing} more" in found.reason
    assert (StepTime() <= 1).judge(run).verdict == "INCONCLUSIVE"


def test_steps_that_depend_on_each_other_decide_on_a_far_target() -> None:
    """1,370 steps that are worth fewer than 30: the median and the rate, from the rows of two ranks."""
    slow = 0.001 * np.exp(0.2 * autoregressive(np.random.default_rng(6), 1, 1370, 0.99)[0])
    rows = steps_of(np.c_[slow, slow / 2])
    rows += [row("samples", 32.0, rank=r, step=s) for s in range(1370) for r in range(2)]
    run = tables(rows)
    for criterion, many in (
        (StepTime() <= 0.05, f"all 1,370 steps ≤ {slow.max():.3g}"),
        (Throughput() >= 1000, f"all 1,370 steps ≥ {64 / slow.max():,.0f}"),
    ):
        found = criterion.judge(run)
        assert (found.verdict, found.low, found.high) == ("PASS", None, None)
        assert found.n < 30 and found.sample_unit == "effective of 1,370 steps"
        assert found.reason.startswith("decided by its margin") and found.reason.endswith(many)
    assert (StepTime() <= 0.0003).judge(run).verdict == "FAIL"
    assert (StepTime() <= 0.0015).judge(run).verdict == "INCONCLUSIVE"


def test_six_runs_are_the_blocks() -> None:
    """With six runs each counts once, by its median, and the interval is over runs; five give none."""
    rng = np.random.default_rng(2)
    data = {f"run-{i}": rng.lognormal(size=(20, 2)) for i in range(6)}
    rows = [one for name, seconds in data.items() for one in steps_of(seconds, name)]
    medians = [statistics.median(seconds.max(axis=1)) for seconds in data.values()]
    found = StepTime().estimate(tables(rows))
    assert found.value == pytest.approx(statistics.median(medians))
    assert (found.low, found.high) == (min(medians), max(medians))
    assert (found.n, found.sample_unit) == (6, "runs")
    five = StepTime().estimate(tables([one for one in rows if one["run_id"] != "run-3"]))
    assert (five.low, five.high) == (None, None)
    assert "make 1 more" in five.reason


def test_order_of_rows_and_numbering_of_words_do_not_matter() -> None:
    """Shuffled rows in chunks with different dictionaries give the same estimate."""
    rng = np.random.default_rng(3)
    rows = [one | {"seq": seq} for seq, one in enumerate(steps_of(rng.lognormal(size=(100, 3))))]
    shuffled = [rows[i] for i in rng.permutation(len(rows))]
    chunks = [table_of("samples", shuffled[:100]), table_of("samples", shuffled[100:])]
    assert chunks[0]["agent"].chunk(0).dictionary != chunks[1]["agent"].chunk(0).dictionary
    whole = StepTime().estimate({"samples": table_of("samples", rows)})
    assert StepTime().estimate({"samples": pa.concat_tables(chunks)}) == whole


def test_a_step_that_a_restarted_agent_redid_counts_once() -> None:
    """The last attempt's row of (rank, step) is the one that is used."""
    again = [row("step_time", 1.0, step=0, attempt=1), row("step_time", 2.0, step=1, attempt=1)]
    rows = [*again, row("step_time", 9.0, step=0)]  # the table's order says nothing
    assert StepTime().estimate(tables(rows)).value == 1.5


def test_null_is_unavailable_and_nan_is_a_failure() -> None:
    """All null: no value, INCONCLUSIVE, with the reason; one NaN: value NaN, FAIL."""
    empty = tables([row("step_time", None, step=0)])
    assert (StepTime() <= 1).judge(empty).verdict == "INCONCLUSIVE"
    assert "all 1 rows" in (StepTime() <= 1).judge(empty).reason
    assert "no row" in (StepTime() <= 1).judge(tables([])).reason
    broken = steps_of(np.where(np.arange(100) == 50, math.nan, 1.0)[:, None])
    assert (StepTime() <= 1).judge(tables(broken)).verdict == "FAIL"
    assert (TestAccuracy() >= 0).judge(
        tables([row("test_accuracy", math.nan, phase="test")])
    ).verdict == "FAIL"


def test_accuracy_is_the_worst_rank_at_the_last_evaluation() -> None:
    """Epoch 1 counts, not the better epoch 0; of the ranks the worst; an exact fact of the run."""
    accuracy = [[0.99, 0.98], [0.90, 0.95]]  # (epoch, rank)
    rows = [
        row("test_accuracy", accuracy[epoch][rank], rank=rank, epoch=epoch, phase="test")
        for rank in range(2)
        for epoch in range(2)
    ]
    found = TestAccuracy().estimate(tables(rows))
    assert (found.value, found.n, found.exact) == (0.90, 1, True)
    assert (TestAccuracy() >= 0.9).judge(tables(rows)).verdict == "PASS"
    losses = [one | {"metric": "test_loss"} for one in rows]
    assert TestLoss().estimate(tables(losses)).value == 0.95


def test_accuracy_of_several_runs_is_their_median() -> None:
    """Seven runs: the median accuracy with the interval over runs, no longer exact."""
    values = [0.91, 0.95, 0.93, 0.97, 0.92, 0.94, 0.96]
    rows = [row("test_accuracy", v, epoch=3, phase="test", run_id=f"r{i}") for i, v in enumerate(values)]
    found = TestAccuracy().estimate(tables(rows))
    assert (found.value, found.low, found.high, found.n, found.exact) == (0.94, 0.91, 0.97, 7, False)


def test_loss_is_the_mean_over_ranks_at_their_last_step() -> None:
    """Ranks that stopped at different steps each give their own last loss."""
    losses = {0: [3.0, 2.0, 1.0], 1: [3.0, 2.5]}
    rows = [row("loss", v, rank=r, step=s) for r, values in losses.items() for s, v in enumerate(values)]
    assert TrainingLoss().estimate(tables(rows)).value == 1.75


def test_throughput_is_work_over_time_in_each_block() -> None:
    """Σ samples over ranks / Σ slowest step time; steps with only one of the two are left out."""
    rng = np.random.default_rng(4)
    seconds, samples = rng.uniform(1, 2, size=(60, 2)), rng.integers(1, 9, size=(60, 2))
    rows = steps_of(seconds)
    rows += [row("samples", float(samples[s, r]), rank=r, step=s) for s in range(60) for r in range(2)]
    rows += [row("samples", 1e9, step=60)]
    found = Throughput().estimate(tables(rows))
    slowest = seconds.max(axis=1)
    assert found.value == pytest.approx(samples.sum() / slowest.sum())
    interval = Quotient(samples.sum(axis=1) * 1.0, slowest).interval()[0]
    assert (found.low, found.high) == interval
    assert interval is not None and interval.low < samples.sum() / slowest.sum() < interval.high
    assert "no row of step_time" in Throughput().estimate(tables(rows[120:])).reason
    idle = [one | {"value": 0.0} if one["metric"] == "step_time" else one for one in rows]
    assert Throughput().estimate(tables(idle)).value is None


def test_bytes_are_the_largest_total_of_an_agent_with_warmup() -> None:
    """Totals 30 and 70 with warm-up and a repeated step: 70, exact, and samples are the sum of all."""
    rows = [
        row("bytes_sent", 10.0, step=0, phase="warmup"),
        row("bytes_sent", 20.0, step=1),
        row("bytes_sent", 30.0, rank=1, step=0),
        row("bytes_sent", 40.0, rank=1, step=0, attempt=1),
    ]
    found = BytesSent().estimate(tables(rows))
    assert (found.value, found.exact) == (70.0, True)
    seen = SamplesSeen().estimate(tables([one | {"metric": "samples"} for one in rows]))
    assert (seen.value, seen.exact) == (100.0, True)


def test_evaluations_count_one_by_one() -> None:
    """Six evaluations of two ranks make an interval over evaluations of the slower rank."""
    rows = [
        row("evaluation_time", epoch + rank / 10, rank=rank, epoch=epoch, phase="test")
        for epoch in range(6)
        for rank in range(2)
    ]
    found = EvaluationTime().estimate(tables(rows))
    assert found.value == pytest.approx(2.6)
    assert (found.low, found.high, found.n) == (0.1, 5.1, 6)
    assert found.sample_unit == "evaluations"
