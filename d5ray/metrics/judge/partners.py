"""Partners of a run: others that can be compared with it, the most telling ones first"""

import contextlib
import glob
from collections.abc import Iterable, Mapping
from typing import Any, Final

from d5ray.errors import StorageError
from d5ray.metrics.judge.comparable import incomparable
from d5ray.metrics.record.reader import Run
from d5ray.metrics.views.run_labels import differences, label_of

MOST: Final = 5  # partners that are proposed
MOST_SIBLINGS: Final = 100  # by name, and so by time
COMPLETED: Final = "completed"

Row = Mapping[str, Any]  # of the table `runs`


def partners(run: Run, others: Iterable[Run], most: int = MOST) -> list[Run]:
    """The runs among these that can be compared with it, at most so many.

    They are complete, kept the same FIXED on the same data, and without a recipe train the same model. First
    come those that ran where it ran, real or simulated; of these what differs in a setting, the fewer the
    better; then other seeds of the same.
    """
    row = run.row
    known = [(other, other.row) for other in others if other.folder.resolve() != run.folder.resolve()]
    likely = sorted((_order(row, theirs), at) for at, (_, theirs) in enumerate(known) if _may(row, theirs))
    found: list[Run] = []
    for _, at in likely:  # the data are read of as many as it takes
        if len(found) == most:
            break
        if not incomparable([run, known[at][0]]):
            found.append(known[at][0])
    return found


def siblings(run: Run) -> list[dict[str, Any]]:
    """The rows of the last runs of the same recipe in the same folder, without this one."""
    row, folder = run.row, run.folder.resolve()
    named = sorted(folder.parent.glob(f"{glob.escape(str(row['recipe'] or folder.name))}-*"))[-MOST_SIBLINGS:]
    found = []
    for each in named:
        with contextlib.suppress(StorageError, PermissionError):  # of another version or user, or broken
            if each != folder and (each / "runs.parquet").is_file():
                found.append(Run(each).row)
    return [other for other in found if other["recipe"] == row["recipe"]]


def _may(row: Row, other: Row) -> bool:
    """True unless the rows of the table `runs` say that they cannot be compared."""
    if other["status"] != COMPLETED or (row["recipe_hash"] or "") != (other["recipe_hash"] or ""):
        return False
    if row["recipe_hash"]:
        return True
    one, two = label_of(row), label_of(other)
    return bool(one.model) and (one.model, one.data) == (two.model, two.data)


def _order(row: Row, other: Row) -> tuple[bool, bool, int, bool]:
    different = differences([row, other])
    elsewhere = label_of(row).place != label_of(other).place
    return elsewhere, not different, len(different), row["seed"] != other["seed"]
