"""Runs a recipe with several seeds, each in fresh processes and a folder of its own, to one verdict"""

import os
import platform
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from d5ray.actors.run_row import new_run_id
from d5ray.checks import check_count
from d5ray.dashboards import terminal
from d5ray.errors import ConfigurationError, first_line
from d5ray.metrics.estimates import FEWEST_BLOCKS
from d5ray.metrics.folders import check_writable
from d5ray.metrics.reader import list_runs
from d5ray.metrics.schema import table_of
from d5ray.metrics.series import Series, series_root
from d5ray.recipes.recipe import Recipe, Result, judged, overall


def recipes_of(recipe: Recipe, seeds: int) -> list[Recipe]:
    """The recipe with its own seed, and with those that follow it; raises `ConfigurationError`."""
    check_count("seeds", seeds, 1)
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


def run(recipe: Recipe, seeds: int, *, address: str | None, quiet: bool) -> Result:
    """One run after the other, judged together.

    Ctrl-C keeps the runs that are complete, and leaves the verdict open; so does an error of a run, which is
    raised again. A NaN loss fails the series, and the other seeds are run nevertheless.
    """
    members = recipes_of(recipe, seeds)
    check_writable(series_root())
    if seeds < FEWEST_BLOCKS and not quiet:
        terminal.err().print(
            f"{seeds} seeds are too few for a confidence interval, so no criterion can be decided: "
            f"it needs {FEWEST_BLOCKS}",
            style="yellow",
        )
    kept = _Kept(recipe, [member.made().seed for member in members])
    status, reason = "failed", ""
    try:
        status, reason = kept.make(members, address, quiet)
    except BaseException as error:
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        reason = first_line(error)
        if not kept.found():
            kept.forget()
            raise
        if status == "failed":
            kept.close(status, reason)
            raise
    return kept.close(status, reason)


class _Kept:
    """A series while it is made, on disk after every run."""

    def __init__(self, recipe: Recipe, seeds: list[int]) -> None:
        self.recipe = recipe
        self.results: list[Result] = []
        self.series = Series(series_root() / new_run_id(f"{recipe.name}-seeds"))
        self._columns: dict[str, Any] = {
            "purpose": "seeds",
            "recipe": recipe.name,
            "recipe_hash": recipe.hash,
            "runs": [],
            "seeds": seeds,
            "status": "running",
            "started": datetime.now(UTC),
            "host": platform.node(),
            "driver_pid": os.getpid(),
        }
        self.series.write(self._columns)

    def make(self, members: Iterable[Recipe], address: str | None, quiet: bool) -> tuple[str, str]:
        """Make the runs; the status of the series, and the reason why it ended so."""
        from d5ray.recipes.runner import run as run_it  # noqa: PLC0415 - imports Ray

        seeds = self._columns["seeds"]
        for number, (member, seed) in enumerate(zip(members, seeds, strict=True)):
            if not quiet:
                terminal.err().print(f"seed {seed}  ({number + 1} of {len(seeds)})", style="bold")
            result = run_it(member, address=address, quiet=quiet, series=self.series.name)
            self.results.append(result)
            self._write(runs=[one.run_id for one in self.results])
            if result.status == "interrupted":
                return "interrupted", result.reason
        for result, seed in zip(self.results, seeds, strict=True):
            if result.status != "completed":
                return result.status, f"seed {seed}: {result.reason}"
        return "completed", ""

    def found(self) -> list[str]:
        """The names of the runs that were begun, also of one that failed."""
        runs = [run for run in list_runs(self.series.runs_root) if run.row["series"] == self.series.name]
        return [run.name for run in reversed(runs)]

    def forget(self) -> None:
        """Remove the folder of a series of which nothing was measured."""
        for file in self.series.folder.iterdir():
            file.unlink()
        self.series.folder.rmdir()

    def close(self, status: str, reason: str) -> Result:
        """Judge what is complete."""
        self._write(runs=self.found())
        tables = self.series.tables()
        verdicts = tuple(
            replace(verdict, run_id=self.series.name)
            for verdict in judged(self.recipe.criteria, tables, status)
        )
        verdict = overall(verdicts, status)
        self._columns |= {"status": status, "stop_reason": reason or None, "verdict": verdict}
        self._columns |= {"ended": datetime.now(UTC)}
        self.series.write(self._columns, table_of("verdicts", [each.row for each in verdicts]))
        return Result(
            recipe=self.recipe,
            run_id=self.series.name,
            folder=self.series.folder,
            verdict=verdict,
            verdicts=verdicts,
            status=status,
            reason=reason,
            startup_seconds=self.results[0].startup_seconds if self.results else {},
            runs=tuple(self.results),
        )

    def _write(self, **columns: Any) -> None:
        self._columns |= columns
        self.series.write(self._columns)
