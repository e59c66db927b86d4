"""Speed-ups of allreduces and exchanges by size, against planted times; what is said of who was missing"""

import numpy as np
import pyarrow as pa
import pytest

from d5ray.kits.laboratory.metrics.exchanges import (
    ALLREDUCE_TIME,
    GRADIENT_TIME,
    AllreduceSpeedup,
    AllreduceTime,
    AllreduceTimeRatio,
    GradientExchangeSpeedup,
    GradientExchangeTime,
)
from d5ray.metrics.record.recorder import Recorder

PAIRS = 6
OURS, BASE = {"4 kB": 2.0, "1 MB": 30.0}, {"4 kB": 8.0, "1 MB": 45.0}


def rows(contender: str, at: str, metric: str, seconds: float) -> list[pa.RecordBatch]:
    """Two ranks, three repetitions, in six pairs; the slowest rank takes (0.5, 1, 9) × seconds."""
    batches: list[pa.RecordBatch] = []
    for pair in range(PAIRS):
        for rank, share in enumerate((0.1, 1.0)):
            recorder = Recorder(
                run_id="r", agent=f"{contender}/{rank}", rank=rank, node="n", send=batches.append
            )
            recorder.declare(metric, "s")
            for step, factor in enumerate((9.0, 0.5, 1.0)):
                value = share * factor * seconds
                recorder.record(metric, value, step=step, phase="run", scope=f"{contender} {at}", rep=pair)
            recorder.flush()
    return batches


def run(metric: str) -> dict[str, pa.Table]:
    """Ours and base at two sizes."""
    batches = [
        batch
        for contender, times in (("ours[2]", OURS), ("base[2]", BASE))
        for at, seconds in times.items()
        for batch in rows(contender, at, metric, seconds)
    ]
    return {"samples": pa.Table.from_batches(batches)}


@pytest.mark.parametrize("size", ["4 kB", "1 MB"])
def test_a_speedup_is_the_bases_time_over_ours_at_that_size(size: str) -> None:
    """8 / 2 at one size, 45 / 30 at the other; the ratio of times is its inverse."""
    tables = run(ALLREDUCE_TIME)
    speedup = AllreduceSpeedup("ours[2]", "base[2]", size).estimate(tables)
    assert speedup.value == pytest.approx(BASE[size] / OURS[size])
    ratio = AllreduceTimeRatio("ours[2]", "base[2]", size).estimate(tables)
    assert ratio.value == pytest.approx(OURS[size] / BASE[size])
    assert (speedup.n, speedup.sample_unit) == (PAIRS, "pairs of fresh processes")


@pytest.mark.parametrize("size", ["4 kB", "1 MB"])
def test_a_time_is_that_of_the_slowest_rank(size: str) -> None:
    found = AllreduceTime("ours[2]", size).estimate(run(ALLREDUCE_TIME))
    assert (found.value, found.low, found.high) == pytest.approx((OURS[size],) * 3)


def test_exchanges_of_gradients_have_times_and_speedups_of_their_own() -> None:
    tables = run(GRADIENT_TIME)
    assert GradientExchangeSpeedup("ours[2]", "base[2]", "1 MB").estimate(tables).value == pytest.approx(1.5)
    assert GradientExchangeTime("base[2]", "1 MB").estimate(tables).value == pytest.approx(45.0)
    assert AllreduceSpeedup("ours[2]", "base[2]", "1 MB").estimate(tables).value is None


def test_who_is_missing_is_named_with_the_reason_and_decides_nothing() -> None:
    """The status of a row without a value says why there are no others."""
    batches = rows("ours[2]", "1 MB", ALLREDUCE_TIME, 1.0)
    recorder = Recorder(run_id="r", agent="mpi[2]/0", rank=0, node="n", send=batches.append)
    why = "unavailable: there is no mpirun: install OpenMPI"
    recorder.record("step_time", None, scope="mpi[2]", status=why, source="unavailable")
    recorder.flush()
    tables = {"samples": pa.Table.from_batches(batches)}
    verdict = (AllreduceSpeedup("ours[2]", "mpi[2]", "1 MB") >= 2).judge(tables)
    assert (verdict.verdict, verdict.value, verdict.reason) == ("INCONCLUSIVE", None, why)
    assert AllreduceTime("mpi[2]", "1 MB").estimate(tables).reason == why
    other = AllreduceSpeedup("ours[2]", "socket[2]", "1 MB").estimate(tables)
    assert other.reason == "unavailable: socket[2] was not measured"


def test_speedups_of_noisy_pairs_lie_within_their_interval() -> None:
    """Ratios of 4 with 5 % noise: the interval holds 4 and excludes 3 and 5."""
    generator = np.random.default_rng(0)
    batches: list[pa.RecordBatch] = []
    for name, median in (("ours[2]", 1.0), ("base[2]", 4.0)):
        for pair in range(10):
            recorder = Recorder(run_id="r", agent=f"{name}/0", rank=0, node="n", send=batches.append)
            recorder.declare(ALLREDUCE_TIME, "s")
            value = median * float(np.exp(generator.normal(0, 0.05)))
            recorder.record(ALLREDUCE_TIME, value, step=0, phase="run", scope=f"{name} 1 MB", rep=pair)
            recorder.flush()
    tables = {"samples": pa.Table.from_batches(batches)}
    found = AllreduceSpeedup("ours[2]", "base[2]", "1 MB").estimate(tables)
    assert found.low is not None and found.high is not None
    assert 3 < found.low < 4 < found.high < 5
