"""`d5ray network`: what is in an ONNX file"""

from pathlib import Path
from typing import Annotated

import typer

from d5ray.failures.exit_codes import EXIT_CODES, FAIL
from d5ray.recipes.engine.parsing import options


def network(
    file: Annotated[Path, typer.Argument(metavar="FILE", callback=options.source, help="An ONNX file.")],
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER",
            callback=options.source,
            help="Instead say where another ONNX file parts from it.",
        ),
    ] = None,
    stages: Annotated[
        int | None, typer.Option(metavar="N", help="Instead show a balanced cut into N stages.")
    ] = None,
    cut: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NODE", help="Instead show the stages, of which one begins with this node; each."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """The nodes of a network with shapes and parameters. Nothing in the file is executed.

    With --stages or --cut: what each stage takes for one sample, by counted operations and bytes.
    With --compare: the first node that differs, whatever nodes are called, and the largest differences of
    parameters. Exit code 1: they differ.
    """
    from d5ray.dashboards.terminal import cut_tables as cuts  # noqa: PLC0415
    from d5ray.dashboards.terminal import network_tables, run_tables  # noqa: PLC0415
    from d5ray.networks.network import Network  # noqa: PLC0415

    found = Network.from_onnx(file)
    if compare is not None:
        report = network_tables.compared(found, Network.from_onnx(compare))
        run_tables.as_json(report) if json else network_tables.show_compared(report)
        if report["differ"]:
            raise typer.Exit(EXIT_CODES[FAIL])
    elif stages is not None or cut:
        rows = cuts.rows_of(found, stages, cut)
        run_tables.as_json(rows) if json else cuts.show(rows)
    elif json:
        run_tables.as_json(network_tables.as_data(found))
    else:
        network_tables.show(found)
