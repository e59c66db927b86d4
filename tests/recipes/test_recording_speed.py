"""Claims about timing recording: what is recorded, stored and asked is all there, and right."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recording_speed import job as recordings
from benchmarks.recording_speed import recipe as recipe
from benchmarks.recording_speed.job import NAME, WIDTH, check_medians, querying, recording, storing
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons import timing
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from d5ray.metrics.statistics.sequential_stopping import StoppingRule

ONCE = StoppingRule(most=6, seconds=30)


def test_every_value_is_recorded_in_every_repetition() -> None:
    """It counts its rows itself; a value takes less than a step's whole repetition and more than nothing."""
    times = recording(steps=100, rule=ONCE)
    assert len(times.seconds) == 6 and min(times.seconds) > 0 and times.stop_reason


def test_what_is_stored_is_in_the_run_without_a_gap(tmp_path: Path) -> None:
    """A warm-up and six repetitions of 50 steps: their rows are numbered on, once each."""
    times = storing(50, tmp_path, ONCE)
    (found,) = sql(
        Run(tmp_path / NAME), "select count(*) n, count(distinct seq) d, max(seq) hi from samples"
    ).to_pylist()
    assert len(times.seconds) == 6 and times.loops == 1
    assert found == {"n": 7 * 50 * WIDTH, "d": 7 * 50 * WIDTH, "hi": 7 * 50 * WIDTH - 1}


def test_the_query_is_on_a_finished_run_with_as_many_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least as many as asked for, in whole steps, and in Parquet; the medians are NumPy's."""
    monkeypatch.setattr(recordings, "BLOCK", 1000)  # more than one, and the last not whole
    assert len(querying(30_000, tmp_path, ONCE).seconds) == 6
    run = Run(tmp_path / NAME)
    rows = run.tables()["samples"].num_rows
    assert 30_000 <= rows < 30_000 + WIDTH and (run.folder / "samples.parquet").exists()
    with pytest.raises(AgentError, match=r"SQL's median of loss is .* NumPy's"):
        check_medians(run, np.ones((3, WIDTH)))


def test_repetitions_end_by_the_rule_and_short_operations_are_looped(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only the operation moves: 1 ms each, ten for a value, as many values as it takes."""
    now = [0.0]
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])
    cost = iter([0.001] * 10_000)

    def operation() -> None:
        now[0] += next(cost)

    times = timing.repeated(operation, StoppingRule(seconds=1e3))
    assert (times.loops, len(times.seconds)) == (10, 30)
    assert times.seconds == pytest.approx([0.001] * 30)
    assert times.stop_reason.startswith("precise")
    slow = timing.repeated(operation, StoppingRule(seconds=0.055))
    assert slow.stop_reason == "time: 0.055 s have passed, 6 values"
