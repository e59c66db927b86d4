"""Claims about the recipes of stages and parts: what a device takes, what a limit ends, what must travel"""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY
from benchmarks.pipeline_bubble import recipe as pipeline_bubble
from benchmarks.pipeline_bubble.job import OnDevices, PipelineBubbles
from benchmarks.pipeline_bubble.metrics import BubbleShareOf
from benchmarks.pipeline_memory import recipe as pipeline_memory
from benchmarks.pipeline_memory.job import LimitedStages, LimitedTrainings, WholeNetwork
from benchmarks.pipeline_memory.metrics import OUT_OF_MEMORY, LossDeviation, OutOfMemory, PeakMemoryOf
from benchmarks.pipeline_speed import recipe as pipeline_speed
from benchmarks.trainers import Stages
from d5ray.errors import ConfigurationError
from d5ray.frameworks.initial_values import network_by_name
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes import hybrid_lenet
from d5ray.recipes.engine.comparisons.contenders import RankSeries
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.jobs import devices
from d5ray.training.datasets import load_dataset
from tests.metrics.statistics.test_estimates import tables

ROUNDS = 6


def made(module: Any) -> Any:
    """The job of a recipe."""
    return Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name="x").made()


def recorded(values: Mapping[tuple[str, str, int], np.ndarray[Any, Any]]) -> dict[str, pa.Table]:
    """A run's tables: by metric, contender and rank the values (rounds, steps)."""
    batches: list[pa.RecordBatch] = []
    for (metric, contender, rank), own in values.items():
        recorder = Recorder(run_id="r", agent="a", rank=rank, node="n", send=batches.append, attempt=rank)
        recorder.declare(metric, "1")
        for rep, steps in enumerate(own):
            for step, value in enumerate(steps):
                recorder.record(metric, float(value), step=step, scope=contender, rep=rep)
        recorder.flush()
    return {**tables([]), "samples": pa.Table.from_batches(batches).unify_dictionaries()}


def of(found: list[RankSeries], metric: str, rank: int = 0) -> list[float]:
    """What a rank measured of a metric."""
    (values,) = [each.values for each in found if each.metric == metric and each.rank == rank]
    return [value for value in values if value is not None]


# -- the bubble ----------------------------------------------------------------------------------------


def test_the_bubble_of_a_contender_is_the_median_over_processes_of_medians() -> None:
    shares = np.random.default_rng(1).uniform(0.1, 0.4, (ROUNDS, 5))
    found = BubbleShareOf("mine[2]").estimate(
        recorded({("bubble_share", "mine[2]", 0): shares, ("bubble_share", "yours[2]", 0): shares + 0.5})
    )
    medians = np.median(shares, axis=1)
    assert found.value == pytest.approx(np.median(medians))
    assert (found.low, found.high, found.n) == (medians.min(), medians.max(), ROUNDS)


def test_every_criterion_of_the_bubbles_lies_between_the_formula_and_a_tenth_more() -> None:
    """(S − 1) / (M + S − 1) for all nine, written out; and one of each other schedule."""
    job = made(pipeline_bubble)
    allowed: dict[str, float] = {}
    for criterion in pipeline_bubble.METRICS:
        assert isinstance(criterion.metric, BubbleShareOf)
        allowed[criterion.metric.contender] = criterion.target
    for stages in (2, 3, 4):
        for micro in (4, 8, 16):
            formula = (stages - 1) / (micro + stages - 1)
            found = allowed.pop(f"OneFOneB(), {micro} micro-batches[{stages}]")
            assert formula < found < formula + 0.11
    assert [name.partition("(")[0] for name in allowed] == ["NaiveModelParallelism", "GPipe", "Interleaved"]
    assert len(job.contenders()) == 12


@pytest.mark.parametrize("contender", pipeline_bubble.PIPELINES, ids=lambda each: each.name)
def test_on_paper_messages_that_take_no_time_leave_the_formula(contender: OnDevices) -> None:
    assert contender.on_paper(0.01, 0.0) == pytest.approx(contender.formula)


def test_what_a_device_computes_takes_its_time_and_is_right() -> None:
    """A stage forwards and backwards: NumPy's numbers, 30 ms each in which the core is free."""
    from d5ray.frameworks import numpy  # noqa: PLC0415 - the name is another one's

    network = network_by_name("mlp", {"hidden": (8,)}, (1, 4, 4), 3, seed=1)
    network.add_loss()
    inputs = {"input": np.ones((2, 1, 4, 4), np.float32), "labels": np.array([0, 2])}
    pieces = d5.pipelines.pieces(network, d5.pipelines.Cut(()))
    losses = []
    for executor in (numpy.from_pieces(pieces), devices.from_pieces(pieces, seconds=0.03, threads=1)):
        executor.begin_pass()
        wall, processor = time.perf_counter(), time.thread_time()
        losses.append(executor.forward(0, 0, inputs)["loss"])
        executor.synchronize()
    assert time.perf_counter() - wall >= 0.03 > time.thread_time() - processor
    assert losses[0] == losses[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device_seconds": 0.0}, "device_seconds"),
        ({"steps": 0}, "steps"),
        ({"comparisons": ((Stages(2),),)}, r"it must be an OnDevices"),
        ({"comparisons": ((OnDevices(d5.pipelines.GPipe(), 0, 4),),)}, "stages"),
    ],
)
def test_a_wrong_value_of_the_bubbles_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(made(pipeline_bubble), **change)


@pytest.mark.slow
def test_on_devices_the_bubble_is_nearly_the_formulas(tmp_path: Path) -> None:
    """Of 40 ms an action, beside which messages are little."""
    contender = OnDevices(d5.pipelines.OneFOneB(), 3, 4)
    job = PipelineBubbles(comparisons=((contender,),), device_seconds=0.04, steps=4, seed=1)
    try:
        found = contender.measure(job, tmp_path)
    finally:
        d5.shutdown()
    bubbles = of(found, "bubble_share")[job.warmup_steps :]
    assert len(bubbles) == job.steps
    assert np.median(bubbles) == pytest.approx(contender.formula, abs=0.06)
    for rank in range(3):
        assert min(of(found, "stage_compute_time", rank)) >= 4 * 2 * 0.04


# -- the limit of memory -------------------------------------------------------------------------------


def test_losses_are_compared_step_by_step() -> None:
    """The largest relative difference over the steps of a round; its median over the rounds, by NumPy."""
    rng = np.random.default_rng(2)
    base = rng.uniform(1, 2, (ROUNDS, 4))
    ours = base * (1 + rng.uniform(-1e-3, 1e-3, (ROUNDS, 4)))
    run = recorded(
        {
            ("loss", "ours[3]", 0): ours,
            ("loss", "ours[3]", 1): ours + 1,  # another rank's, which does not count
            ("loss", "base[1]", 0): base,
        }
    )
    expected = np.abs(ours / base - 1).max(axis=1)
    assert LossDeviation("ours[3]", "base[1]").estimate(run).value == pytest.approx(np.median(expected))
    assert LossDeviation("ours[3]", "none[1]").estimate(run).value is None


def test_the_peak_of_a_contender_is_its_largest_ranks() -> None:
    peaks = np.arange(2 * ROUNDS, dtype=float).reshape(2, ROUNDS, 1)
    run = recorded(
        {
            **{(STEP_PEAK_MEMORY, "mine[2]", rank): peaks[rank] for rank in range(2)},
            (OUT_OF_MEMORY, "mine[2]", 0): np.ones((ROUNDS, 1)),
        }
    )
    assert PeakMemoryOf("mine[2]").estimate(run).value == np.median(peaks[1])
    assert OutOfMemory("mine[2]").estimate(run).value == 1


HOLDING = """
import sys, time
import numpy as np
from benchmarks.pipeline_memory.memory_limits import Watch
watch = Watch()
watch.begin(int(sys.argv[1]), sys.argv[2], 1_000_000)
held = np.ones(100_000_000, np.uint8)
deadline = time.monotonic() + 20
while time.monotonic() < deadline and sys.argv[1] == "50000000":
    time.sleep(0.01)
print(watch.peak_bytes())
"""


@pytest.mark.full
@pytest.mark.parametrize(("limit", "killed"), [(50_000_000, True), (500_000_000, False)])
def test_a_process_that_holds_too_much_is_killed(tmp_path: Path, limit: int, killed: bool) -> None:
    """100 MB held: beyond 50 it is killed and leaves a note, within 500 it tells its peak."""
    note = tmp_path / "note"
    ended = subprocess.run(
        [sys.executable, "-c", HOLDING, str(limit), str(note)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == (-signal.SIGKILL if killed else 0), ended.stderr
    assert note.exists() is killed
    if not killed:
        assert 101_000_000 <= int(ended.stdout) < 150_000_000


@pytest.mark.full
def test_the_network_of_the_recipe_fits_in_stages_alone() -> None:
    """Parameters, gradients and velocities alone are more than the limit; a stage's four copies are less."""
    job = made(pipeline_memory)
    shape, classes = (1, 8, 8), 10
    network = network_by_name(job.model, job.model_kwargs, shape, classes, seed=1)
    size = sum(value.nbytes for value in network.parameters.values())
    assert 3 * size > job.limit_bytes
    network.add_loss()
    cut = d5.pipelines.Balanced(3, limit_bytes=job.limit_bytes, copies=job.copies, trains=True)
    for piece in d5.pipelines.pieces(network, cut):
        own = sum(value.nbytes for value in piece.network.parameters.values())
        assert 0 < job.copies * own < 0.6 * job.limit_bytes


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"limit_bytes": 0}, "limit_bytes"),
        ({"steps": 0}, "steps"),
        ({"comparisons": ((Stages(2),),)}, "it must be one of WholeNetwork, LimitedStages"),
    ],
)
def test_a_wrong_value_of_the_limit_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        replace(made(pipeline_memory), **change)


@pytest.mark.slow
def test_three_stages_train_where_one_executor_is_killed(tmp_path: Path) -> None:
    """On Ray, with the recipe's network: the losses are those of one executor without a limit."""
    job: LimitedTrainings = replace(made(pipeline_memory), steps=3)
    found = {}
    try:
        for contender in (WholeNetwork(), WholeNetwork(limited=True), LimitedStages(3)):
            (folder := tmp_path / contender.name).mkdir()
            found[contender.name] = contender.measure(job, folder)
    finally:
        d5.shutdown()
    whole, limited, stages = found.values()
    assert (of(whole, OUT_OF_MEMORY), of(limited, OUT_OF_MEMORY), of(stages, OUT_OF_MEMORY)) == (
        [0],
        [1],
        [0],
    )
    assert len(limited) == 1
    assert of(stages, "loss") == pytest.approx(of(whole, "loss"), rel=1e-5)
    assert max(of(stages, STEP_PEAK_MEMORY, rank)[0] for rank in range(3)) < job.limit_bytes
    assert of(whole, STEP_PEAK_MEMORY)[0] > job.limit_bytes


# -- the others ----------------------------------------------------------------------------------------


def test_the_hybrid_is_held_to_half_of_what_data_parallel_agents_send() -> None:
    """An allreduce of two sends as many bytes as there are in the parameters."""
    experiment = made(hybrid_lenet)
    network = network_by_name("lenet", dict(experiment.model_kwargs), (1, 8, 8), 10, seed=1)
    size = sum(value.nbytes for value in network.parameters.values())
    connected = sum(value.nbytes for value in network.parameters.values() if value.ndim == 2)
    assert connected / size > 0.97
    steps = -(-len(load_dataset("digits").train) // experiment.batch_size) * experiment.epochs
    assert steps * size == hybrid_lenet.DATA_PARALLEL_BYTES
    assert experiment.agents == experiment.mesh.parts == 2


@pytest.mark.slow
def test_the_hybrid_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recipe as it is, on Ray, odd batches and all."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    parts = (hybrid_lenet.FIXED, hybrid_lenet.MUTABLE, hybrid_lenet.METRICS)
    try:
        result = d5.run_recipe(*parts, name="hybrid_lenet", quiet=True)
    finally:
        d5.shutdown()
    assert result.verdict == "PASS"


@pytest.mark.slow
def test_both_sides_of_the_speed_of_a_pipeline_train_alike(tmp_path: Path) -> None:
    """The same batches, so the same losses; in stages a bubble beside them."""
    job = replace(made(pipeline_speed), steps=3, warmup_steps=1)
    found = {}
    try:
        for contender in job.contenders():
            (folder := tmp_path / contender.name).mkdir()
            found[contender.name] = contender.measure(job, folder)
    finally:
        d5.shutdown()
    assert list(found) == ["d5ray[1]", "stages[2]"]
    assert of(found["stages[2]"], "loss") == pytest.approx(of(found["d5ray[1]"], "loss"), rel=1e-4)
    assert all(0 < share < 1 for share in of(found["stages[2]"], "bubble_share"))
