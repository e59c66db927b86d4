"""`d5ray chaos`: a recipe under seeded faults, trial after trial, to a table and a verdict"""

from typing import Annotated

import typer

from d5ray.recipes.engine.command import Address, Json, Settings
from d5ray.recipes.engine.parsing.texts import settings_of

VICTIMS = "agent,server,aggregator,driver"
KINDS = "kill,stop,terminate"


def chaos(
    recipe: Annotated[
        str,
        typer.Argument(
            metavar="NAME_OR_PATH", help="A recipe's name, a Python file, or a folder with a recipe.py."
        ),
    ],
    trials: Annotated[int, typer.Option(metavar="N", help="How many runs under faults.")] = 100,
    seed: Annotated[int, typer.Option(metavar="S", help="Of what is drawn.")] = 0,
    victims: Annotated[
        str,
        typer.Option(metavar="A,B", help="Of these, and raylet, gcs, head."),
    ] = VICTIMS,
    kinds: Annotated[
        str, typer.Option(metavar="A,B", help="What they get, and fill_disk, fill_shared_memory.")
    ] = KINDS,
    set_: Settings = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Run a recipe under random faults: does every run end as its policy says, and leave its rows alone?

    Each trial is a fresh process. Policies are drawn too, unless --set on_failure=… gives one. Exit code 0:
    all trials are as promised, 1: some are not, 2: nothing is decided. A failed trial is told with the
    command that repeats it.
    """
    from d5ray.dashboards.terminal import chaos_table, run_tables  # noqa: PLC0415
    from d5ray.recipes.engine.chaos.campaign import campaign  # noqa: PLC0415
    from d5ray.recipes.engine.recipe import EXIT_CODES  # noqa: PLC0415

    result = campaign(
        recipe,
        trials=trials,
        seed=seed,
        victims=victims.split(","),
        kinds=kinds.split(","),
        settings=settings_of(set_ or []),
        address=address,
        watch=chaos_table.watched if not json else iter,
        told=chaos_table.told(recipe) if not json else lambda _: None,
    )
    if json:
        run_tables.as_json(result.as_data())
    else:
        chaos_table.show(result)
    raise typer.Exit(EXIT_CODES[result.verdict])
