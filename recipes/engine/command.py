"""The command that runs a recipe, and the end of every command: the exit code."""

import atexit
import contextlib
import errno
import io
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, NoReturn

import psutil
import pyarrow.compute as pc
import typer

from d5ray.checks import check_address, check_count, check_source, check_text
from d5ray.display.visible_text import one_line
from d5ray.errors import ConfigurationError, D5Error
from d5ray.failures import unforeseen, unloadable
from d5ray.metrics.judge.series import Series
from d5ray.metrics.record.signatures import private_key
from d5ray.metrics.record.store import Run
from d5ray.recipes.engine import library
from d5ray.recipes.engine.checking.signatures import sign_all
from d5ray.recipes.engine.parsing import settings
from d5ray.recipes.engine.recipe import ERROR_EXIT_CODE, INTERRUPTED, Recipe, Result
from d5ray.recipes.engine.repeats.seeds import MOST_SEEDS

FRAMEWORK_IMPORT = "  of which framework import"  # in `TrainingGroup.startup_seconds`
LONGEST_LINE, LONGEST_BEGIN = 1500, 1000  # characters of an error
UNREAD = 128 + signal.SIGPIPE  # who read the output has left
_NOTHING = re.compile("--[a-z-]+=")
_LEFT = "{} was called in the program before there was a verdict: leave it out of the recipe and what it uses"

Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A value for a key that is not FIXED.")
]
Seed = Annotated[int | None, typer.Option(help="The seed, short for --set seed=N.")]
Seeds = Annotated[
    int, typer.Option(metavar="N", help="Run N seeds, from the recipe's own on, and judge them together.")
]
Determinism = Annotated[
    int | None,
    typer.Option(
        "--check-determinism",
        metavar="STEPS",
        help="Run so many steps twice, compare every bit, and find what is not repeatable.",
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        metavar="RUN_OR_FOLDER",
        help="Go on from a checkpoint: of a run, of a folder, of s3://bucket/folder, or this very one.",
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
Sign = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY",
        callback=check_source,
        help="Sign the run's folder at its end with this key, see d5ray keygen.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="The result as JSON on standard output.")]
Timings = Annotated[bool, typer.Option("--timings", help="Show where the time to the first step went.")]


@dataclass(frozen=True)
class Way:
    """How a recipe is run: once, with several seeds, twice to compare all bits, or on from a checkpoint."""

    seeds: int
    steps: int | None  # to be compared
    resume: str | None
    flight: str | None = None  # where it answers queries meanwhile
    sign: Path | None = None  # with this key

    def check(self) -> None:
        """Raise `ConfigurationError` unless it is one of them."""
        check_count("seeds", self.seeds, 1, MOST_SEEDS)
        ways = {
            "--seeds": self.seeds > 1,
            "--check-determinism": self.steps is not None,
            "--resume": self.resume is not None,
        }
        given = [name for name, wanted in ways.items() if wanted]
        if len(given) > 1:
            raise ConfigurationError(f"{' and '.join(given)} exclude each other: give one of them")
        if self.flight is not None and (self.seeds > 1 or self.steps is not None):
            raise ConfigurationError(f"--flight {self.flight} is for one run: leave {given[0]} out")


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
    _execute(module, library.name_of(Path(recipe)), set_, seed, way, address, json, timings)


def main(fixed: Mapping[str, Any], mutable: Mapping[str, Any], metrics: Iterable[Any]) -> None:
    """What a recipe's file does when it is run as a program: the same as `d5ray run`, with its options."""
    module = sys.modules["__main__"]
    name = library.name_of(Path(str(module.__file__)))

    def itself(
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
        way = Way(seeds, check_determinism, resume, flight, sign)
        _execute(module, name, set_, seed, way, address, json, timings)

    itself.__doc__ = (module.__doc__ or "").partition("\n")[0]
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(itself)
    finish(app)


def finish(app: Callable[..., Any]) -> None:
    """Run a command line and exit: 3 for every error, in one line, also for what nobody foresaw.

    No other end is a verdict: neither `sys.exit` nor `os._exit` of what it runs, such as a recipe's own code.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    warnings.showwarning = _warn  # type: ignore[assignment]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    leave: Callable[[int], NoReturn] = os._exit
    os._exit = _guarded(leave)  # type: ignore[assignment]
    try:
        code = code_of(app, sys.argv[1:])
    except Exception as error:  # what shows errors cannot be imported
        code = unloadable.say(error)
    _end(code, leave)


def code_of(app: Callable[..., Any], words: Sequence[str]) -> int:
    """The exit code of a command line, whose words these are; what is wrong is said."""
    try:
        return _code_of(app, words)
    except D5Error as error:
        return _failed(_readable(unforeseen.without_traceback(error), words))
    except typer.TyperException as error:  # a wrong option; without any, the help was shown
        text = error.format_message()
        return _failed(_readable(f"{text} (--help shows what there is)", words)) if text else 0


def _code_of(app: Callable[..., Any], words: Sequence[str]) -> int:
    try:
        _check_words(words)
        code = int(app(list(words), standalone_mode=False) or 0)
        sys.stdout.flush()
    except typer.Exit as done:
        return int(done.exit_code)
    except (typer.TyperException, D5Error):
        raise
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    except BrokenPipeError:
        return UNREAD
    except SystemExit as done:
        return _failed(_LEFT.format(f"sys.exit({'' if done.code is None else repr(done.code)})"))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            return _failed(unforeseen.told(error))
        raise ConfigurationError(f"{error.filename!r} is too long for the name of a file") from error
    except BaseException as error:
        return _failed(unforeseen.told(error))
    if code == INTERRUPTED:
        from d5ray.display.console import err  # noqa: PLC0415

        err().print("interrupted", style="red")
    return code


def _check_words(words: Sequence[str]) -> None:
    """Raise `ConfigurationError` for what a shell hands over where a variable is empty, or not UTF-8."""
    for before, word in zip(["", *words], words, strict=False):
        check_text("what you gave", word)
        option = word[:-1] if _NOTHING.fullmatch(word) else before if before.startswith("--") else ""
        if not word or _NOTHING.fullmatch(word):
            what = option if option.strip("-") else "an argument"
            raise ConfigurationError(f"{what} is empty: give a value, or leave it out")


def _readable(text: str, words: Sequence[str]) -> str:
    """An error in which line ends that the user gave end no line, and no line is longer than one reads."""
    for word in words:
        for value in (word, *word.split("=", 2)[1:], word.partition("=")[2]):
            if "\n" in value:
                text = text.replace(value, one_line(value))
    return "\n".join(
        line
        if len(line) <= LONGEST_LINE
        else f"{line[:LONGEST_BEGIN]}… ({len(line):,} characters) …{line[LONGEST_BEGIN - LONGEST_LINE :]}"
        for line in text.split("\n")
    )


def _failed(text: str) -> int:
    from d5ray.display.console import err, lines  # noqa: PLC0415 - rich, only when something is shown

    with contextlib.suppress(OSError):  # standard error is closed, or full: the exit code says it
        err().print(lines(f"error: {text}", "red"))
    return ERROR_EXIT_CODE


def _guarded(leave: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
    """`os._exit` that says so and exits with 3 in this process, and does as always in those it forks."""
    process = os.getpid()

    def guarded(status: int) -> NoReturn:
        leave(_failed(_LEFT.format(f"os._exit({status})")) if os.getpid() == process else status)

    return guarded


def _execute(
    module: ModuleType,
    name: str,
    set_: list[str] | None,
    seed: int | None,
    way: Way,
    address: str | None,
    json: bool,
    timings: bool,
) -> None:
    overrides = dict(map(settings.parsed, set_ or []))
    if seed is not None:
        overrides["seed"] = seed
    recipe = Recipe.of(module.FIXED, module.MUTABLE, module.METRICS, name=name, overrides=overrides)
    recipe.made()  # everything that can be wrong with it is said before Ray is loaded
    way.check()
    key = None if way.sign is None else private_key(way.sign)
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.recipes.engine import runner  # noqa: PLC0415
    from d5ray.recipes.engine.repeats import determinism  # noqa: PLC0415
    from d5ray.recipes.engine.repeats import seeds as series  # noqa: PLC0415

    begin = float(psutil.Process().create_time())
    imports = time.time() - begin
    if way.steps is not None:
        result = determinism.check(recipe, way.steps, address=address, quiet=json)
    elif way.seeds > 1:
        result = series.run(recipe, way.seeds, address=address, quiet=json)
    else:
        result = runner.run(recipe, address=address, quiet=json, resume=way.resume, flight=way.flight)
    if key is not None:
        sign_all(result.folder, key)
    startup = {"interpreter and imports": imports, **result.startup_seconds, **_first_step(result, begin)}
    if timings:
        run_tables.timings(startup)
    _show(result, json, startup)
    raise typer.Exit(result.exit_code)


def _show(result: Result, json: bool, startup: dict[str, float]) -> None:
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series  # noqa: PLC0415

    if Series.is_one(result.folder):
        kept = Series(result.folder)
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


def _warn(message: Warning | str, *_: object) -> None:
    """A warning for people: what it says, not where in the program."""

    from d5ray.display.console import err, lines  # noqa: PLC0415

    err().print(lines(f"warning: {message}", "yellow"))


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _end(code: int, leave: Callable[[int], NoReturn]) -> NoReturn:
    """Leave the process; where Ray ran, after ending it and without its C++ destructors.

    Those crash now and then (signal 11) in a process that was interrupted while actors started.
    """
    session = sys.modules.get("d5ray.actors.session")
    if session is None:
        sys.exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not stop the cleaning up
    session.shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    leave(code)
