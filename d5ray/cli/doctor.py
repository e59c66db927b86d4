"""`d5ray doctor`: what is installed, what is missing, and this machine"""

from typing import Annotated

import typer

from d5ray.failures.exit_codes import ERROR_EXIT_CODE
from d5ray.recipes.engine.parsing.options import Address, Json


def doctor(
    address: Address = None,
    network: Annotated[
        bool, typer.Option("--network", help="Measure latency and bandwidth between agents, and keep them.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what is installed, what is missing for which feature, this machine, and if Ray answers."""
    from d5ray.dashboards.terminal import doctor, run_tables  # noqa: PLC0415

    report = doctor.examine(address)
    if network:
        report += doctor.network(address)
    if json:
        run_tables.as_json(doctor.as_data(report))
    else:
        doctor.show(report)
    if not doctor.healthy(report):
        raise typer.Exit(ERROR_EXIT_CODE)
