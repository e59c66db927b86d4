"""What `d5ray check` says of a run, an oracle of tests of faults; the kit that says it may not be there"""

from typing import Any

import d5ray as d5
from tests.beside_kits import there

KIT = "laboratory"
NO_RECIPE = "the run comes from no recipe: nothing was fixed that it could be held to"


def agreements(run: d5.Run, **tables: Any) -> list[str]:
    """Where agents of one model did not have the same. tables: others than the run's."""
    from d5ray.kits.laboratory.checking import folder, rows  # noqa: PLC0415 - of a kit

    return list(rows.agreements(folder.Folder(run, run.row, run.tables() | tables)))


def violations(run: d5.Run) -> list[str]:
    """The rules that the run breaks."""
    from d5ray.kits.laboratory.checking import checker  # noqa: PLC0415 - of a kit

    return checker.violations(run)


def assert_agreed(run: d5.Run, trial: object = "") -> None:
    """Agents of one model had the same whenever their group formed again, as far as one can tell."""
    assert not there(KIT) or agreements(run) == [], trial


def assert_breaks(run: d5.Run, *rules: str, trial: object = "") -> None:
    """The run, of no recipe, breaks these rules and no others, as far as one can tell.

    trial: shown in the error.
    """
    assert not there(KIT) or sorted(violations(run)) == sorted([*rules, NO_RECIPE]), trial
