"""Claims about timing executors beside models written by hand: both sides do the same work, in turn"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.executor_overhead.job import HandWrittenNetwork
from benchmarks.executor_overhead.worker import ExecutorTimes
from d5ray.errors import AgentError

SMALL: Mapping[str, dict[str, Any]] = {
    "lenet": {"sample_shape": (2, 12, 8), "classes": 5},
    "resnet18": {"sample_shape": (3, 32, 32), "classes": 5},
    "transformer": {"sample_shape": (6,), "classes": 11, "options": {"width": 12, "heads": 3, "depth": 2}},
}


def work(framework: str, network: str) -> ExecutorTimes:
    """A small one, for a moment."""
    pytest.importorskip(framework)
    batch_size = 16 if network == "resnet18" else 3  # of few samples the last statistics are ill-conditioned
    of = HandWrittenNetwork(framework, network, batch_size=batch_size, **SMALL[network])
    return ExecutorTimes(of, threads=1, seconds=0.01, seed=1)


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", SMALL)
def test_both_sides_compute_the_same(framework: str, network: str) -> None:
    """Scores, loss and gradients: what the recipe checks before it counts. They are not all zero."""
    made = work(framework, network)
    sides = made.sides()
    made.check(sides)
    for side in sides.values():
        assert np.abs(side.infer()).max() > 1e-3
        assert np.isclose(side.train(), np.log(made.of.classes), rtol=0.5)
        assert max(np.abs(each).max() for each in side.gradients()) > 1e-3


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.full)])
def test_sides_that_differ_are_not_measured(framework: str) -> None:
    """Another batch for one of them: an error with the difference."""
    made = work(framework, "lenet")
    sides = made.sides()
    other = replace(made, seed=2).sides()
    with pytest.raises(AgentError, match=rf"the lenet .* for {framework} disagree.*: scores"):
        made.check({"d5ray": sides["d5ray"], "by hand": other["by hand"]})


def test_both_passes_are_timed_under_the_names_of_the_sides() -> None:
    found = work("torch", "lenet")(0)
    assert set(found) == {(each, side) for each in ("inference", "training") for side in ("d5ray", "by hand")}
    assert all(len(times.seconds) >= 5 and min(times.seconds) > 0 for times in found.values())
