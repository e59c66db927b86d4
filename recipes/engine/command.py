"""The command line of any recipe: `d5ray run`, or the recipe's file as a program"""

import inspect
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import psutil
import pyarrow.compute as pc
import typer

from d5ray.checks import check_address, check_count
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError
from d5ray.failures.finish import finish
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record import manifest
from d5ray.metrics.record.store import Run
from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing.texts import settings_of
from d5ray.recipes.engine.recipe import Recipe, Result
from d5ray.recipes.engine.repeats.seeds import MOST_SEEDS

NO_FAULTS = Faults()
FRAMEWORK_IMPORT = "  of which framework import"  # in `TrainingGroup.startup_seconds`

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A value for a key that is not FIXED.")
]
Seed = Annotated[int | None, typer.Option(help="The seed, short for --set seed=N.")]
Seeds = Annotated[
    int, typer.Option(metavar="N", help="Run N seeds, from the recipe's own on, and judge them together.")
]
Resume = Annotated[
    str | None,
    typer.Option(
        metavar="RUN_OR_FOLDER",
        help="Go on from a checkpoint: of a run, 'last', a folder, s3://bucket/folder, or this very one; "
        "'auto': of the last run like this if that did not end well.",
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        callback=check_address, help="A Ray cluster, HOST:PORT or 'auto'; an embedded Ray without it."
    ),
]
Flight = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Answer SQL by Arrow Flight while it runs, with a token; port 0: any that is free.",
    ),
]
Planned = Annotated[
    str | None,
    typer.Option(
        "--faults",
        metavar="PLAN",
        help="What happens to the run by plan, such as 'kill(agent=1, at_step=3)'.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
Timings = Annotated[bool, typer.Option("--timings", help="Show where the time to the first step went.")]


@dataclass(frozen=True)
class Way:
    """A way to run a recipe: once, with several seeds, or on from a checkpoint."""

    seeds: int
    resume: str | None
    flight: str | None = None  # where it answers queries meanwhile
    faults: Faults = NO_FAULTS

    def check(self) -> None:
        """Raise `ConfigurationError` unless it is one way, not two."""
        check_count("seeds", self.seeds, 1, MOST_SEEDS)
        if self.seeds == 1:
            return
        if self.resume is not None:
            raise ConfigurationError("--seeds and --resume exclude each other: give one of them")
        for option, value in (("--flight", self.flight), ("--faults", self.faults)):
            if value:
                raise ConfigurationError(f"{option} {value} is for one run: leave --seeds out")


def execute(
    module: ModuleType,
    name: str,
    set_: Settings = None,
    seed: Seed = None,
    seeds: Seeds = 1,
    resume: Resume = None,
    address: Address = None,
    flight: Flight = None,
    faults: Planned = None,
    json: Json = False,
    timings: Timings = False,
) -> None:
    """Run the recipe of a module, show what it came to, and exit with its code."""
    plan = NO_FAULTS if faults is None else Faults.parse(faults)
    way = Way(seeds, resume, flight, plan)
    overrides = settings_of(set_ or [])
    if seed is not None:
        if "seed" in overrides:
            raise ConfigurationError("--seed and --set seed are the same: give one of them")
        overrides["seed"] = seed
    recipe = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=overrides)
    recipe.made()  # everything that can be wrong with it is said before Ray is loaded
    way.check()
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.recipes.engine import runner  # noqa: PLC0415
    from d5ray.recipes.engine.repeats import seeds as series  # noqa: PLC0415

    begin = float(psutil.Process().create_time())
    imports = time.time() - begin
    if way.seeds > 1:
        result = series.run(recipe, way.seeds, address=address, quiet=json)
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
    raise typer.Exit(result.exit_code)


def with_options(found: Callable[..., tuple[ModuleType, str]]) -> Callable[..., None]:
    """The command with the arguments of `found`, which finds a recipe, and the options of running one."""
    own = inspect.signature(found)
    options = list(inspect.signature(execute).parameters.values())[2:]

    def command(**given: Any) -> None:
        execute(*found(**{name: given.pop(name) for name in own.parameters}), **given)

    command.__doc__, command.__name__ = found.__doc__, found.__name__
    signature = own.replace(parameters=[*own.parameters.values(), *options], return_annotation=None)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def main(fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Iterable[Any]) -> None:
    """Run a recipe's file as a program: the same as `d5ray run`, with its options."""
    module = sys.modules["__main__"]
    name = library.name_of(Path(str(module.__file__)))
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(help=(module.__doc__ or "").partition("\n")[0])(with_options(lambda: (module, name)))
    finish(app)


def _show(result: Result, json: bool, startup: dict[str, float]) -> None:
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series  # noqa: PLC0415

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
