"""Laws of all recipes that compare contenders: what is refused, who is judged, what a short run records"""

from dataclasses import replace
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import d5ray as d5
from benchmarks.allreduce_speed import recipe as allreduce_speed
from benchmarks.allreduce_speed.baselines import ThroughTorch
from benchmarks.executor_overhead import recipe as executor_overhead
from benchmarks.executor_overhead.metrics import EXECUTOR_TIME, ExecutorTimeRatio
from benchmarks.link_speed import recipe as link_speed
from benchmarks.microbatch_speed import recipe as microbatch_speed
from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY, PeakMemoryRatio
from benchmarks.overhead_lenet import recipe as overhead_lenet
from benchmarks.recording_speed import recipe as recording_speed
from benchmarks.recovery_speed import recipe as recovery_speed
from benchmarks.server_speed import recipe as server_speed
from benchmarks.simulation_speed import recipe as simulation_speed
from benchmarks.step_lenet import recipe as step_lenet
from benchmarks.step_resnet8 import recipe as step_resnet8
from benchmarks.update_speed import recipe as update_speed
from benchmarks.update_speed.metrics import RULE_STEP_TIME, RULE_TIME, RuleStepTimeRatio, UpdateTimeRatio
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.jobs.contest import Tries
from d5ray.kits.laboratory.jobs.scaling import RealExchange
from d5ray.kits.laboratory.jobs.trainings import Training
from d5ray.kits.laboratory.metrics.exchanges import (
    ALLREDUCE_TIME,
    GRADIENT_TIME,
    AllreduceSpeedup,
    AllreduceTime,
    AllreduceTimeRatio,
    GradientExchangeSpeedup,
    GradientExchangeTime,
)
from d5ray.kits.laboratory.metrics.rates import SERVICE_TIME, ServiceTimeRatio
from d5ray.kits.laboratory.metrics.simulations import SimulationOverhead
from d5ray.kits.laboratory.metrics.trainings import (
    UPDATES,
    AccuracyDifference,
    TrainingTimeRatio,
    UpdatesRatio,
)
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import list_runs
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes import (
    batch_or_rate,
    compressed_exchange,
    optimizer_comparison,
    scale_study,
    straggler_throughput,
)
from tests.conftest import d5ray
from tests.kits.laboratory.comparing import LINEAR, job_of, planted, written

SGD = d5.optimizers.SGD(0.1)
WRONG: list[tuple[ModuleType, dict[str, Any], str]] = [
    (overhead_lenet, {"optimizer": SGD}, "Momentum"),
    (overhead_lenet, {"pairs": 0}, "pairs"),
    (overhead_lenet, {"steps": 0}, "steps"),
    (overhead_lenet, {"batch_size": 0}, "batch_size"),
    (overhead_lenet, {"model": "lanet"}, "lenet"),
    (overhead_lenet, {"dataset": "digitz"}, "digits"),
    (overhead_lenet, {"dataset": 3}, "dataset"),
    (overhead_lenet, {"threads": 0}, "threads"),
    (allreduce_speed, {"sizes": ("4",)}, "integer and a unit"),
    (allreduce_speed, {"sizes": ("1.5 MB",)}, "integer and a unit"),
    (allreduce_speed, {"sizes": ("6 B",)}, "float32"),
    (allreduce_speed, {"sizes": ()}, "sizes"),
    (allreduce_speed, {"sizes": "1 MB"}, "sizes"),
    (allreduce_speed, {"seconds": 0}, "seconds"),
    (server_speed, {"sizes": ("6 B",)}, "float32"),
    (server_speed, {"seconds": 0}, "seconds"),
    (simulation_speed, {"steps": 0}, "steps"),
    (simulation_speed, {"many_steps": 0}, "many_steps"),
    (simulation_speed, {"many_rounds": -1}, "many_rounds"),
    (simulation_speed, {"seconds": 0}, "seconds"),
    (simulation_speed, {"model": "lanet"}, "did you mean 'lenet'"),
    (simulation_speed, {"many_model": "mpl"}, "did you mean 'mlp'"),
    (simulation_speed, {"batch_size": 0}, "batch_size"),
    (simulation_speed, {"many_batch_size": 2}, "one step of all agents takes 2048"),
    (simulation_speed, {"comparisons": ((ThroughTorch(2),),)}, "BesideGradients"),
    (recording_speed, {"steps": 0}, "steps"),
    (recording_speed, {"rows": 0}, "rows"),
    (recording_speed, {"seconds": 0}, "seconds"),
    (recording_speed, {"comparisons": ((ThroughTorch(2),),)}, "Values"),
    (recovery_speed, {"steps": 0}, "steps is 0"),
    (executor_overhead, {"seconds": 0}, "seconds"),
    (update_speed, {"rules": ()}, "must be a tuple such as"),
    (update_speed, {"rules": update_speed.RULES[:1] * 2}, "must be a tuple such as"),
    (update_speed, {"rules": (SGD,)}, "must be a tuple such as"),
    (microbatch_speed, {"sizes": ()}, "must be a tuple of sizes"),
    (microbatch_speed, {"sizes": (128,)}, "a micro-batch is smaller"),
    (microbatch_speed, {"share": 2.0}, "share"),
    (microbatch_speed, {"steps": 0}, "steps"),
    (straggler_throughput, {"steps": 0}, "steps"),
    (straggler_throughput, {"core_steps": 1.5}, "core_steps"),
    (straggler_throughput, {"factor": 0.5}, "factor"),
    (straggler_throughput, {"device_seconds": float("nan")}, "device_seconds"),
    (straggler_throughput, {"model": 7}, "model"),
    (straggler_throughput, {"batch_size": 0}, "batch_size"),
    (straggler_throughput, {"comparisons": ((ThroughTorch(2),),)}, "OnCores, OnDevices, Simulated"),
    (compressed_exchange, {"gradients": ("lanet",)}, "did you mean 'lenet'"),
    (compressed_exchange, {"gradients": ()}, "gradients"),
    (compressed_exchange, {"gradients": "lenet"}, "gradients"),
    (compressed_exchange, {"megabits": 0}, "megabits"),
    (compressed_exchange, {"seconds": -1}, "seconds"),
    (batch_or_rate, {"comparisons": ((Training("none", SGD, 0),),)}, "batch_size is 0"),
    (batch_or_rate, {"epochs": 0}, "epochs is 0"),
    (scale_study, {"agents": (4, 4)}, "different numbers"),
    (scale_study, {"agents": 4}, "agents"),
    (scale_study, {"agents": (0,)}, "agents"),
    (scale_study, {"agents": (1000,)}, "448 for 1000 agents"),
    (scale_study, {"real_agents": (2.0,)}, "real_agents"),
    (scale_study, {"algorithms": ("alreduce",)}, "did you mean 'allreduce'"),
    (scale_study, {"algorithms": "allreduce"}, "names such as"),
    (scale_study, {"algorithms": ()}, "comparisons"),
    (scale_study, {"networks": {"fast": 7}}, "UniformLinks"),
    (scale_study, {"networks": ()}, "networks"),
    (scale_study, {"epochs": 0}, "epochs"),
    (scale_study, {"accuracy": 0}, "accuracy"),
    (scale_study, {"factor": 1}, "factor"),
    (scale_study, {"sample_seconds": -1}, "sample_seconds"),
    (scale_study, {"model": "mpl"}, "did you mean 'mlp'"),
    (scale_study, {"comparisons": ((RealExchange("allreduce", "socket", 2),),)}, "leave them out"),
    (optimizer_comparison, {"optimizers": {}}, "must be a dictionary"),
    (optimizer_comparison, {"optimizers": {"a, b": SGD}}, "has the name 'a, b'"),
    (optimizer_comparison, {"optimizers": {"a[1]": SGD}}, "without ', ' and brackets"),
    (optimizer_comparison, {"optimizers": {"a": 0.1}}, "optimizer is 0.1"),
    (optimizer_comparison, {"optimizers": {"a": "AdmW(0.1)"}}, "did you mean d5.optimizers.AdamW"),
    (optimizer_comparison, {"workloads": {"a": "lenet"}}, "it must be a Workload"),
    (optimizer_comparison, {"workloads": {7: LINEAR}}, "has the name 7"),
    (optimizer_comparison, {"workloads": {"a": replace(LINEAR, dataset="digit")}}, "did you mean 'digits'"),
    (optimizer_comparison, {"workloads": {"a": replace(LINEAR, batch_size=0)}}, "batch_size"),
    (optimizer_comparison, {"comparisons": ((Tries("a", "b"),),)}, "leave them out"),
]


@pytest.mark.every_case
@pytest.mark.parametrize(("recipe", "change", "words"), WRONG)
def test_a_wrong_value_is_refused_before_anything_starts(
    recipe: ModuleType, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        job_of(recipe, **change)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"every": 200}, "every is 200, more than the 135 steps"),
        ({"target": 0.9}, "it must be a criterion on TestAccuracy() or TestLoss()"),
        ({"target": d5.metrics.StepTime() <= 1.0}, "such as TestAccuracy() >= 0.97"),
    ],
)
def test_a_wrong_workload_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        replace(LINEAR, **change)
    assert words in str(caught.value)


@pytest.mark.parametrize("recipe", [optimizer_comparison, simulation_speed, scale_study])
def test_what_needs_no_ray_refuses_a_cluster(recipe: ModuleType) -> None:
    job = job_of(recipe, **({"real_agents": ()} if recipe is scale_study else {}))
    with pytest.raises(ConfigurationError, match="outside Ray"):
        job.connect("10.0.0.1:6379", {})


@pytest.mark.every_case
@pytest.mark.parametrize(
    "recipe",
    [
        allreduce_speed, step_lenet, step_resnet8, compressed_exchange, straggler_throughput, server_speed,
        simulation_speed, recording_speed, executor_overhead, overhead_lenet, update_speed, recovery_speed,
        link_speed,
    ],
)  # fmt: skip
def test_every_criterion_is_about_who_is_measured_and_everybody_is_in_one(recipe: ModuleType) -> None:
    """No criterion names a contender or a size that is never measured."""
    job = job_of(recipe)
    named = set()
    for criterion in recipe.METRICS:
        fields = vars(criterion.metric)
        named |= {fields[key] for key in ("ours", "base", "contender") if key in fields}
        for key in ("size", "gradient"):
            assert key not in fields or fields[key] in recipe.MUTABLE[f"{key}s"]
    assert named == {contender.name for contender in job.contenders()}
    assert len({criterion.metric.label for criterion in recipe.METRICS}) == len(recipe.METRICS)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("metric", "name", "ours", "base", "ratio"),
    [
        (ExecutorTimeRatio("a[1]", "run"), EXECUTOR_TIME, "a[1] run d5ray", "a[1] run by hand", 1.02),
        (UpdateTimeRatio("a[1]", "Adam"), RULE_TIME, "a[1] Adam d5ray", "a[1] Adam torch.optim", 0.8),
        (RuleStepTimeRatio("a[1]", "Adam"), RULE_STEP_TIME, "a[1] Adam d5ray", "a[1] Adam torch.optim", 1.5),
        (PeakMemoryRatio("a[1]", "b[1]"), STEP_PEAK_MEMORY, "a[1]", "b[1]", 0.2),
        (UpdatesRatio("a[1]", "b[1]"), UPDATES, "a[1]", "b[1]", 0.25),
        (TrainingTimeRatio("a[1]", "b[1]"), "training_time", "a[1]", "b[1]", 0.5),
        (SimulationOverhead("a[1]"), "training_time", "a[1] simulated", "a[1] gradients alone", 1.2),
        (ServiceTimeRatio("a[1]", "4 B"), SERVICE_TIME, "a[1] in the shard 4 B", "a[1] bare update 4 B", 1.2),
        (AllreduceTimeRatio("a[2]", "b[2]", "1 MB"), ALLREDUCE_TIME, "a[2] 1 MB", "b[2] 1 MB", 0.25),
        (AllreduceSpeedup("a[2]", "b[2]", "1 MB"), ALLREDUCE_TIME, "b[2] 1 MB", "a[2] 1 MB", 1.5),
        (GradientExchangeSpeedup("a[2]", "b[2]", "lenet"), GRADIENT_TIME, "b[2] lenet", "a[2] lenet", 4.0),
    ],
)  # fmt: skip
def test_a_ratio_is_that_of_the_sides_of_each_round(
    metric: Any, name: str, ours: str, base: str, ratio: float
) -> None:
    """Whatever the speed of each round's processes, and whoever is measured beside; without rows none."""
    speeds = [1.0 + pair for pair in range(6)]
    rows = {
        (name, base): speeds,
        (name, ours): [ratio * speed for speed in speeds],
        **{(name, scope): [9.0] * 6 for scope in ("c[1]", f"{ours} 2", f"2 {base}")},
        ("another", ours): [9.0] * 6,
    }
    found = metric.estimate(planted(rows))
    assert [found.value, found.low, found.high] == pytest.approx([ratio] * 3)
    assert (found.n, found.sample_unit) == (6, "pairs of fresh processes")
    assert metric.estimate(planted({(name, base): speeds})).value is None


@pytest.mark.parametrize(
    ("metric", "name"),
    [
        (AllreduceTime("a[2]", "1 MB"), ALLREDUCE_TIME),
        (GradientExchangeTime("a[2]", "1 MB"), GRADIENT_TIME),
    ],
)
def test_a_time_is_that_of_the_slowest_rank_at_its_size(metric: Any, name: str) -> None:
    """Of who cannot be measured here a row without a value says why, at whatever size."""
    rows = [(name, "a[2] 1 MB", rank, pair, 3.0 - rank) for rank in range(2) for pair in range(6)]
    found = metric.estimate(written([*rows, (name, "a[2] 4 kB", 0, 0, 9.0)]))
    assert (found.value, found.low, found.high) == (3.0, 3.0, 3.0)
    why = "unavailable: there is no mpirun: install OpenMPI"
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a[2]/0", rank=0, node="n", send=batches.append)
    recorder.record("step_time", None, scope="a[2]", status=why, source="unavailable")
    recorder.flush()
    verdict = (metric <= 1).judge({"samples": pa.Table.from_batches(batches)})
    assert (verdict.verdict, verdict.value, verdict.reason) == ("INCONCLUSIVE", None, why)


def test_a_difference_of_accuracies_is_that_of_the_pairs() -> None:
    """Nine pairs: differences from -0.04 to 0.04; the second smallest and largest bound the median."""
    rows = {
        ("test_accuracy", "a[2]"): [0.9 + 0.01 * pair for pair in range(9)],
        ("test_accuracy", "b[2]"): [0.94] * 9,
    }
    found = AccuracyDifference("a[2]", "b[2]").estimate(planted(rows))
    assert (found.value, found.low, found.high) == pytest.approx((0.0, -0.03, 0.03), abs=1e-12)
    assert (found.n, found.sample_unit) == (9, "pairs of equal seeds")
    few = planted({key: own[:4] for key, own in rows.items()})
    assert "2 more" in AccuracyDifference("a[2]", "b[2]").estimate(few).reason
    assert "c[2] was not measured" in AccuracyDifference("a[2]", "c[2]").estimate(few).reason


SHORT: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "benchmarks/overhead_lenet": (overhead_lenet, {"warmup_steps": 5, "steps": 20}),
    "benchmarks/allreduce_speed": (allreduce_speed, {"sizes": ("4 kB",), "seconds": 0.02}),
    "benchmarks/link_speed": (link_speed, {"sizes": ("4 kB",), "seconds": 0.02}),
    "benchmarks/server_speed": (server_speed, {"sizes": ("40 kB",), "seconds": 0.1}),
    "benchmarks/simulation_speed": (simulation_speed, {"many_steps": 1, "steps": 3, "seconds": 0.1}),
    "straggler_throughput": (straggler_throughput, {"steps": 30, "warmup_steps": 2}),
    "scale_study": (
        scale_study,
        {
            "agents": (1, 4),
            "algorithms": ("allreduce", "parameter server"),
            "epochs": 2,
            "real_agents": (2,),
            "real_steps": 12,
        },
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_a_short_run_measures_everybody_and_leaves_nothing(name: str, own_home: Any) -> None:
    """One round: values of every contender's ranks, and none of others; at most few criteria are decided."""
    module, changes = SHORT[name]
    settings = [word for key, value in changes.items() for word in ("--set", f"{key}={value!r}")]
    done = d5ray("run", name, *settings, "--set", "pairs=1", "--json", seconds=280)
    assert done.code in (0, 2), done
    assert (done.code, done.json["verdict"]) in ((2, "INCONCLUSIVE"), (0, "PASS")), done
    assert not done.left()
    (run,) = list_runs(own_home / "runs")
    assert {path.suffix for path in run.folder.iterdir()} == {".parquet", ".sha256"}
    counted = sql(run, "select scope, count(distinct rank) ranks from samples where value > 0 group by all")
    rows = counted.to_pylist()
    contenders = [each for each in job_of(module, **changes).contenders() if not each.missing()]
    for each in contenders:
        ranks = {row["ranks"] for row in rows if row["scope"].startswith(each.name)}
        assert ranks and ranks <= {1, each.processes}, (each.name, rows)
    assert all(row["scope"].startswith(tuple(each.name for each in contenders)) for row in rows)
