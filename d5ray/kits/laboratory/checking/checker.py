"""The rule checker for a run's folder: complete, consistent, and its verdict what its own rows say

It reads tables, and executes nothing that lies in the folder. It finds accidents and contradictions, not a
careful liar, who changes everything that hangs together.
"""

from collections.abc import Iterator
from typing import Final

from d5ray.errors import AccessError, D5Error, first_line
from d5ray.kits.laboratory.checking import origin as check_origin
from d5ray.kits.laboratory.checking import rows as check_rows
from d5ray.kits.laboratory.checking import verdicts as check_verdicts
from d5ray.kits.laboratory.checking.folder import Folder, Rule
from d5ray.kits.laboratory.checking.rows import agreements
from d5ray.metrics.probes.environment import d5ray_version
from d5ray.metrics.record.reader import Run
from d5ray.recipes.engine import library

RULES: Final[tuple[Rule, ...]] = (
    check_rows.names, check_origin.times, check_origin.hashes, check_origin.shipped, check_origin.experiment,
    check_origin.kept, check_rows.rows, check_rows.agents, check_rows.units, check_rows.steps,
    check_rows.clocks, agreements, check_origin.machine, check_verdicts.invented, check_verdicts.verdicts,
)  # fmt: skip
LIMIT: Final = (
    "this finds accidents and contradictions, not a careful liar: sign the run's manifest.sha256 (ssh-keygen "
    "-Y sign), repeat it (d5ray rerun)"
)


def violations(run: Run) -> list[str]:
    """One sentence for every rule that the run breaks: what was found, what the rule is.

    Raises `AccessError` for a folder that this user may not read: no rule is broken by that.
    """
    try:
        folder = Folder(run, run.row, run.tables())
    except AccessError:
        raise
    except D5Error as error:
        return [f"the folder cannot be read: {error}"]
    return [text for rule in RULES for text in _kept(rule, folder)]


def unchecked(run: Run) -> list[str]:
    """The facts of this run that no rule can tell; empty for a run that cannot be read."""
    try:
        row = run.row
        found = [
            f"{label} is {whose}: its verdict is not computed again"
            for label, whose in check_verdicts.not_recomputed(row).items()
        ]
    except (D5Error, KeyError, TypeError, ValueError):
        return []
    if library.is_known(row["recipe"]) and row["d5ray_version"] != d5ray_version():
        found.append("it is of another version of d5ray: its recipe is not compared with the shipped one")
    return [*found, LIMIT]


def _kept(rule: Rule, folder: Folder) -> Iterator[str]:
    """The findings of the rule; that it cannot even read something is a finding, too."""
    try:
        yield from rule(folder)
    except Exception as error:  # made-up values raise nearly everything
        yield f"the rule on {rule.__name__} finds what d5ray does not write: {first_line(error)}"
