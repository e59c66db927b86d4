"""Claims about timing update rules: both sides do the same work, all are timed in turn"""

from collections.abc import Callable

import numpy as np
import pytest

import d5ray as d5
from benchmarks.interleaved_timing import interleaved
from benchmarks.update_speed import recipe as recipe
from benchmarks.update_speed.baselines import RulePair
from benchmarks.update_speed.worker import RuleTimes
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import Times


def work(*pairs: RulePair, model: str = "lenet") -> RuleTimes:
    """On small batches, for a moment."""
    shape = (1, 8, 8) if model == "lenet" else (3, 32, 32)
    return RuleTimes(model, shape, pairs, batch_size=4, threads=1, seconds=0.01, seed=1)


@pytest.mark.parametrize("pair", recipe.RULES, ids=lambda pair: pair.name)
def test_both_sides_move_the_same_network_alike(pair: RulePair) -> None:
    """From equal parameters, by equal gradients: what the recipe checks before it counts."""
    made = work(pair)
    (_, ours), (_, theirs) = made.sides(pair)
    np.testing.assert_array_equal(ours.parameters(), theirs.parameters())
    made.check(pair)


def test_rules_that_differ_are_not_measured() -> None:
    """Another rate: an error, no times."""
    with pytest.raises(AgentError, match=r"Adam.* and torch\.optim\.Adam disagree: nothing is measured"):
        work(RulePair(d5.optimizers.Adam(1e-3), "Adam", {"lr": 2e-3}))(0)


def test_everything_is_timed_and_kept_under_its_side() -> None:
    """Updates with the variants that there are; steps of the two that are compared; of L-BFGS steps alone."""
    found = work(recipe.RULES[1], recipe.RULES[-1])(0)
    sides = ("d5ray", "torch.optim")
    assert set(found) == (
        {("update", "Momentum", side) for side in (*sides, "foreach", "fused")}
        | {("step", rule, side) for rule in ("Momentum", "LBFGS") for side in sides}
    )
    assert all(len(times.seconds) >= 5 and min(times.seconds) > 0 for times in found.values())


def test_sides_come_in_turn_forwards_and_backwards() -> None:
    """Once each before anything counts, twice; then a b, b a, a b, … 2 ms five times a value, 1 ms ten."""
    calls: list[tuple[str, int]] = []

    def side(name: str, seconds: float) -> Callable[[int], float]:
        def turn(loops: int) -> float:
            calls.append((name, loops))
            return seconds

        return turn

    found = interleaved({"a": side("a", 0.002), "b": side("b", 0.001)}, seconds=0.0)
    assert calls[:4] == [(name, 1) for name in "aabb"]
    assert calls[4:] == [(name, {"a": 5, "b": 10}[name]) for name in "abbaabbaab"]
    assert found == {"a": Times([0.002] * 5, 5), "b": Times([0.001] * 5, 10)}
