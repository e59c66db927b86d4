"""`d5ray dashboard`: the live page, and what other tools show"""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from d5ray.checks import check_address
from d5ray.recipes.engine.parsing import options

PAGE = "page"


class _PageByDefault(TyperGroup):
    """`d5ray dashboard RUN` is `d5ray dashboard page RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("--help", "-h")):
            args = [PAGE, *args]
        return super().parse_args(ctx, args)


ABOUT = "Look at runs in a browser. [RUN] alone opens the live page."
app = typer.Typer(cls=_PageByDefault, help=ABOUT, **options.PLAIN)


@app.command(PAGE)
def page(
    run: Annotated[
        str,
        typer.Argument(metavar="[RUN]", help="A run's name, the beginning of one, its folder, or 'last'."),
    ] = "last",
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 for all of this machine's.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0: any free one.", min=0, max=65535)
    ] = 8500,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.source,
            help="What a browser must know, in a file of mode 600; by default D5RAY_TOKEN, or a random one.",
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--open", help="Open it in this machine's browser.")] = False,
) -> None:
    """Show runs on a page that follows them while they go on.

    It begins with RUN, and has all others under D5RAY_HOME.
    """
    from d5ray.dashboards.page import server  # noqa: PLC0415 - quick for those who only want help
    from d5ray.metrics.queries.tokens import token_from  # noqa: PLC0415

    server.serve(run, host=host, port=port, token=token_from(token_file), browser=browser)


@app.command()
def grafana(
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            callback=options.target,
            help="Where; by default where the Grafana of the Ray that runs looks.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            callback=check_address, help="That Ray, HOST:PORT; by default RAY_ADDRESS, or the one here."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Write dashboards for Grafana, alerts and settings for Prometheus."""
    from d5ray.dashboards.grafana import placing  # noqa: PLC0415 - quick for those who only want help
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415 - quick for those who only want help
    from d5ray.display.console import out  # noqa: PLC0415

    placed = placing.place(output, address)
    if json:
        run_tables.as_json(
            {
                "dashboards": [str(path) for path in placed.dashboards],
                "alerts": str(placed.alerts),
                "settings": str(placed.settings),
                "next": placed.lines,
            }
        )
        return
    written = {path.name: str(path.parent) for path in (*placed.dashboards, placed.alerts, placed.settings)}
    run_tables.pairs(written)
    for line in placed.lines:
        out().print(line, soft_wrap=True)
