"""Claims about criteria that no row could decide: said before anything starts, with what to do"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

import d5ray as d5
from benchmarks.overhead_lenet import recipe as overhead_lenet
from d5ray.errors import ConfigurationError
from d5ray.identity import checkout
from d5ray.kits.laboratory.comparisons import rounds
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeRatio
from d5ray.metrics.definitions.asynchrony import Pushes, WindowWaitTime
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.recipes import digits_lenet
from d5ray.recipes.engine import library
from d5ray.recipes.engine.recipe import Recipe


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
        (StepTimeRatio("d5ray[1]", "ddp[1]") <= 1, {}, "compares contenders"),
        (WindowWaitTime() <= 3, {"distributed": d5.optimizers.ASGD()}, "take an optimizer with peers"),
        (d5.metrics.BubbleShare() <= 0.3, {}, "set a mesh in which agents share a network"),
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
    made([metrics.StepLatency(0.99) <= 1, metrics.Energy() <= 1, metrics.StrongEfficiency(4) >= 0.8])
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


def test_a_metric_that_names_no_contender_is_refused_among_contenders() -> None:
    with pytest.raises(ConfigurationError, match=r"does not say which contender.*ddp\[2\].*StepTimeOf"):
        Recipe.of(overhead_lenet.FIXED, overhead_lenet.MUTABLE, [d5.metrics.StepTime() <= 1], name="x").made()
    wrong = [StepTimeRatio("d5ray[1]", "pytorch[7]") <= 1]
    with pytest.raises(ConfigurationError, match=r"no contender is called 'pytorch\[7\]': did you mean"):
        Recipe.of(overhead_lenet.FIXED, overhead_lenet.MUTABLE, wrong, name="x").made()


@pytest.mark.every_case
@pytest.mark.parametrize("name", sorted([*library.shipped(), *checkout.names()]))
def test_every_recipe_measures_what_it_judges(name: str) -> None:
    module = library.own(name)
    Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name).made()


# -- as many pairs as it takes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Planned(Contender[SideBySide]):
    """Takes the seconds that are planned for each round."""

    title: str
    seconds: tuple[float, ...]
    processes: int = 1

    @property
    def name(self) -> str:
        return self.title

    def missing(self) -> str:
        return ""

    def measure(self, job: SideBySide, folder: Any) -> list[RankSeries]:
        measured = sum(1 for _ in folder.parent.iterdir()) - 1
        return [RankSeries("step_time", "s", 0, [self.seconds[measured // 2]] * 3)]


@dataclass(frozen=True, kw_only=True)
class PlannedRounds(SideBySide):
    def check(self) -> None: ...

    def connect(self, address: str | None, metadata: dict[str, str], quiet: bool) -> Any:
        from d5ray.kits.laboratory.comparisons import processes  # noqa: PLC0415

        return processes.without_ray(address)


@pytest.mark.parametrize(("noise", "pairs", "words"), [(0.001, 6, "precise"), (0.5, 8, "most: 8 pairs")])
def test_rounds_go_on_until_all_ratios_are_precise(
    noise: float, pairs: int, words: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks after 6 and 8 rounds: quiet sides stop at 6, loud ones at the last; the reason is recorded."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    ours = Planned("ours", tuple(1.0 + noise * (at % 3) for at in range(8)))
    base = Planned("base", (2.0,) * 8)
    fixed = {"job": PlannedRounds, "comparisons": ((ours, base),)}
    metrics = [StepTimeRatio("ours", "base") <= 1]
    recipe = Recipe.of(fixed, {"pairs": SequentialStopping((6, 8))}, metrics, name="planned")
    job = recipe.made()
    from d5ray.actors.group.run_row import RunOrigin  # noqa: PLC0415

    result = rounds.run(job, recipe, RunOrigin(**recipe.described()), None, quiet=True)
    assert (result.verdict, result.status) == ("PASS", "completed")
    assert result.verdicts[0].n == pairs and words in result.reason
    row = d5.Run(result.folder).row
    assert row["stop_reason"] == result.reason


def test_sequential_stopping_is_written_on_the_command_line() -> None:
    """`--set pairs=SequentialStopping()`, by its earlier name, with other numbers; or a number."""
    recipe = Recipe.of(overhead_lenet.FIXED, overhead_lenet.MUTABLE, overhead_lenet.METRICS, name="x")
    for text, found in (
        ("SequentialStopping()", SequentialStopping()),
        ("Looks((8, 14))", SequentialStopping((8, 14))),
        (7, 7),
    ):
        assert replace(recipe, overrides={"pairs": text}).made().pairs == found
    with pytest.raises(ConfigurationError, match="pairs"):
        replace(recipe, overrides={"pairs": "many"}).made()
