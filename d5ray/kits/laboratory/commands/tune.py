"""`d5ray tune`: settings of a recipe searched by Ray Tune, and the verdict on the best of them"""

from typing import Annotated

import typer

from d5ray.recipes.engine.parsing.options import Address, Json, NameOrPath, Settings


def tune(
    recipe: NameOrPath,
    over: Annotated[
        list[str],
        typer.Option(
            metavar="KEY=DOMAIN", help="What is searched: 'KEY=loguniform(0.001, 1)', or 'KEY=[16, 32]'."
        ),
    ],
    trials: Annotated[int, typer.Option(metavar="N", help="How many settings are drawn.")] = 10,
    seeds: Annotated[int, typer.Option(metavar="N", help="How many fresh seeds judge the best.")] = 6,
    asha: Annotated[
        bool, typer.Option("--asha", help="End trials early that are worse than others, by Tune's ASHA.")
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Trials and verdict by simulated agents, one process each.")
    ] = False,
    set_: Settings = None,
    address: Address = None,
    json: Json = False,
) -> None:
    """Search settings of a recipe by Ray Tune, and run the best with fresh seeds to its verdict.

    Exit code 0: the best passes, 1: it fails, 2: nothing is decided.
    """
    from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.dashboards.terminal import series_tables as series  # noqa: PLC0415
    from d5ray.kits.laboratory.tuning import search  # noqa: PLC0415
    from d5ray.kits.laboratory.tuning.space import written  # noqa: PLC0415
    from d5ray.kits.laboratory.tuning.tune import tune as searched  # noqa: PLC0415
    from d5ray.metrics.judge.run_series import RunSeries  # noqa: PLC0415
    from d5ray.recipes.engine.parsing.texts import settings_of  # noqa: PLC0415
    from d5ray.simulator import simulate  # noqa: PLC0415

    found = searched(
        recipe,
        dict(map(written, over)),
        trials=trials,
        scheduler=search.asha() if asha else None,
        seeds=seeds,
        overrides=settings_of(set_ or []),
        by=simulate if simulated else launch,
        address=address,
        quiet=json,
    )
    if json:
        run_tables.as_json(found.row)
    else:
        series.show(found.study)
        series.show(RunSeries(found.result.folder))
    raise typer.Exit(found.result.exit_code)
