"""A series while it is made: on disk after every run, judged when it ends"""

import json
import os
import platform
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, final

from d5ray.actors.group.run_row import new_run_id
from d5ray.errors import first_line
from d5ray.metrics.judge.criteria import Verdict
from d5ray.metrics.judge.run_series import COUNTED, TUNING, RunSeries, series_root
from d5ray.metrics.record.folders import check_writable
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import Recipe, Result, overall


@final
class KeptSeries:
    """A series as it is kept while it goes on. purpose: why it has several runs; seeds: of those planned.

    Runs of a search are not judged together: they differ in their settings.
    """

    def __init__(self, recipe: Recipe, purpose: str, seeds: list[int]) -> None:
        check_writable(series_root())
        self.recipe = recipe
        self.results: list[Result] = []
        self.series = RunSeries(series_root() / new_run_id(f"{recipe.name}-{purpose}"))
        self._columns: dict[str, Any] = {
            "purpose": purpose,
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

    def add(self, result: Result) -> None:
        """Add a run that has ended."""
        self.results.append(result)
        self._columns["runs"] = [one.run_id for one in self.results]
        self.series.write(self._columns)

    def found(self) -> list[str]:
        """The names of the runs that were begun, also of one that failed."""
        runs = [run for run in list_runs(self.series.runs_root) if run.row["series"] == self.series.name]
        return [run.name for run in reversed(runs)]

    def members(self) -> list[Run]:
        """The runs that came to an end, and so are judged."""
        found = [Run(self.series.runs_root / name) for name in self.found()]
        return [run for run in found if run.row["status"] in COUNTED]

    def ended_by(self, error: BaseException) -> tuple[str, str] | None:
        """The status and the reason; None where nothing was measured, of which no folder is left."""
        if self.found():
            return "interrupted" if isinstance(error, KeyboardInterrupt) else "failed", first_line(error)
        for file in self.series.folder.iterdir():
            file.unlink()
        self.series.folder.rmdir()
        return None

    def close(
        self, status: str, reason: str, verdicts: tuple[Verdict, ...], detail: dict[str, Any] | None = None
    ) -> Result:
        """Write what the runs came to together."""
        verdicts = tuple(replace(verdict, run_id=self.series.name) for verdict in verdicts)
        verdict = overall(verdicts, status)
        self._columns |= {
            "runs": self.found(),
            "status": status,
            "stop_reason": reason or None,
            "verdict": None if self._columns["purpose"] == TUNING else verdict,
            "detail": json.dumps(detail) if detail is not None else None,
            "ended": datetime.now(UTC),
        }
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
