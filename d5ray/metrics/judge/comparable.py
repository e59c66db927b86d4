"""The check that runs can be compared: they kept the same FIXED part, on the same data"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from d5ray.metrics.record.reader import Run

DATA: Final = "dataset_sha256"  # in `environment`: of the arrays; with more data sets, `dataset_sha256 NAME`
MOST_SHOWN = 60  # characters of a value


def incomparable(runs: Sequence[Run]) -> tuple[str, ...]:
    """Why the runs cannot be compared, a line a reason; empty where they can.

    Beside FIXED the data that were read must be the same, whatever the hash had of them: runs from before
    they entered it are held to what they recorded, those from before that to FIXED alone.
    """
    rows = [run.row for run in runs]
    return (*_fixed(rows), *_data(runs))


def is_data(key: str) -> bool:
    """True for a key of a data set's SHA-256, in `environment` and beside FIXED."""
    return key.partition(" ")[0] == DATA


def data_of(run: Run) -> dict[str, str]:
    """SHA-256 of the data sets of a run, by their keys in `environment`."""
    facts = run.tables(without=("samples", "events"))["environment"].to_pylist()
    return {row["key"]: row["value"] for row in facts if is_data(row["key"])}


def _fixed(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    if len({row["recipe_hash"] or "" for row in rows}) == 1:
        return ()
    fixed = [json.loads(row["fixed"] or "{}") for row in rows]
    names = [row["run_id"] for row in rows]
    known = set().union(*fixed)
    lines = [
        told
        for key in sorted(key for key in known if not is_data(key))
        if (told := _different(key, [keys.get(key, "not fixed") for keys in fixed], names))
    ]
    if not lines and any(map(is_data, known)):
        return ()  # the data alone, which are compared as they were read
    return tuple(lines) or ("the hashes of their FIXED parts",)


def _data(runs: Sequence[Run]) -> tuple[str, ...]:
    found = {run.name: data_of(run) for run in runs}
    lines = []
    for key in sorted(set().union(*found.values())):
        known = {name: data[key] for name, data in found.items() if key in data}
        told = _different(key, [f"{value[:12]}…" for value in known.values()], list(known))
        lines += [told] if told else []
    return tuple(lines)


def _different(key: str, values: Sequence[Any], names: Sequence[str]) -> str:
    """One line where the values of a key differ between runs of these names; empty where they do not."""
    found: dict[str, str] = {}
    for value, name in zip(values, names, strict=True):
        found.setdefault(json.dumps(value, sort_keys=True, ensure_ascii=False), name)
    if len(found) == 1:
        return ""
    return f"{key}: " + ", ".join(f"{_short(value)} in {name}" for value, name in found.items())


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
