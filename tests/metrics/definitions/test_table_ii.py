"""Latency, convergence, cost, scaling and what models may decide, against plain Python over planted rows"""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.balance import Imbalance
from d5ray.metrics.definitions.catalogue import CATALOGUE, StepTime
from d5ray.metrics.definitions.convergence import StepsToAccuracy, TimeToAccuracy, convergence_curve
from d5ray.metrics.definitions.latency import InferenceLatency, InferenceTime, StepLatency
from d5ray.metrics.definitions.price import Cost, PriceTable
from d5ray.metrics.definitions.resources import (
    ABSENT,
    DeviceEnergy,
    Energy,
    EnergyAboveIdle,
    ProcessorEnergy,
    ProcessPeakMemory,
    ProcessUtilisation,
)
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.statistics.dependence import FEWEST_TIMES
from d5ray.metrics.statistics.intervals import fewest_samples, median_interval
from d5ray.metrics.statistics.time_series import mean
from tests.metrics.statistics.test_estimates import Row, row, steps_of, tables


def with_runs(rows: list[Row], agents: dict[str, int]) -> RunTables:
    """The tables with a row of `runs` for each run, which started in this order."""
    runs = [
        {"run_id": name, "status": "completed", "agents": number, "started": 1000 * at}
        for at, (name, number) in enumerate(agents.items())
    ]
    return {**tables(rows), "runs": table_of("runs", runs)}


# -- latency -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "needed"), [(0.5, 60), (0.9, 100), (0.95, 200), (0.99, 1000)])
def test_a_percentile_has_an_interval_from_so_many_steps_on(q: float, needed: int) -> None:
    """Independent steps, more than 30, 36, 72, 368; fewer give the percentile, and what is missing."""
    seconds = np.random.default_rng(1).lognormal(size=(needed, 1))
    found = StepLatency(q).estimate(tables(steps_of(seconds)))
    ordered = np.sort(seconds.ravel())
    assert found.value == ordered[math.ceil(q * needed - 1e-9) - 1]  # that many take no longer
    assert found.low is not None and found.high is not None
    assert found.low <= ordered[math.ceil(q * needed - 1e-9) - 1] <= found.high
    assert 0.6 * needed <= found.n <= needed and not found.exact
    most = max(FEWEST_TIMES, fewest_samples(q)) - 1
    fewer = StepLatency(q).estimate(tables(steps_of(seconds[:most])))
    assert (fewer.low, fewer.high) == (None, None) and fewer.value is not None
    assert f"it needs {most + 1}" in fewer.reason


def test_a_latency_is_of_the_slowest_rank_and_without_the_warm_up() -> None:
    """The p100-like percentile of three ranks is the largest of all, and a warm-up step does not count."""
    seconds = np.random.default_rng(2).lognormal(size=(50, 3))
    warm = [row("step_time", 1e9, rank=0, step=-1, phase="warmup")]
    assert StepLatency(0.999).estimate(tables(warm + steps_of(seconds))).value == seconds.max()


def test_six_runs_each_give_one_percentile() -> None:
    """The unit is the run: the median of the runs' own percentiles, its interval over them."""
    rng = np.random.default_rng(3)
    data = {f"run-{i}": rng.lognormal(size=(40, 1)) for i in range(6)}
    rows = [one for name, seconds in data.items() for one in steps_of(seconds, name)]
    own = [np.sort(seconds.ravel())[35] for seconds in data.values()]  # the 36th of 40
    found = StepLatency(0.9).estimate(tables(rows))
    assert found.value == pytest.approx(np.median(own))
    assert (found.low, found.high, found.n) == (min(own), max(own), 6)


def test_inferences_are_timed_apart_from_steps() -> None:
    """Rows of inference_time in phase test count, in calls; those of warm-up do not."""
    seconds = np.random.default_rng(4).lognormal(size=80)
    rows = [row("inference_time", float(s), step=at, phase="test", level=1) for at, s in enumerate(seconds)]
    rows += [row("inference_time", 1e9, step=-1, phase="warmup", level=1)]
    assert InferenceLatency(0.5).estimate(tables(rows)).value == np.sort(seconds)[39]
    found = InferenceTime().estimate(tables(rows))
    assert (found.n, found.low is not None) == (77, True)  # of 80
    assert found.value == np.median(seconds)


@pytest.mark.parametrize("quantile", [0, 1, 1.5, "p95", math.nan])
def test_a_quantile_lies_between_zero_and_one(quantile: Any) -> None:
    with pytest.raises(ConfigurationError, match="quantile"):
        StepLatency(quantile)


# -- convergence -------------------------------------------------------------------------------------------


def trained(accuracy: list[list[float]], run_id: str = "r", seconds: float = 2.0, each: int = 5) -> list[Row]:
    """Each evaluation (evaluations, ranks) after `each` steps of `seconds`; evaluations take 100 s."""
    rows, now = [], 0
    for epoch, ranks in enumerate(accuracy):
        for step in range(epoch * each, (epoch + 1) * each):
            now += round(seconds * 1e9)
            for rank in range(len(ranks)):
                slow = seconds * (1 + 0.5 * rank)
                phase = "warmup" if step < 2 else "train"
                own: Row = {"rank": rank, "step": step, "phase": phase}
                rows.append(row("step_time", slow, t_wall=now, run_id=run_id, **own))
        for rank, value in enumerate(ranks):
            at: Row = {"rank": rank, "step": (epoch + 1) * each - 1, "epoch": epoch, "phase": "test"}
            rows.append(row("test_accuracy", value, t_wall=now + 1, run_id=run_id, **at))
        now += 100 * 10**9
    return rows


def test_the_curve_has_every_evaluation_with_the_training_time_until_then() -> None:
    """Five steps of 2 s, the second rank's of 3 s: 15, 30, 45 s; evaluations take no time of it."""
    curve = convergence_curve(tables(trained([[0.5, 0.6], [0.8, 0.7], [0.9, 0.95]])))
    assert curve.to_pylist() == [
        {"run_id": "r", "step": 4, "epoch": 0, "seconds": 15.0, "value": 0.5},
        {"run_id": "r", "step": 9, "epoch": 1, "seconds": 30.0, "value": 0.7},
        {"run_id": "r", "step": 14, "epoch": 2, "seconds": 45.0, "value": 0.9},
    ]
    assert d5.metrics.convergence_curve(tables([])).num_rows == 0


def test_the_curve_of_the_loss_has_every_step() -> None:
    rows = [
        row("loss", 4.0 - step - rank, rank=rank, step=step, epoch=0) for step in range(3) for rank in (0, 1)
    ]
    curve = convergence_curve(tables(rows), "loss")
    assert curve["value"].to_pylist() == [3.5, 2.5, 1.5]
    assert np.isnan(curve["seconds"].to_numpy()).all()  # no step time was recorded


def test_the_first_evaluation_that_meets_the_target_counts() -> None:
    """0.8 is met at the second evaluation, not between it and the first, and not at the better third."""
    run = tables(trained([[0.5], [0.82], [0.99]]))
    assert TimeToAccuracy(0.8).estimate(run).value == 20.0
    steps = StepsToAccuracy(0.8).estimate(run)
    assert (steps.value, steps.exact) == (10.0, True)
    assert (StepsToAccuracy(0.8) <= 10).judge(run).verdict == "PASS"
    verdict = (TimeToAccuracy(0.8) <= 100).judge(run)
    assert verdict.verdict == "INCONCLUSIVE" and "make 5 more" in verdict.reason


def test_a_miss_is_censored_not_left_out() -> None:
    """Of seven runs one misses: it is +∞, the high bound is infinite, and the reason tells the budget."""
    data = {f"run-{i}": [[0.5], [0.9]] for i in range(6)} | {"run-6": [[0.5], [0.6]]}
    rows = [one for at, (name, a) in enumerate(data.items()) for one in trained(a, name, 1.0 + at)]
    found = TimeToAccuracy(0.8).estimate(tables(rows))
    times = [10 * (1.0 + at) for at in range(6)] + [math.inf]
    assert (found.value, (found.low, found.high)) == (np.median(times), median_interval(times))
    assert found.high == math.inf and found.sample_unit == "runs, 1 censored"
    assert "1 of 7 runs did not reach 0.8 within their budget of 70 s" in found.reason
    assert (TimeToAccuracy(0.8) <= 1000).judge(tables(rows)).verdict == "INCONCLUSIVE"
    assert (TimeToAccuracy(0.8) <= 5).judge(tables(rows)).verdict == "FAIL"
    missed = StepsToAccuracy(0.99).estimate(tables(rows))
    assert (missed.value, missed.low, missed.high) == (math.inf, math.inf, math.inf)
    assert (StepsToAccuracy(0.99) <= 1e9).judge(tables(rows)).verdict == "FAIL"


def test_without_an_evaluation_nothing_is_said() -> None:
    assert "no row of test_accuracy" in TimeToAccuracy(0.5).estimate(tables([])).reason
    alone = [row("test_accuracy", 0.9, phase="test", step=3, epoch=0)]
    assert "no step_time" in TimeToAccuracy(0.5).estimate(tables(alone)).reason
    assert StepsToAccuracy(0.5).estimate(tables(alone)).value == 4
    with pytest.raises(ConfigurationError, match="accuracy is 95"):
        TimeToAccuracy(95)


# -- resources and cost ------------------------------------------------------------------------------------


def sampled(metric: str, values: list[float | None], **columns: Any) -> list[Row]:
    """A monitor's rows, one a second."""
    given: Row = {"agent": "NodeMonitor", "rank": -1, "scope": "node", "source": "counter"} | columns
    return [
        row(metric, value, t_wall=at * 10**9, **given | ({} if value is not None else LOST))
        for at, value in enumerate(values)
    ]


LOST: Row = {"status": "unavailable: package-0 was not read: gone", "source": "unavailable"}
NO_GPU: Row = {"status": f"{ABSENT} NVIDIA driver", "source": "unavailable"}


def test_energy_is_the_sum_over_nodes_while_they_trained() -> None:
    rows = sampled("processor_energy", [10.0, 20.0]) + sampled("processor_energy", [5.0], node="m")
    rows += sampled("processor_energy", [100.0], phase="idle") + sampled("memory_energy", [2.0])
    rows += [row("device_energy", None, phase="idle", **NO_GPU)]
    assert ProcessorEnergy().estimate(tables(rows)).value == 35.0
    assert Energy().estimate(tables(rows)).value == 37.0
    assert "no NVIDIA driver" in DeviceEnergy().estimate(tables(rows)).reason
    assert (Energy() <= 40).judge(tables(rows)).verdict == "PASS"


def test_one_failed_reading_makes_the_sum_unavailable() -> None:
    """Not a jump, and not a smaller sum that looks like thrift."""
    rows = sampled("processor_energy", [10.0, None, 20.0])
    for metric in (ProcessorEnergy(), Energy()):
        found = metric.estimate(tables(rows))
        assert found.value is None and "package-0 was not read" in found.reason
        assert (metric <= 1e9).judge(tables(rows)).verdict == "INCONCLUSIVE"
    gpu = [*sampled("processor_energy", [10.0]), row("device_energy", None, **LOST)]
    assert Energy().estimate(tables(gpu)).value is None  # a GPU that is there and cannot be read


def test_idle_power_is_subtracted() -> None:
    """Two nodes, 10 W each when idle, 200 J in 4 s of each: 2 · (200 − 40)."""
    rows = []
    for node in ("a", "b"):
        rows += sampled("processor_energy", [20.0], phase="idle", node=node)
        rows += sampled("node_time", [2.0], phase="idle", node=node)
        rows += sampled("processor_energy", [100.0, 100.0], node=node)
        rows += sampled("node_time", [2.0, 2.0], node=node)
    assert EnergyAboveIdle().estimate(tables(rows)).value == pytest.approx(2 * (200 - 40))
    assert "no idle time" in EnergyAboveIdle().estimate(tables(sampled("processor_energy", [1.0]))).reason


def test_a_run_that_was_not_watched_says_so() -> None:
    for metric in (ProcessUtilisation(), ProcessPeakMemory(), Energy(), ProcessorEnergy()):
        found = metric.estimate(tables([]))
        assert found.value is None and "monitor_seconds" in found.reason


def test_utilisation_is_the_mean_over_processes_then_over_time() -> None:
    data = np.random.default_rng(5).random((2, 60))
    rows = [
        one for rank in (0, 1) for one in sampled("process_utilisation", data[rank].tolist(), scope=str(rank))
    ]
    found = ProcessUtilisation().estimate(tables(rows))
    assert found.value == pytest.approx(data.mean())
    assert (found.low, found.high) == mean(data.mean(axis=0)).interval()[0]
    assert ProcessPeakMemory().estimate(tables(sampled("peak_memory", [1.0, 7.0, 3.0]))).value == 7.0


def test_cost_is_node_seconds_and_energy_at_the_users_prices() -> None:
    """Two nodes for 1800 s at 3 an hour, and 7.2 MJ at 0.25 a kWh: 3 + 0.5, in the user's currency."""
    rows = [row("step_time", 1.0, node=node, t_wall=t * 10**9) for node in "ab" for t in (0, 1800)]
    rows += [row("processor_energy", 7.2e6, node="a", t_wall=9 * 10**9, scope="node")]
    both = Cost(PriceTable(node_per_hour=3.0, per_kilowatt_hour=0.25, currency="CHF"))
    found = both.estimate(tables(rows))
    assert found.value == pytest.approx(3.5)
    assert (found.exact, both.unit) == (True, "CHF")
    assert (both <= 3.6).judge(tables(rows)).unit == "CHF"
    assert Cost(PriceTable(3.0)).estimate(tables(rows)).value == pytest.approx(3.0)
    assert "no price" in Cost().estimate(tables(rows)).reason
    dark = both.estimate(tables(rows[:-1]))
    assert dark.value is None and "leave per_kilowatt_hour out" in dark.reason
    with pytest.raises(ConfigurationError, match="node_per_hour"):
        PriceTable(node_per_hour=-1)


def test_imbalance_is_the_busiest_agents_own_time_over_the_mean() -> None:
    """Waiting in the exchange is nobody's work; sums over the steps, against plain Python."""
    rng = np.random.default_rng(9)
    own, wait = rng.lognormal(size=(2, 60, 3))
    places = [(step, rank) for step in range(60) for rank in range(3)]
    rows = [row("step_time", own[p] + wait[p], step=p[0], rank=p[1]) for p in places]
    rows += [row("exchange_time", wait[p], step=p[0], rank=p[1]) for p in places]
    expected = sum(max(step) for step in own) / sum(sum(step) / 3 for step in own)
    found = Imbalance().estimate(tables(rows))
    assert found.low is not None and found.high is not None
    assert found.value == pytest.approx(expected)
    assert found.low < expected < found.high
    alone = [one for one in rows if one["rank"] == 0]
    assert Imbalance().estimate(tables(alone)).value == 1.0


# -- what may decide ---------------------------------------------------------------------------------------


def test_a_models_value_decides_nothing() -> None:
    """One modelled row among measured ones: the value is shown, the verdict is open and says why."""
    measured = sampled("processor_energy", [10.0, 10.0])
    modelled = sampled("processor_energy", [1.0], source="model", node="m")
    verdict = (ProcessorEnergy() <= 100).judge(tables(measured + modelled))
    assert (verdict.value, verdict.verdict) == (21.0, "INCONCLUSIVE") and "model" in verdict.reason
    assert (ProcessorEnergy() <= 5).judge(tables(measured + modelled)).verdict == "INCONCLUSIVE"
    assert (ProcessorEnergy() <= 100).judge(tables(measured)).verdict == "PASS"
    # a metric that does not rest on it is judged as ever
    steps = steps_of(np.ones((60, 1)))
    assert (StepTime() <= 1).judge(tables(steps + modelled)).verdict == "PASS"


def test_every_metric_says_of_which_rows_it_is_made_and_is_unavailable_without() -> None:
    """The whole catalogue on empty tables: no error, no value, a reason; and names of rows that exist."""
    empty: dict[str, pa.Table] = {name: table_of(name) for name in ("samples", "events", "runs")}
    for kind in CATALOGUE.values():
        found = kind().estimate(empty)
        assert found.value is None and found.reason, kind
        assert set(kind().reads()) <= set(CATALOGUE)
