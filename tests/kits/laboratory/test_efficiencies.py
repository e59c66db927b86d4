"""Efficiencies of scaling, against plain Python over planted rows"""

import pytest

from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.metrics.scaling import (
    StrongEfficiency,
    StrongEfficiencyOf,
    WeakEfficiency,
    WeakEfficiencyOf,
)
from d5ray.metrics.judge.criteria import RunTables
from tests.metrics.definitions.test_table_ii import with_runs
from tests.metrics.statistics.test_estimates import Row, row, tables


def scaled(samples: dict[int, int], seconds: dict[int, list[float]]) -> RunTables:
    """Runs by their number of agents: samples of an agent's step, and a time of the step for each run."""
    rows, agents = [], {}
    for number, times in seconds.items():
        for at, each in enumerate(times):
            name = f"{number}-{at}"
            agents[name] = number
            for step in range(4):
                for rank in range(number):
                    place: Row = {"rank": rank, "step": step, "run_id": name}
                    rows.append(row("step_time", each, **place))
                    rows.append(row("samples", samples[number], **place))
    return with_runs(rows, agents)


def test_strong_efficiency_is_that_of_the_same_work() -> None:
    """T_1/(4 T_4) in each of seven pairs: the median, its rank interval, and the base in the reason."""
    one, four = [8.0, 8.2, 8.4, 8.1, 8.3, 8.0, 9.0], [2.5, 2.4, 2.6, 2.5, 2.2, 2.1, 3.0]
    found = StrongEfficiency(4).estimate(scaled({1: 32, 4: 8}, {1: one, 4: four}))
    each = sorted(a / (4 * b) for a, b in zip(one, four, strict=True))
    assert found.value == pytest.approx(each[3])
    assert (found.low, found.high) == pytest.approx((each[0], each[6]))
    assert (found.n, found.reason) == (7, "base: 1 agent, a step of 8.2 s")
    other = WeakEfficiency(4).estimate(scaled({1: 32, 4: 8}, {1: one, 4: four}))
    assert other.value is None and "ask for StrongEfficiency" in other.reason


def test_weak_efficiency_is_that_of_work_that_grows() -> None:
    """T_2/T_4, the base being two agents; with fewer than six pairs without an interval."""
    run = scaled({2: 16, 4: 16}, {2: [1.0, 1.2], 4: [1.25, 1.5]})
    found = WeakEfficiency(4, base=2).estimate(run)
    assert found.value == pytest.approx(0.8) and found.low is None
    assert "2 pairs of runs are too few" in found.reason and "base: 2 agents" in found.reason
    wrong = StrongEfficiency(4, base=2).estimate(run)
    assert wrong.value is None and "32 samples with 2 agents, 64 with 4" in wrong.reason
    assert "no run with 8 agents" in StrongEfficiency(8, base=2).estimate(run).reason
    with pytest.raises(ConfigurationError, match="more agents over fewer"):
        StrongEfficiency(2, base=2)


def test_efficiencies_of_contenders_are_of_pairs() -> None:
    """Six pairs of processes: ours takes a third of the base's time with four processes: 0.75, and 3."""
    rows = [
        row("step_time", seconds, scope=scope, rep=pair, step=0)
        for pair in range(6)
        for scope, seconds in (("d5ray[1]", 3.0 + pair), ("d5ray[4]", 1.0 + pair / 3))
    ]
    strong = StrongEfficiencyOf("d5ray[4]", "d5ray[1]", 4).estimate(tables(rows))
    assert (strong.value, strong.low, strong.high) == pytest.approx((0.75, 0.75, 0.75))
    assert WeakEfficiencyOf("d5ray[4]", "d5ray[1]", 4).estimate(tables(rows)).value == pytest.approx(3.0)
    assert WeakEfficiencyOf("nobody", "d5ray[1]", 4).estimate(tables(rows)).value is None
