"""A recipe's three parts to its verdict, from a program or by the words of a command"""

import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import psutil
import pyarrow.compute as pc

from d5ray.checks import check_count, check_kind
from d5ray.dashboards.terminal import run_tables
from d5ray.dashboards.terminal import series_tables as series
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError
from d5ray.failures.program_state import as_before
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record import manifest
from d5ray.metrics.record.reader import Run
from d5ray.names.kits import parts
from d5ray.recipes.engine.parsing.texts import settings_of
from d5ray.recipes.engine.recipe import Recipe, Result

FRAMEWORK_IMPORT = "  of which framework import"  # in `TrainingGroup.startup_seconds`


def run_recipe(
    fixed: Mapping[str, Any],
    mutable: Mapping[str, Any],
    metrics: Iterable[Any],
    *,
    name: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    address: str | None = None,
    quiet: bool = False,
    seeds: int = 1,
    resume: str | Path | None = None,
) -> Result:
    """Run a recipe to its verdict. Raises `D5Error` where it cannot run; nothing passed in is changed.

    overrides: values for keys that are not FIXED; address: of a Ray cluster, see `launch`; seeds: that many
    runs, with the recipe's seed and those that follow it, are judged together; resume: a checkpoint to go on
    from, or "auto", see `launch`.
    """
    from d5ray.recipes.engine import runner  # noqa: PLC0415 - imports Ray

    check_count("seeds", seeds)
    check_kind("name", name, str | None, "a text")
    check_kind("overrides", overrides, Mapping | None, "a dictionary of values by keys")
    caller = sys._getframe(1).f_globals
    name = name or Path(caller.get("__file__", "recipe")).stem
    with as_before():
        recipe = Recipe.of(fixed, mutable, metrics, name=name, overrides=overrides)
        if seeds != 1 and resume is not None:
            raise ConfigurationError(
                f"seeds={seeds} and resume={resume!r} exclude each other: give one of them"
            )
        if seeds != 1:
            return _several()(recipe, seeds, address=address, quiet=quiet)
        return runner.run(recipe, address=address, quiet=quiet, resume=resume)


def _several() -> Callable[..., Result]:
    """What runs a recipe with several seeds. Raises `ConfigurationError` where no kit brings it."""
    for run_all in parts("several seeds").values():
        return cast("Callable[..., Result]", run_all)
    raise ConfigurationError(
        "several seeds need a kit that repeats recipes, and d5ray/kits has none: run them one by one, "
        "with --seed"
    )


# -- by the words of a command -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A way to run a recipe: once, with several seeds, or on from a checkpoint."""

    seeds: int
    resume: str | None
    flight: str | None  # where it answers queries meanwhile
    faults: Faults

    def check(self) -> None:
        """Raise `ConfigurationError` unless it is one way, not two."""
        check_count("seeds", self.seeds)
        if self.seeds == 1:
            return
        if self.resume is not None:
            raise ConfigurationError("--seeds and --resume exclude each other: give one of them")
        for option, value in (("--flight", self.flight), ("--faults", self.faults)):
            if value:
                raise ConfigurationError(f"{option} {value} is for one run: leave --seeds out")


def recipe_of(module: ModuleType, name: str, set_: Iterable[str], seed: int | None) -> Recipe:
    """The recipe of a module with settings KEY=VALUE. Raises `ConfigurationError` where one is wrong."""
    overrides = settings_of(set_)
    if seed is not None:
        if "seed" in overrides:
            raise ConfigurationError("--seed and --set seed are the same: give one of them")
        overrides["seed"] = seed
    recipe = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=overrides)
    recipe.made()  # everything that can be wrong with it is said before Ray is loaded
    return recipe


def run(recipe: Recipe, way: Way, address: str | None, json: bool, timings: bool) -> int:
    """Run a recipe and show what it came to; the command's exit code."""
    way.check()
    from d5ray.recipes.engine import runner  # noqa: PLC0415 - imports Ray

    begin = float(psutil.Process().create_time())
    imports = time.time() - begin
    if way.seeds > 1:
        result = _several()(recipe, way.seeds, address=address, quiet=json)
    else:
        result = runner.run(
            recipe, address=address, quiet=json, resume=way.resume, flight=way.flight, faults=way.faults
        )
    for folder in (result.folder, *(run.folder for run in result.runs)):
        manifest.write(folder)
    startup = {"interpreter and imports": imports, **result.startup_seconds, **_first_step(result, begin)}
    if timings:
        run_tables.timings(startup)
    _show(result, json, startup)
    return result.exit_code


def _show(result: Result, json: bool, startup: dict[str, float]) -> None:
    if RunSeries.is_one(result.folder):
        kept = RunSeries(result.folder)
        if json:
            told = {"exit_code": result.exit_code, "startup_seconds": startup}
            run_tables.as_json({**series.as_data(kept), **told})
        else:
            series.show(kept)
        return
    run = Run(result.folder)
    if not json:
        run_tables.verdict(run, result.verdicts, result.verdict)
        return
    run_tables.as_json(
        {
            "run": result.run_id,
            "folder": str(result.folder),
            "recipe": result.recipe.name,
            "recipe_hash": result.recipe.hash,
            "status": result.status,
            "reason": result.reason,
            "verdict": result.verdict,
            "exit_code": result.exit_code,
            "criteria": [verdict.row for verdict in result.verdicts],
            "parameters_sha256": run.row["parameters_sha256"],
            "startup_seconds": startup,
        }
    )


def _first_step(result: Result, begin: float) -> dict[str, float]:
    """Seconds from the start of this process to the end of the first step, and d5ray's share of them."""
    first = result.runs[0] if result.runs else result
    samples = Run(first.folder).tables()["samples"]
    steps = samples.filter(pc.equal(samples["metric"], "step_time"))
    imports = result.startup_seconds.get(FRAMEWORK_IMPORT)
    if not steps.num_rows or imports is None:
        return {}
    total = pc.min(steps["t_wall"]).value / 1e9 - begin
    own = total - result.startup_seconds["ray.init"] - imports
    return {
        "the command to its first step": total,
        "  of which neither ray.init nor framework import": own,
    }
