"""Claims about criteria that no row could decide: said before anything starts, with what to do"""

from typing import Any

import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.identity import checkout
from d5ray.metrics.definitions.asynchrony import Pushes, WindowWaitTime
from d5ray.recipes import digits_lenet
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe
from tests.beside_kits import cases_of, with_kits


def made(metrics: list[Any], **changes: Any) -> Any:
    mutable = {**digits_lenet.MUTABLE, **changes}
    return Recipe.of(digits_lenet.FIXED, mutable, metrics, name="x").made()


@pytest.mark.parametrize(
    ("criterion", "changes", "words"),
    [
        (d5.metrics.TimeToAccuracy(0.9) <= 9, {"evaluate": False}, "test_accuracy: set evaluate=True"),
        (d5.metrics.Staleness() <= 1, {}, "records no staleness: take an optimizer with servers"),
        (d5.metrics.Energy() <= 1, {"monitor_seconds": 0}, "no processor_energy: set monitor_seconds=1"),
        (d5.metrics.InferenceLatency(0.9) <= 1, {}, "records no inference_time"),
        (WindowWaitTime() <= 3, {"distributed": d5.optimizers.ASGD()}, "take an optimizer with peers"),
        *cases_of("parallel", lambda: [(d5.metrics.BubbleShare() <= 0.3, {}, "set a mesh in which agents")]),
        (d5.metrics.ConsensusDistance() <= 3, {}, "wait for each other at every step"),
    ],
)
def test_a_metric_that_is_not_measured_is_refused(
    criterion: Any, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        made([criterion], **changes)


def test_what_is_measured_is_let_pass() -> None:
    """Of a training; a cost without a tariff needs no monitor; who has servers, or peers, has theirs."""
    metrics = d5.metrics
    made([metrics.StepLatency(0.99) <= 1, metrics.Energy() <= 1])
    made([metrics.Cost(metrics.PriceTable(1.0)) <= 1], monitor_seconds=0)
    made([Pushes() <= 1e6], distributed=d5.optimizers.ASGD())
    made([WindowWaitTime() <= 3, metrics.ConsensusDistance() <= 3], distributed=d5.optimizers.ADPSGD())


@pytest.mark.parametrize(
    ("lacks", "words"),
    [("unit", "Mine does not say its unit"), ("direction", "does not say its direction"),
     ("down", "the direction 'down'"),
     ("money", "the kind 'money'")],
)  # fmt: skip
def test_a_metric_of_ones_own_that_is_incomplete_is_refused(lacks: str, words: str) -> None:
    """When the criterion is written, not after the training."""
    said: dict[str, Any] = dict.fromkeys(("name", "unit", "aggregation", "description"), "1")
    said |= {"direction": "min", "kind": "cost"}
    changes = {"down": {"direction": "down"}, "money": {"kind": "money"}}.get(lacks, {})
    body = {key: value for key, value in (said | changes).items() if key != lacks}
    body["estimate"] = lambda self, run: d5.metrics.Estimate(1.0)
    metric: Any = type("Mine", (d5.Metric,), body)()
    with pytest.raises(ConfigurationError, match=words):
        _ = metric <= 1


@pytest.mark.every_case
@pytest.mark.parametrize("name", with_kits(sorted([*library.shipped(), *checkout.names()])))
def test_every_recipe_measures_what_it_judges(name: str) -> None:
    module = library.own(name)
    Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name).made()
