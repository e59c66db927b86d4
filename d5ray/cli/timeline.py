"""`d5ray timeline`: who did what when, as a trace"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from d5ray.recipes.engine.parsing import options
from d5ray.recipes.engine.parsing.options import Name, reading

if TYPE_CHECKING:
    from d5ray.dashboards.timeline.writing import Written


@reading
def timeline(
    run: Name,
    output: Annotated[
        Path,
        typer.Option(
            "--output", metavar="FILE", callback=options.target, help="Where; compressed if it ends in .gz."
        ),
    ] = Path("trace.json"),
    first: Annotated[int, typer.Option("--from", metavar="STEP", help="The first step.")] = 0,
    last: Annotated[int | None, typer.Option("--to", metavar="STEP", help="The last step.")] = None,
    steps: Annotated[
        int, typer.Option("--steps", help="The most steps, where --to is not given; 0: all.")
    ] = 500,
    json: options.Json = False,
) -> None:
    """Show when agents and servers did what, and who waited for whom: a trace for ui.perfetto.dev."""
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.timeline import writing  # noqa: PLC0415
    from d5ray.metrics.record.reader import Run  # noqa: PLC0415

    written = writing.write(Run.find(run), output, first, last, steps)
    if json:
        run_tables.as_json({**vars(written), "file": str(output)})
    else:
        _tell(output, written)


def _tell(file: Path, written: "Written") -> None:
    """Print the file of a timeline, what it holds, what it left out, and what shows it."""
    from d5ray.dashboards.quantities import count  # noqa: PLC0415
    from d5ray.display.console import out  # noqa: PLC0415

    console = out()
    console.print(
        f"{file}  steps {written.first} to {written.last}, {count(written.events, 'event')}: open it at "
        "https://ui.perfetto.dev, or at chrome://tracing",
    )
    left = (written.first - written.low) + (written.high - written.last)
    if left:
        console.print(
            f"! {count(left, 'step')} of {written.low} to {written.high} left out: --from {written.last + 1}"
            " goes on, --steps 0 takes all",
            style="yellow",
        )
