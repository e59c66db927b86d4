"""Arguments that several commands have, and what is read from their words: files, durations, defaults"""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from d5ray.checks import check_address, check_source, check_target
from d5ray.errors import ConfigurationError
from d5ray.failures import unforeseen

LONGEST_SECONDS: Final = 30 * 86400.0
PLAIN: Final[dict[str, Any]] = {"add_completion": False, "rich_markup_mode": None}  # so without Rich
UNITS: Final = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}

Name = Annotated[str, typer.Argument(metavar="RUN", help="A run's name, the beginning of one, or 'last'.")]
NameOfAny = Annotated[
    str, typer.Argument(metavar="RUN", help="A run or a series: a name, the beginning of one, or 'last'.")
]
NameOrPath = Annotated[
    str,
    typer.Argument(
        metavar="NAME_OR_PATH", help="A recipe's name, a Python file, or a folder with recipe.py."
    ),
]
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
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the code that lies in the folder, whoever made it.")
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
Timings = Annotated[bool, typer.Option("--timings", help="Show where the time to the first step went.")]


def reading(shown: Callable[..., None]) -> Callable[..., None]:
    """A command that shows what is stored: what is wrong with that is an error which names it."""

    @functools.wraps(shown)
    def checked(**given: Any) -> None:
        names = [given[name] for name in ("run", "first", "second") if given.get(name)]
        with unforeseen.reading(*(names or given.get("runs") or ["the runs"])):
            shown(**given)

    return checked


def source(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A path to read from."""
    return check_source(_name(param), path)


def target(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A path to write to."""
    return check_target(_name(param), path)


def seconds_of(text: str) -> float:
    """A duration in words: '60s', '2m', '1.5h', or a number of seconds.

    >>> seconds_of("60s"), seconds_of("1.5m"), seconds_of("90")
    (60.0, 90.0, 90.0)
    """
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyz").strip()
    unit = text.strip()[len(number) :].strip()
    try:
        seconds = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        what = "longer than 30 days" if seconds > 0 else "no duration"
        raise ConfigurationError(f"--budget {text!r} is {what}: give one such as 60s, 5m or 1h")
    return seconds


def usable_cores() -> int:
    """The processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _name(param: typer.CallbackParam) -> str:
    """An option as the user types it: `--token-file`, or FILE of an argument."""
    return param.opts[0] if param.opts[0].startswith("-") else str(param.metavar)
