"""Ratios over pairs of fresh processes, against closed forms."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest

from d5ray.kits.laboratory.metrics.side_by_side import RecordingShare, StepTimeOf, StepTimeRatio, contenders
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.statistics.intervals import Estimate

Steps = Sequence[float]


def tables(*turns: tuple[str, int, dict[str, list[Steps]]]) -> dict[str, pa.Table]:
    """The rows of turns (contender, pair, {metric: the steps of each rank}); the first step is warm-up."""
    batches: list[pa.RecordBatch] = []
    for contender, pair, metrics in turns:
        for metric, ranks in metrics.items():
            for rank, steps in enumerate(ranks):
                recorder = Recorder(
                    run_id="r", agent=f"{contender}/{rank}", rank=rank, node="n", send=batches.append
                )
                for step, value in enumerate(steps):
                    phase = "warmup" if step == 0 else "train"
                    recorder.record(metric, value, step=step, phase=phase, scope=contender, rep=pair)
                recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def processes(contender: str, medians: Steps) -> list[tuple[str, int, dict[str, list[Steps]]]]:
    """One process a pair, whose measured steps have this median; its warm-up is a hundred times as slow."""
    return [
        (contender, pair, {"step_time": [[100 * m, 0.5 * m, m, 9 * m]]}) for pair, m in enumerate(medians)
    ]


RATIO = StepTimeRatio(ours="ours", base="base")


def test_a_planted_ratio_is_found_with_the_exact_rank_interval() -> None:
    """Ten pairs: the median of the log-ratios, between the second and the ninth of them."""
    generator = np.random.default_rng(0)
    base = np.exp(generator.normal(-7.0, 0.3, 10))  # processes differ by 30%, the pairs' ratios by 2%
    ratios = np.exp(generator.normal(math.log(1.1), 0.02, 10))
    found = RATIO.estimate(tables(*processes("ours", list(ratios * base)), *processes("base", list(base))))
    ordered = np.sort(np.log(ratios))
    expected = [math.exp(x) for x in (float(np.median(ordered)), ordered[1], ordered[8])]
    assert [found.value, found.low, found.high] == pytest.approx(expected)
    assert (found.n, found.sample_unit, found.exact) == (10, "pairs of fresh processes", False)


@pytest.mark.full
def test_equal_sides_give_an_interval_that_holds_one_and_an_open_verdict_at_it() -> None:
    """A/A: 95 times in 100 at least, and an interval with 1 inside decides nothing."""
    generator = np.random.default_rng(1)
    held = 0
    for _ in range(100):
        ours, base = (list(np.exp(generator.normal(-7.0, 0.01, 10))) for _ in range(2))
        run = tables(*processes("ours", ours), *processes("base", base))
        found = RATIO.estimate(run)
        assert found.low is not None and found.high is not None
        inside = found.low <= 1.0 <= found.high
        held += inside
        assert ((RATIO <= 1.0).judge(run).verdict == "INCONCLUSIVE") == inside
    assert held >= 95


@pytest.mark.parametrize("pairs", [1, 5])
def test_fewer_than_six_pairs_have_no_interval_and_no_verdict(pairs: int) -> None:
    run = tables(*processes("ours", [1.0] * pairs), *processes("base", [2.0] * pairs))
    verdict = (RATIO <= 1.02).judge(run)
    assert (verdict.value, verdict.low, verdict.high, verdict.n) == (0.5, None, None, pairs)
    assert verdict.verdict == "INCONCLUSIVE"
    assert f"make {6 - pairs} more" in verdict.reason


def test_six_pairs_are_enough() -> None:
    run = tables(*processes("ours", [1.0] * 6), *processes("base", [2.0] * 6))
    assert (RATIO <= 0.5).judge(run).verdict == "PASS"
    assert (RATIO <= 0.49).judge(run).verdict == "FAIL"


def test_a_turn_without_its_other_side_does_not_count() -> None:
    """What an interrupted run measured last has no partner."""
    run = tables(*processes("ours", [1.0, 2.0, 30.0]), *processes("base", [2.0, 4.0]))
    assert RATIO.estimate(run).n == 2
    assert RATIO.estimate(run).value == pytest.approx(0.5)


def test_nothing_measured_is_unavailable() -> None:
    run = tables(*processes("ours", [1.0]))
    assert RATIO.estimate(run) == Estimate(None, reason="unavailable: base was not measured")
    assert StepTimeOf("base").estimate(run).value is None
    assert RecordingShare("ours").estimate(run).value is None


def test_a_step_takes_as_long_as_its_slowest_rank() -> None:
    """Ranks (1, 5, 1) and (4, 1, 3): the steps took 4, 5 and 3, their median is 4."""
    ranks: list[Steps] = [[50.0, 1.0, 5.0, 1.0], [50.0, 4.0, 1.0, 3.0]]
    run = tables(*(("both", pair, {"step_time": ranks}) for pair in range(6)))
    found = StepTimeOf("both").estimate(run)
    assert (found.value, found.low, found.high, found.n) == (4.0, 4.0, 4.0, 6)


def test_the_recording_share_is_a_ratio_of_sums_of_the_rank_that_records_most() -> None:
    """(0 + 0 + 3) / (10 + 10 + 10) = 0.1 on one rank, (0 + 0.1 + 0.2) / 30 = 0.01 on the other."""
    turn: dict[str, list[Steps]] = {
        "step_time": [[99.0, 10.0, 10.0, 10.0], [99.0, 10.0, 10.0, 10.0]],
        "record_time": [[99.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.1, 0.2]],
    }
    run = tables(*(("both", pair, turn) for pair in range(6)))
    found = RecordingShare("both").estimate(run)
    assert [found.value, found.low, found.high] == pytest.approx([0.1, 0.1, 0.1])


def test_contenders_are_named_in_order_and_a_run_of_agents_has_none() -> None:
    assert contenders(tables(*processes("ours", [1.0]), *processes("base", [1.0]))) == ["ours", "base"]
    assert contenders(tables(*processes("agent", [1.0]))) == []


def test_verdicts_of_one_class_are_told_apart() -> None:
    other = StepTimeRatio(ours="ours", base="another")
    run = tables(*processes("ours", [1.0]), *processes("base", [1.0]))
    names = [(metric <= 1.0).judge(run).metric for metric in (RATIO, other)]
    assert names == ["step_time_ratio(ours=ours, base=base)", "step_time_ratio(ours=ours, base=another)"]
