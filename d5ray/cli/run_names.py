"""The arguments that name a run or series, and the error for one that cannot be read"""

import functools
from collections.abc import Callable
from typing import Annotated, Any

import typer

from d5ray.failures import unforeseen

Name = Annotated[str, typer.Argument(metavar="RUN", help="A run's name, the beginning of one, or 'last'.")]
NameOfAny = Annotated[
    str, typer.Argument(metavar="RUN", help="A run or a series: a name, the beginning of one, or 'last'.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code that lies in the folder, whoever made it.")
]


def reading(shown: Callable[..., None]) -> Callable[..., None]:
    """A command that shows what is stored: what is wrong with that is an error which names it."""

    @functools.wraps(shown)
    def checked(**given: Any) -> None:
        names = [given[name] for name in ("run", "first", "second") if given.get(name)]
        with unforeseen.reading(*(names or given.get("runs") or ["the runs"])):
            shown(**given)

    return checked
