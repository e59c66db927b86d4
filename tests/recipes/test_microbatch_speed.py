"""Claims about measuring micro-batches: the same step on both sides, less memory, a size that fits"""

from typing import Any

import numpy as np
import pytest

from benchmarks.microbatch_speed import recipe as recipe
from benchmarks.microbatch_speed.job import MicrobatchSteps, chosen_size
from benchmarks.microbatch_speed.worker import MicrobatchWork, check, network_of
from d5ray.errors import AgentError, ConfigurationError
from d5ray.networks.executors.graph_executor import GraphExecutor
from d5ray.networks.microbatch.measuring import StepCost
from tests.kits.laboratory.comparing import job_of


def small(**changes: Any) -> MicrobatchSteps:
    """A network of few parameters and large activations."""
    shape = {"network": "resnet8", "sample_shape": (3, 24, 24), "batch_size": 96, "steps": 1}
    made: MicrobatchSteps = job_of(recipe, **{**shape, "sizes": (8,), "share": 0.5, **changes})
    return made


def test_the_quickest_size_clearly_within_the_share_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what was measured, not so near to the limit that the next process passes it; or an error."""
    found = {96: StepCost(1.0, 400), 16: StepCost(0.9, 98), 8: StepCost(1.05, 90), 4: StepCost(1.2, 60)}
    monkeypatch.setattr(MicrobatchWork, "costs", lambda *_: dict(found))
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
