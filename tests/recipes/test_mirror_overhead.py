"""Claims about measuring what the mirror costs: the turns that it has, their means, and the ratio of them"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from benchmarks.mirror_overhead import recipe as mirror_overhead
from benchmarks.mirror_overhead.job import MirroredAgents, _of_turns
from benchmarks.mirror_overhead.metrics import (
    MIRROR_SHARE,
    TURN_TIME,
    WITH,
    WITHOUT,
    MirrorShare,
    MirrorTimeRatio,
)
from benchmarks.step_times import StepTimes
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes.engine.recipe import Recipe
from tests.metrics.statistics.test_estimates import steps_of, tables

JOB = StepTimes(
    comparisons=((MirroredAgents(2, turns=2),),), model="mlp", dataset="digits",
    optimizer=d5.optimizers.Momentum(0.05, 0.9), batch_size=16, steps=400, warmup_steps=3, seed=1,
)  # fmt: skip


def test_a_turn_is_the_mean_of_its_slowest_steps() -> None:
    """Of two ranks and three turns of four steps; those of the warm-up count nowhere."""
    times = np.random.default_rng(1).lognormal(size=(3 + 12, 2))  # (steps, ranks)
    samples = tables(steps_of(times))["samples"]
    expected = times.max(axis=1)[3:].reshape(3, 4).mean(axis=1)
    np.testing.assert_allclose(_of_turns(samples, replace(JOB, steps=4)), expected, rtol=1e-12)


def test_the_ratio_is_over_pairs_of_processes_and_the_share_over_processes() -> None:
    """Six processes, each with the median ratio of turns side by side; NumPy's medians."""
    rng = np.random.default_rng(2)
    sides = {side: rng.lognormal(size=(6, 5)) for side in (WITH, WITHOUT)}
    shares = rng.uniform(0.001, 0.003, 6)
    batches: list[pa.RecordBatch] = []
    for rep in range(6):
        recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append, attempt=rep)
        for name, unit in ((TURN_TIME, "s"), (MIRROR_SHARE, "1")):
            recorder.declare(name, unit)
        for side, values in sides.items():
            for step, value in enumerate(values[rep]):
                recorder.record(TURN_TIME, float(value), step=step, scope=f"d5ray[2] {side}", rep=rep)
        recorder.record(MIRROR_SHARE, float(shares[rep]), step=0, scope="d5ray[2]", rep=rep)
        recorder.flush()
    run = {**tables([]), "samples": pa.Table.from_batches(batches).unify_dictionaries()}
    medians = np.median(sides[WITH] / sides[WITHOUT], axis=1)
    ratio = MirrorTimeRatio("d5ray[2]").estimate(run)
    assert ratio.value == pytest.approx(np.median(medians))
    assert (ratio.n, ratio.low, ratio.high) == (6, medians.min(), medians.max())
    assert MirrorShare("d5ray[2]").estimate(run).value == pytest.approx(np.median(shares))


def test_the_recipe_is_well_formed() -> None:
    """Its job can be made, and every contender has both criteria."""
    recipe = Recipe.of(mirror_overhead.FIXED, mirror_overhead.MUTABLE, mirror_overhead.METRICS, name="x")
    job = recipe.made()
    assert [contender.name for contender in job.contenders()] == ["d5ray[1]", "d5ray[2]"]
    assert len(recipe.criteria) == 4


@pytest.mark.slow
def test_agents_are_measured_with_and_without_their_mirror(tmp_path: Path) -> None:
    """Two turns of each side; the mirror's thread took time, and less than a twentieth."""
    job = replace(JOB, steps=4000)  # some seconds, in which the mirror looks
    try:
        found = {series.at: series for series in job.contenders()[0].measure(job, tmp_path)}
    finally:
        d5.shutdown()
    assert {len(found[side].values) for side in (WITH, WITHOUT)} == {2}
    assert all(value > 0 for side in (WITH, WITHOUT) for value in found[side].values if value is not None)
    (share,) = found[""].values
    assert share is not None and 0 < share < 0.05
