"""`d5ray rerun`: a run once more, from its folder alone"""

import typer

from d5ray.cli.run_names import Name, Trust
from d5ray.failures.exit_codes import EXIT_CODES, FAIL, INCONCLUSIVE
from d5ray.recipes.engine.parsing.options import Address, Json


def rerun(run: Name, trust: Trust = False, address: Address = None, json: Json = False) -> None:
    """Repeat a run from its folder alone: do verdict, losses and, where promised, all bits come out the same?

    Exit code 0: the same, 1: it differs, 2: nothing is decided. A folder with its user's own code that no
    run of yours made is refused without --trust.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.metrics.record.store import Run  # noqa: PLC0415
    from d5ray.recipes.engine.repeats.reruns import DIFFERS, OPEN  # noqa: PLC0415
    from d5ray.recipes.engine.repeats.reruns import rerun as rerun_it  # noqa: PLC0415

    result = rerun_it(Run.find(run), trust=trust, address=address, quiet=json)
    if json:
        run_tables.as_json(result.row)
    else:
        run_tables.rerun(result)
    if result.outcome == DIFFERS:
        raise typer.Exit(EXIT_CODES[FAIL])
    if result.outcome == OPEN:
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])
