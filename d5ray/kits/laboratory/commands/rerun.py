"""`d5ray rerun`: a run once more, from its folder alone"""

from typing import TYPE_CHECKING

import typer

from d5ray.failures.exit_codes import EXIT_CODES, FAIL, INCONCLUSIVE
from d5ray.recipes.engine.parsing.options import Address, Json, Name, Trust

if TYPE_CHECKING:
    from d5ray.kits.laboratory.repeats.reruns import Rerun


def rerun(run: Name, trust: Trust = False, address: Address = None, json: Json = False) -> None:
    """Repeat a run from its folder alone: do verdict, losses and, where promised, all bits come out the same?

    Exit code 0: the same, 1: it differs, 2: nothing is decided. A folder with its user's own code that no
    run of yours made is refused without --trust.
    """
    from d5ray.dashboards.terminal import run_tables  # noqa: PLC0415
    from d5ray.kits.laboratory.repeats.reruns import DIFFERS, OPEN  # noqa: PLC0415
    from d5ray.kits.laboratory.repeats.reruns import rerun as rerun_it  # noqa: PLC0415
    from d5ray.metrics.record.reader import Run  # noqa: PLC0415

    result = rerun_it(Run.find(run), trust=trust, address=address, quiet=json)
    if json:
        run_tables.as_json(result.row)
    else:
        _show(result)
    if result.outcome == DIFFERS:
        raise typer.Exit(EXIT_CODES[FAIL])
    if result.outcome == OPEN:
        raise typer.Exit(EXIT_CODES[INCONCLUSIVE])


def _show(result: "Rerun") -> None:
    """Print if a run came out the same once more."""
    from d5ray.display.console import out, styled  # noqa: PLC0415

    word, colour = {"same": ("SAME", "green"), "differs": ("DIFFERS", "red")}.get(
        result.outcome, ("INCONCLUSIVE", "yellow")
    )
    out().print(f"d5ray rerun  {result.run_id}  as {result.again}", styled(f"  {word}", style=colour))
    bits = "to the last bit the same" if result.bits else f"losses differ by up to {result.losses:.1e}"
    out().print(f"verdicts {result.verdicts[0]} and {result.verdicts[1]}; {bits}")
    for reason in result.reasons:
        out().print(f"! {reason}")
