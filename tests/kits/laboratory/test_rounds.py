"""Claims about recipes that compare: what a criterion must name, and as many pairs as it takes"""

from dataclasses import dataclass, replace
from typing import Any

import pytest

import d5ray as d5
from benchmarks.overhead_lenet import recipe as overhead_lenet
from d5ray.actors.group.run_row import RunOrigin
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.comparisons import rounds
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeRatio
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.recipes.engine.recipe import Recipe
from tests.recipes.test_measured import made


def test_a_ratio_of_contenders_is_refused_for_agents_and_an_efficiency_is_not() -> None:
    with pytest.raises(ConfigurationError, match="compares contenders"):
        made([StepTimeRatio("d5ray[1]", "ddp[1]") <= 1])
    made([d5.metrics.StrongEfficiency(4) >= 0.8])


def test_a_metric_that_names_no_contender_is_refused_among_contenders() -> None:
    with pytest.raises(ConfigurationError, match=r"does not say which contender.*ddp\[2\].*StepTimeOf"):
        Recipe.of(overhead_lenet.FIXED, overhead_lenet.MUTABLE, [d5.metrics.StepTime() <= 1], name="x").made()
    wrong = [StepTimeRatio("d5ray[1]", "pytorch[7]") <= 1]
    with pytest.raises(ConfigurationError, match=r"no contender is called 'pytorch\[7\]': did you mean"):
        Recipe.of(overhead_lenet.FIXED, overhead_lenet.MUTABLE, wrong, name="x").made()


@dataclass(frozen=True)
class Planned(Contender[SideBySide]):
    """Takes the seconds that are planned for each round."""

    title: str
    seconds: tuple[float, ...]
    processes: int = 1

    @property
    def name(self) -> str:
        return self.title

    def measure(self, job: SideBySide, folder: Any) -> list[RankSeries]:
        measured = sum(1 for _ in folder.parent.iterdir()) - 1
        return [RankSeries("step_time", "s", 0, [self.seconds[measured // 2]] * 3)]


@dataclass(frozen=True, kw_only=True)
class PlannedRounds(SideBySide):
    cpus = 0

    def check(self) -> None: ...


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
