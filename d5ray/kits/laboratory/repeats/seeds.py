"""Runs a recipe with several seeds, each in fresh processes and a folder of its own, to one verdict"""

from dataclasses import replace
from typing import TYPE_CHECKING

from d5ray.checks import check_count
from d5ray.display.console import err
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.repeats.series_folder import KeptSeries
from d5ray.metrics.judge.run_series import joined
from d5ray.metrics.statistics.estimates import FEWEST_RUNS
from d5ray.recipes.engine.recipe import Recipe, Result, judged

if TYPE_CHECKING:
    from d5ray.recipes.engine.runner import Begin

MOST_SEEDS = 10_000


def recipes_of(recipe: Recipe, seeds: int) -> list[Recipe]:
    """The recipe with its own seed, and with those that follow it; raises `ConfigurationError`."""
    check_count("seeds", seeds, 1, MOST_SEEDS)
    first = getattr(recipe.made(), "seed", None)
    if first is None:
        raise ConfigurationError(
            f"the recipe {recipe.name} runs a {recipe.job().__name__}, which has no seed: leave --seeds out"
        )
    if recipe.held.sets("seed"):
        raise ConfigurationError(
            f"--seeds {seeds} needs other seeds, but 'seed' is FIXED in the recipe {recipe.name}: move it "
            "into MUTABLE in a copy of the recipe"
        )
    return [replace(recipe, overrides={**recipe.overrides, "seed": first + more}) for more in range(seeds)]


def run(recipe: Recipe, seeds: int, *, address: str | None, quiet: bool, by: "Begin | None" = None) -> Result:
    """Run the recipe with one seed after the other, and judge the runs together. by: see `runner.run`.

    Ctrl-C keeps the runs that are complete, and leaves the verdict open; so does an error of a run, which is
    raised again. A NaN loss fails the series, and the other seeds are run nevertheless.
    """
    members = recipes_of(recipe, seeds)
    if seeds < FEWEST_RUNS and not quiet:
        err().print(
            f"{seeds} seeds are too few for a confidence interval, so no criterion can be decided: "
            f"it needs {FEWEST_RUNS}",
            style="yellow",
        )
    kept = KeptSeries(recipe, "seeds", [member.made().seed for member in members])
    try:
        ended = _make(kept, members, address, quiet, by)
    except BaseException as error:
        if (found := kept.ended_by(error)) is None:
            raise
        result = _close(kept, *found)
        if not isinstance(error, KeyboardInterrupt):
            raise
        return result
    return _close(kept, *ended)


def _make(
    kept: KeptSeries, members: list[Recipe], address: str | None, quiet: bool, by: "Begin | None"
) -> tuple[str, str]:
    """Make the runs; the status of the series, and the reason why it ended so."""
    from d5ray.recipes.engine.runner import run as run_it  # noqa: PLC0415 - imports Ray

    seeds = [member.made().seed for member in members]
    for number, (member, seed) in enumerate(zip(members, seeds, strict=True)):
        if not quiet:
            err().print(f"seed {seed}  ({number + 1} of {len(seeds)})", style="bold")
        result = run_it(member, address=address, quiet=quiet, series=kept.series.name, by=by)
        kept.add(result)
        if result.status == "interrupted":
            return "interrupted", result.reason
    for result, seed in zip(kept.results, seeds, strict=True):
        if result.status != "completed":
            return result.status, f"seed {seed}: {result.reason}"
    return "completed", ""


def _close(kept: KeptSeries, status: str, reason: str) -> Result:
    """Judge what is complete."""
    tables = joined([run.tables() for run in kept.members()])
    return kept.close(status, reason, judged(kept.recipe.criteria, tables, status))
