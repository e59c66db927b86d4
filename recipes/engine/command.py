"""The command line of any recipe: `d5ray run`, or the recipe's file as a program"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from d5ray.failures.finish import finish
from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing import options


def execute(
    found: tuple[ModuleType, str],
    set_: options.Settings = None,
    seed: options.Seed = None,
    seeds: options.Seeds = 1,
    resume: options.Resume = None,
    address: options.Address = None,
    flight: options.Flight = None,
    faults: options.Planned = None,
    json: options.Json = False,
    timings: options.Timings = False,
) -> None:
    """Run the recipe of a module under its name, show what it came to, and exit with its code."""
    from d5ray.distributed.faults.plan import Faults  # noqa: PLC0415 - quick for those who only want help
    from d5ray.recipes.engine.run_recipe import Way, recipe_of, run  # noqa: PLC0415

    way = Way(seeds, resume, flight, Faults() if faults is None else Faults.parse(faults))
    raise typer.Exit(run(recipe_of(*found, set_ or [], seed), way, address, json, timings))


def with_options(found: Callable[..., Any], run: Callable[..., None] = execute) -> Callable[..., None]:
    """The command with the arguments of `found`, which finds a recipe or the like, and the options of `run`.

    run: called with what was found first, and its own options.
    """
    own = inspect.signature(found)
    given_too = list(inspect.signature(run).parameters.values())[1:]

    def command(**given: Any) -> None:
        run(found(**{name: given.pop(name) for name in own.parameters}), **given)

    command.__doc__, command.__name__ = found.__doc__, found.__name__
    signature = own.replace(parameters=[*own.parameters.values(), *given_too], return_annotation=None)
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    return command


def main(fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Iterable[Any]) -> None:
    """Run a recipe's file as a program: the same as `d5ray run`, with its options."""
    module = sys.modules["__main__"]
    name = library.name_of(Path(str(module.__file__)))
    app = typer.Typer(pretty_exceptions_enable=False, **options.PLAIN)
    app.command(help=(module.__doc__ or "").partition("\n")[0])(with_options(lambda: (module, name)))
    finish(app)
