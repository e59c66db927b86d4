"""`d5ray run`: a recipe to its verdict"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.recipes.engine import library
from d5ray.recipes.engine.command import (
    Address,
    Determinism,
    Flight,
    Json,
    Resume,
    Seed,
    Seeds,
    Settings,
    Sign,
    Timings,
    Way,
    execute,
)


def run(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_PATH", help="A recipe's name, a Python file, or a folder with a recipe.py."
        ),
    ],
    set_: Settings = None,
    seed: Seed = None,
    seeds: Seeds = 1,
    check_determinism: Determinism = None,
    resume: Resume = None,
    address: Address = None,
    flight: Flight = None,
    sign: Sign = None,
    json: Json = False,
    timings: Timings = False,
) -> None:
    """Run a recipe to its verdict: exit code 0 pass, 1 fail, 2 inconclusive, 3 error."""
    module = library.load(recipe)
    way = Way(seeds, check_determinism, resume, flight, sign)
    execute(module, library.name_of(Path(recipe)), set_, seed, way, address, json, timings)
