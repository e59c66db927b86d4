"""Rules of the checker on the verdicts: of the run's own criteria, and what its rows give"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from d5ray.kits.laboratory.checking.folder import Folder, Tables
from d5ray.metrics.judge.criteria import Criterion, Verdict
from d5ray.metrics.judge.stored_criteria import criterion_of, is_away
from d5ray.recipes.engine.recipe import overall

CLOSE = 1e-9  # relative, between a number in the folder and the same computed again
JUDGED = ("unit", "value", "low", "high", "n", "sample_unit", "verdict")


def verdicts(folder: Folder) -> Iterator[str]:
    """The verdicts are on the run's criteria, and those that the rows give."""
    criteria = described(folder.row)
    if criteria is None and folder.tables["verdicts"].num_rows:
        yield "verdicts are recorded, but not on which criteria"
    yield from verdicts_of(folder.row, folder.tables, criteria)


def described(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The criteria of a run as its row has them; None where none were recorded."""
    return None if row["criteria"] is None else list(json.loads(row["criteria"]))


def verdicts_of(
    row: Mapping[str, Any], tables: Tables, criteria: list[dict[str, Any]] | None
) -> Iterator[str]:
    """The findings on verdicts of a run, or of several together. criteria: None if those are not known."""
    recorded = tables["verdicts"].to_pylist()
    made: dict[tuple[str, str, float], Criterion | None] = {}
    for each in criteria or ():
        made[each["label"], each["relation"], each["target"]] = criterion_of(each)
    wanted = Counter((each["label"], each["relation"], each["target"]) for each in criteria or ())
    if recorded and criteria is not None:
        judged = Counter(_key(verdict) for verdict in recorded)
        for key in (judged - wanted).elements():
            yield f"verdicts has {_told(key)}, which is no criterion of the run"
        for key in (wanted - judged).elements():
            yield f"the criterion {_told(key)} of the run has no verdict"
    for verdict in recorded:
        criterion = made.get(_key(verdict))
        if criterion is None or row["status"] == "interrupted":  # its last rows came when it was judged
            continue
        again = criterion.judge(tables)
        for name in JUDGED:
            if not _alike(verdict[name], getattr(again, name)):
                what = f"{_told(_key(verdict))}: the {name} recorded is {verdict[name]}"
                yield f"{what}, the rows give {getattr(again, name)}"
    expected = overall([Verdict(**verdict) for verdict in recorded], row["status"]) if recorded else None
    if row["verdict"] != expected:
        yield f"the verdict recorded is {row['verdict']}, its criteria give {expected}"


def invented(folder: Folder) -> Iterator[str]:
    """A criterion is on a metric that d5ray has, or on one of the user's own."""
    for each in described(folder.row) or ():
        if criterion_of(each) is None and each.get("own") is not True and not is_away(each):
            yield f"the run was to reach {each.get('label')}, a metric that neither d5ray nor the user has"


def not_recomputed(row: Mapping[str, Any]) -> dict[str, str]:
    """The metrics whose code is not here, with whose they are: the user's own, or of a benchmark."""
    found = {}
    for each in described(row) or ():
        if each.get("own") is True:
            found[each["label"]] = "a metric of the user's own"
        elif is_away(each):
            found[each["label"]] = "a metric of d5ray's benchmarks, which only a checkout of d5ray has"
    return found


def _key(verdict: Mapping[str, Any]) -> tuple[str, str, float]:
    return verdict["metric"], verdict["relation"], verdict["target"]


def _told(key: tuple[str, str, float]) -> str:
    return f"{key[0]} {key[1]} {key[2]:g}"


def _alike(recorded: Any, again: Any) -> bool:
    if isinstance(recorded, float) and isinstance(again, float):
        both_nan = math.isnan(recorded) and math.isnan(again)
        return both_nan or math.isclose(recorded, again, rel_tol=CLOSE, abs_tol=0.0)
    return bool(recorded == again)
