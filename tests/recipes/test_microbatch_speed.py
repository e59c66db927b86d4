"""Claims about measuring micro-batches: the same step on both sides, less memory, a size that fits"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.microbatch_speed import recipe as recipe
from benchmarks.microbatch_speed.job import InMicroBatches, MicrobatchSteps, WholeBatches, chosen_size
from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY, PeakMemoryRatio
from benchmarks.microbatch_speed.worker import check, network_of
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.definitions.catalogue import StepTime
from d5ray.metrics.record.recorder import Recorder
from d5ray.networks.executors.graph_executor import GraphExecutor
from d5ray.networks.microbatch.measuring import StepCost
from d5ray.recipes.engine.recipe import Recipe


def job(**changes: Any) -> MicrobatchSteps:
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, MicrobatchSteps)
    return replace(made, **changes)


def small(**changes: Any) -> MicrobatchSteps:
    """A network of few parameters and large activations."""
    shape = {"network": "resnet8", "sample_shape": (3, 24, 24), "batch_size": 96, "steps": 1}
    return job(**{**shape, "sizes": (8,), "share": 0.5, **changes})


@pytest.mark.slow
def test_both_sides_are_measured_in_processes_of_their_own(tmp_path: Path) -> None:
    """Times with one to warm up, and a peak that is smaller in micro-batches; their size is found before."""
    made = small()
    assert chosen_size(made) in made.sizes
    whole, parts = (each.measure(made, tmp_path) for each in (WholeBatches(), InMicroBatches()))
    for series in (whole, parts):
        assert [(one.metric, one.warmup, len(one.values)) for one in series] == [
            (StepTime.name, 1, 2),
            (STEP_PEAK_MEMORY, 0, 1),
        ]
    peaks = [series[1].values[0] for series in (whole, parts)]
    assert peaks[0] is not None and peaks[1] is not None
    assert peaks[1] < 0.6 * peaks[0]


def test_the_quickest_size_clearly_within_the_share_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was measured, not so near to the limit that the next process passes it; or an error."""
    found = {96: StepCost(1.0, 400), 16: StepCost(0.9, 98), 8: StepCost(1.05, 90), 4: StepCost(1.2, 60)}
    monkeypatch.setattr("benchmarks.microbatch_speed.worker.costs", lambda _: dict(found))
    assert chosen_size(small(sizes=(4, 8, 16), share=0.26)) == 16
    assert chosen_size(small(sizes=(4, 8, 16), share=0.25)) == 8
    assert chosen_size(small(sizes=(4, 8, 16), share=0.2)) == 4
    with pytest.raises(ConfigurationError, match=r"no size .* the least is 60, of micro-batches of 4"):
        chosen_size(small(sizes=(4, 8, 16), share=0.1))


def test_gradients_that_differ_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network in micro-batches whose gradients lack a weight: an error, no times."""
    network = network_of("resnet8", (3, 8, 8), 1)
    check(network, 1)
    original = GraphExecutor.fetch

    def halved(self: GraphExecutor, name: str) -> np.ndarray[Any, Any] | None:
        found = original(self, name)
        return None if found is None else found * (0.5 if "MicroBatched" in str(type(self)) else 1.0)

    monkeypatch.setattr(GraphExecutor, "fetch", halved)
    with pytest.raises(AgentError, match="nothing is measured"):
        check(network, 1)


def test_the_ratio_is_that_of_the_peaks() -> None:
    """A fifth, in every pair."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    recorder.declare(STEP_PEAK_MEMORY, "B")
    for pair in range(6):
        for side, peak in (("whole[1]", 5.0), ("micro[1]", 1.0)):
            recorder.record(STEP_PEAK_MEMORY, peak * (1 + pair), step=0, phase="run", scope=side, rep=pair)
    recorder.flush()
    run = {"samples": pa.Table.from_batches(batches)}
    assert PeakMemoryRatio("micro[1]", "whole[1]").estimate(run).value == pytest.approx(0.2)
    assert PeakMemoryRatio("other[1]", "whole[1]").estimate(run).value is None


def test_wrong_jobs_are_refused() -> None:
    for changes, message in (
        ({"sizes": ()}, "it must be a tuple of sizes"),
        ({"sizes": (128,)}, "a micro-batch is smaller"),
        ({"share": 2.0}, "share"),
        ({"steps": 0}, "steps"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            job(**changes)
