"""`d5ray list`: the recipes by what they are for"""

import dataclasses

from d5ray.recipes.engine import library
from d5ray.recipes.engine.parsing.options import Json


def list(json: Json = False) -> None:
    """The recipes that ship with d5ray, by what they are for, with the time they take on two cores.

    From a checkout also its benchmarks, which measure d5ray itself.
    """
    from d5ray.dashboards.terminal import recipe_list  # noqa: PLC0415 - quick for those who only want help
    from d5ray.display.console import as_json  # noqa: PLC0415

    found = library.shipped() | library.benchmarks()
    if json:
        as_json({name: dataclasses.asdict(listed) for name, listed in found.items()})
    else:
        recipe_list.show(found)
