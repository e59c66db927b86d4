"""`d5ray run`: a recipe to its verdict"""

from pathlib import Path
from types import ModuleType
from typing import Annotated

import typer

from d5ray.recipes.engine import library
from d5ray.recipes.engine.command import with_options


@with_options
def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_PATH", help="A recipe's name, a Python file, or a folder with a recipe.py."
        ),
    ],
) -> tuple[ModuleType, str]:
    """Run a recipe to its verdict: exit code 0 pass, 1 fail, 2 inconclusive, 3 error."""
    return library.load(recipe), library.name_of(Path(recipe))
