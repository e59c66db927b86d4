"""Claims about timing update rules: both sides do the same work, all are timed in turn"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from benchmarks.interleaved_timing import interleaved
from benchmarks.update_speed import recipe as recipe
from benchmarks.update_speed.baselines import Peers
from benchmarks.update_speed.job import OnNetwork, RuleSpeeds
from benchmarks.update_speed.metrics import RULE_STEP_TIME, RULE_TIME, RuleStepTimeRatio, UpdateTimeRatio
from benchmarks.update_speed.worker import RuleTimes
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes.engine.recipe import Recipe


def work(*peers: Peers, model: str = "lenet") -> RuleTimes:
    """On small batches, for a moment."""
    shape = (1, 8, 8) if model == "lenet" else (3, 32, 32)
    return RuleTimes(model, shape, peers, batch_size=4, threads=1, seconds=0.01, seed=1)


@pytest.mark.parametrize("peers", recipe.RULES, ids=lambda peers: peers.name)
def test_both_sides_move_the_same_network_alike(peers: Peers) -> None:
    """From equal parameters, by equal gradients: what the recipe checks before it counts."""
    made = work(peers)
    (_, ours), (_, theirs) = made.sides(peers)
    np.testing.assert_array_equal(ours.parameters(), theirs.parameters())
    made.check(peers)


def test_resnet18_has_its_parameters() -> None:
    """11,689,512 for 1,000 classes (as torchvision's); of 10 classes 11,181,642."""
    (_, ours), _ = work(model="resnet18").sides(recipe.RULES[0])
    assert len(ours.parameters()) == 11_689_512 - 990 * 513


def test_rules_that_differ_are_not_measured() -> None:
    """Another rate: an error, no times."""
    with pytest.raises(AgentError, match=r"Adam.* and torch\.optim\.Adam disagree: nothing is measured"):
        work(Peers(d5.optimizers.Adam(1e-3), "Adam", {"lr": 2e-3}))(0)


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
    """Once each before anything counts, twice; then a b, b a, a b, …"""
    calls: list[str] = []

    def side(name: str) -> Callable[[int], float]:
        def turn(loops: int) -> float:
            calls.append(name)
            return 1.0

        return turn

    found = interleaved({"a": side("a"), "b": side("b")}, seconds=0.0)
    assert calls == list("aabb") + list("abbaabbaab")
    assert {name: times.seconds for name, times in found.items()} == {"a": [1.0] * 5, "b": [1.0] * 5}


def test_the_ratios_are_those_of_the_sides() -> None:
    """0.8 and 1.5, whatever the speed of each process."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    for metric, ratio in ((RULE_TIME, 0.8), (RULE_STEP_TIME, 1.5)):
        recorder.declare(metric, "s")
        for pair in range(6):
            for side, seconds in (("d5ray", ratio), ("torch.optim", 1.0), ("fused", 9.0)):
                scope = f"lenet[1] Adam {side}"
                recorder.record(metric, seconds * (1 + pair), step=0, phase="run", scope=scope, rep=pair)
    recorder.flush()
    run = {"samples": pa.Table.from_batches(batches)}
    assert UpdateTimeRatio("lenet[1]", "Adam").estimate(run).value == pytest.approx(0.8)
    assert RuleStepTimeRatio("lenet[1]", "Adam").estimate(run).value == pytest.approx(1.5)
    assert UpdateTimeRatio("lenet[1]", "SGD").estimate(run).value is None


def job(**changes: Any) -> RuleSpeeds:
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, RuleSpeeds)
    return replace(made, **changes)


@pytest.mark.slow
def test_a_process_of_its_own_measures_a_network(tmp_path: Any) -> None:
    """Rows of both metrics, the first value of each as warm-up."""
    small = job(rules=recipe.RULES[:1], seconds=0.01, batch_size=4)
    series = OnNetwork("lenet", (1, 8, 8)).measure(small, tmp_path)
    assert {one.metric for one in series} == {RULE_TIME, RULE_STEP_TIME}
    assert {one.at for one in series} == {
        f"SGD {side}" for side in ("d5ray", "torch.optim", "foreach", "fused")
    }
    assert all(one.warmup == 1 and len(one.values) >= 5 for one in series)


def test_wrong_rules_are_refused() -> None:
    for rules in ((), recipe.RULES[:1] * 2, (d5.optimizers.SGD(0.1),)):
        with pytest.raises(ConfigurationError, match="it must be a tuple such as"):
            job(rules=rules)
