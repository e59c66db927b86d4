"""Performance profiles against their definitions: ratios by hand, scores by quadrature, medians over seeds"""

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.metrics.performance_profiles import (
    PerformanceScore,
    medians_of,
    ratios_of,
    score,
    share,
)
from tests.kits.laboratory.comparing import Row, written

INF = math.inf


def rows(*planted: Row) -> dict[str, pa.Table]:
    return written(planted)


def of_seeds(optimizer: str, workload: str, *values: float, metric: str = "steps_to_target") -> list[Row]:
    return [(metric, f"{optimizer}, {workload}[1]", 0, seed, value) for seed, value in enumerate(values)]


def test_ratios_are_those_to_the_best_on_each_workload() -> None:
    """By hand; 4 still counts, 4.01 does not, and where nobody arrives nobody is first."""
    times = {
        "A": {"w": 100.0, "x": 401.0, "y": INF, "z": INF},
        "B": {"w": 400.0, "x": 100.0, "y": 50.0, "z": INF},
    }
    assert ratios_of(times) == {
        "A": {"w": 1.0, "x": INF, "y": INF, "z": INF},
        "B": {"w": 4.0, "x": 1.0, "y": 1.0, "z": INF},
    }


drawn = st.dictionaries(
    st.sampled_from("abcdefg"), st.one_of(st.floats(1, 4), st.just(INF), st.just(1.0)), min_size=1
)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(drawn)
def test_the_score_is_the_area_under_the_profile(ratios: dict[str, float]) -> None:
    """Against the trapezoid rule of AlgoPerf on a fine grid, and against every share by counting."""
    grid = np.linspace(1, 4, 601)
    profile = np.array([share(ratios, tau) for tau in grid])
    counted = (np.array(list(ratios.values())) <= grid[:, None]).mean(axis=1)
    np.testing.assert_array_equal(profile, counted)
    assert score(ratios) == pytest.approx(np.trapezoid(profile, grid) / 3, abs=2e-3)
    assert 0 <= score(ratios) <= 1


times = st.lists(st.one_of(st.floats(1e-3, 1e6), st.just(INF)), min_size=3, max_size=3)


@settings(derandomize=True, deadline=None)
@given(st.lists(times, min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_the_unit_of_a_workload_does_not_matter(columns: list[list[float]], unit: float) -> None:
    """Steps or samples, a fast machine or a slow one; and the best of all on a workload has a ratio of 1."""
    by_optimizer = {
        name: {str(w): column[i] for w, column in enumerate(columns)} for i, name in enumerate("ABC")
    }
    ratios = ratios_of(by_optimizer)
    scaled = {name: {w: t * unit for w, t in own.items()} for name, own in by_optimizer.items()}
    for name, own in ratios_of(scaled).items():
        for workload, ratio in own.items():
            if not math.isclose(by_optimizer[name][workload], 4 * min(columns[int(workload)])):
                assert ratio == pytest.approx(ratios[name][workload])
    for w, column in enumerate(columns):
        best = min(own[str(w)] for own in ratios.values())
        assert best == (1.0 if math.isfinite(min(column)) else INF)


def test_a_score_is_made_of_medians_over_seeds() -> None:
    """A needs 100 and 150 (medians of three), B 200 and, with one miss of three, 100: 1 and 1.5, 2 and 1."""
    run = rows(
        *of_seeds("A", "w", 100, 90, 300), *of_seeds("A", "v", INF, 140, 150),
        *of_seeds("B", "w", 200, 200, 190), *of_seeds("B", "v", 100, INF, 50),
    )  # fmt: skip
    assert medians_of(run, "steps_to_target") == {"A": {"w": 100, "v": 150}, "B": {"w": 200, "v": 100}}
    found = PerformanceScore("A").estimate(run)
    assert found.value == pytest.approx((1 + 2.5 / 3) / 2)
    assert (found.n, found.sample_unit, found.exact) == (2, "workloads", True)
    assert PerformanceScore("B").estimate(run).value == pytest.approx((2 / 3 + 1) / 2)
    assert (PerformanceScore("A") >= 0.9).judge(run).verdict == "PASS"
    assert (PerformanceScore("B") >= 0.9).judge(run).verdict == "FAIL"


def test_as_many_misses_as_hits_are_a_miss() -> None:
    run = rows(*of_seeds("A", "w", 100, INF), *of_seeds("B", "w", 400, 400))
    assert medians_of(run, "steps_to_target")["A"]["w"] == INF
    assert [PerformanceScore(name).estimate(run).value for name in "AB"] == [0.0, 1.0]


def test_steps_seconds_and_samples_are_scored_by_themselves() -> None:
    run = rows(
        *of_seeds("A", "w", 10), *of_seeds("B", "w", 20),
        *of_seeds("A", "w", 3.0, metric="time_to_target"), *of_seeds("B", "w", 1.0, metric="time_to_target"),
        *of_seeds("A", "w", 5, metric="samples_to_target"),
        *of_seeds("B", "w", 5, metric="samples_to_target"),
    )  # fmt: skip
    scores = {by: PerformanceScore("A", by).estimate(run).value for by in ("steps", "seconds", "samples")}
    assert scores == pytest.approx({"steps": 1.0, "seconds": 1 / 3, "samples": 1.0})
    with pytest.raises(ConfigurationError, match="did you mean 'seconds'"):
        PerformanceScore("A", by="second")


def test_only_workloads_that_all_were_measured_on_are_compared() -> None:
    """A run that was interrupted: B was not measured on v."""
    run = rows(*of_seeds("A", "w", 100), *of_seeds("B", "w", 50), *of_seeds("A", "v", 1))
    assert medians_of(run, "steps_to_target") == {"A": {"w": 100}, "B": {"w": 50}}
    missing = (PerformanceScore("C") >= 0.5).judge(run)
    assert (missing.verdict, missing.reason) == ("INCONCLUSIVE", "unavailable: C was not measured")
    apart = rows(*of_seeds("A", "w", 100), *of_seeds("B", "v", 50))
    assert PerformanceScore("A").estimate(apart).value is None
    assert PerformanceScore("A").estimate(rows(("loss", "agent", 0, 0, 1.0))).value is None
