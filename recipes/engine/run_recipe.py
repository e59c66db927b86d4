"""A recipe's three parts to its verdict, from a program"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from d5ray.checks import check_count, check_kind
from d5ray.errors import ConfigurationError
from d5ray.failures.program_state import as_before
from d5ray.recipes.engine.recipe import Recipe, Result


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
    from d5ray.recipes.engine.repeats import seeds as several  # noqa: PLC0415

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
            return several.run(recipe, seeds, address=address, quiet=quiet)
        return runner.run(recipe, address=address, quiet=quiet, resume=resume)
