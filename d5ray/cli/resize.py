"""`d5ray resize`: fewer agents for a run that is going on, or more again"""

from typing import Annotated

import typer

from d5ray.checks import check_address

Which = Annotated[
    str, typer.Argument(metavar="RUN", help="The name of a run that is going on, or its beginning; or last.")
]
Agents = Annotated[int, typer.Option("--agents", metavar="N", help="How many are to train.")]
Address = Annotated[
    str | None,
    typer.Option("--address", callback=check_address, help="The Ray cluster, HOST:PORT or 'auto'."),
]


def resize(run: Which, agents: Agents, address: Address = None) -> None:
    """Let a run that is going on have fewer agents, or more again up to its experiment's.

    They leave, or come, at a step that all reach together; newcomers start while the others train.
    """
    from d5ray.actors.group.resize import resize as wanted  # noqa: PLC0415 (Ray, for those who need it)
    from d5ray.display.console import err  # noqa: PLC0415

    wanted(run, agents=agents, address=address)
    err().print(f"{run} is to have {agents} agents: its event agents_changed tells when it is so")
