"""The command line: `d5ray run`, `list`, `runs`, …, whose modules are imported when they are called"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final, final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from d5ray.failures.finish import finish
from d5ray.names.kits import brought
from d5ray.recipes.engine.parsing import options

COMMANDS: Final = {  # and their modules
    name: f"d5ray.cli.{name}"
    for name in (
        "run", "sql", "list", "resize", "runs", "show", "stop", "replay", "export", "report", "timeline",
        "network", "doctor", "dashboard",
    )
} | brought("commands")  # fmt: skip


@final
class _Commands(Mapping[str, Any]):
    """The commands by name, each made of the function or the `app` of its module when it is asked for."""

    def __getitem__(self, name: str) -> Any:
        module = import_module(COMMANDS[name])
        if hasattr(module, "app"):
            return get_command(module.app)
        alone = typer.Typer(**options.PLAIN)
        alone.command(name)(getattr(module, name))
        return get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


@final
class _Group(TyperGroup):
    """The group of all commands, whose help says of each what the first line of its module does."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _about(name)) for name in COMMANDS])


def _about(name: str) -> str:
    found = find_spec(COMMANDS[name])
    assert found is not None and found.origin is not None
    with Path(found.origin).open(encoding="utf-8") as file:
        text = file.readline().partition(": ")[2].rstrip('"\n')
    return f"{text[0].upper()}{text[1:]}."


def _version(wanted: bool) -> None:
    if wanted:
        from d5ray.display.console import out  # noqa: PLC0415 - quick for those who want something else
        from d5ray.metrics.probes.environment import d5ray_version  # noqa: PLC0415

        out().print(f"d5ray {d5ray_version()}")
        raise typer.Exit


app = typer.Typer(
    name="d5ray", cls=_Group, no_args_is_help=True, pretty_exceptions_enable=False, **options.PLAIN
)


@app.callback()
def d5ray(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Say the version, and end.")
    ] = False,
) -> None:
    """Replace, run and measure any part of (distributed) deep learning."""


def main() -> None:
    """Run the command line `d5ray`; the entry point of the installed program."""
    finish(app)
