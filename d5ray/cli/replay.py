"""`d5ray replay`: what an asynchronous run did, again in the simulation"""

import typer

from d5ray.failures.exit_codes import EXIT_CODES, FAIL
from d5ray.recipes.engine.parsing.options import Json, Name, Trust, reading


@reading
def replay(run: Name, trust: Trust = False, json: Json = False) -> None:
    """Do again, in the simulation, what an asynchronous run did: it must come out the same.

    Nothing in the folder is executed, unless the experiment had code of its user's: then a folder that no
    run of yours made is refused without --trust, since its code could do all that you can.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.reader import Run  # noqa: PLC0415
    from d5ray.replayer import replay as replay_run  # noqa: PLC0415

    result = replay_run(Run.find(run), trust=trust)
    if json:
        run_tables.as_json({**vars(result), "agrees": result.agrees})
    else:
        run_tables.replay(result)
    if not result.agrees:
        raise typer.Exit(EXIT_CODES[FAIL])
