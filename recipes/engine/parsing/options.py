"""Files among the words of a command: held to what can be read or written, under the option's own name"""

from pathlib import Path

import typer

from d5ray.checks import check_source, check_target


def source(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A path to read from."""
    return check_source(_name(param), path)


def target(param: typer.CallbackParam, path: Path | None) -> Path | None:
    """A path to write to."""
    return check_target(_name(param), path)


def _name(param: typer.CallbackParam) -> str:
    """An option as the user types it: `--token-file`, or FILE of an argument."""
    return param.opts[0] if param.opts[0].startswith("-") else str(param.metavar)
