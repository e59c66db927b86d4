"""`d5ray run`: a recipe to its verdict"""

from pathlib import Path
from types import ModuleType

from d5ray.recipes.engine import library
from d5ray.recipes.engine.command import with_options
from d5ray.recipes.engine.parsing.options import NameOrPath


@with_options
def run(recipe: NameOrPath) -> tuple[ModuleType, str]:
    """Run a recipe to its verdict: exit code 0 pass, 1 fail, 2 inconclusive, 3 error."""
    return library.load(recipe), library.name_of(Path(recipe))
