"""The rule checker for a run's folder: complete, consistent, and its verdict what its own rows say

It reads tables, and executes nothing that lies in the folder.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.errors import D5Error
from d5ray.metrics.definitions import CATALOGUE, Criterion, Verdict, metric_named
from d5ray.metrics.reader import Run
from d5ray.recipes.recipe import overall

Tables = Mapping[str, pa.Table]
Rule = Callable[[dict[str, Any], Tables], Iterator[str]]
NEEDED = ("hostname", "cpu_model", "cores_usable", "memory_bytes", "python", "package_numpy", "package_ray")
MOST_TEXT = 60  # characters of a value
MOST_SHOWN = 5  # of places that break one rule
CLOSE = 1e-9  # relative, between a number in the folder and the same computed again


def violations(run: Run) -> list[str]:
    """One sentence for every rule that the run breaks: what was found, what the rule is."""
    try:
        row, tables = run.row, run.tables()
    except D5Error as error:
        return [f"the folder cannot be read: {error}"]
    return [text for rule in RULES for text in rule(row, tables)]


def _names(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """All rows are of this run."""
    for name, table in tables.items():
        if "run_id" not in table.column_names:
            continue
        others = set(table["run_id"].unique().to_pylist()) - {row["run_id"]}
        if others:
            yield f"{name} has rows of {', '.join(sorted(map(str, others)))}: the run is {row['run_id']}"


def _completed(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """It ended, and after it began."""
    if row["status"] != "completed":
        yield f"the run is {row['status']}: only a completed one counts"
    elif row["started"] is None or row["ended"] is None or row["ended"] < row["started"]:
        yield f"it started at {row['started']} and ended at {row['ended']}: the end must come later"
    if row["seed"] is None:
        yield "no seed is recorded: it cannot be done again"


def _hashes(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """The recipe's hash is that of FIXED, FIXED is what was run, and MUTABLE leaves it alone."""
    if not row["recipe_hash"]:
        yield "the run comes from no recipe: nothing was fixed that it could be held to"
        return
    fixed, mutable = json.loads(row["fixed"] or "{}"), json.loads(row["mutable"] or "{}")
    text = json.dumps(fixed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != row["recipe_hash"]:
        yield f"FIXED has the hash {found[:12]}…, recorded is {row['recipe_hash'][:12]}…"
    for key in sorted(fixed.keys() & mutable.keys()):
        yield f"{key!r} is FIXED and MUTABLE"
    job = json.loads(row["experiment"] or "{}")
    for key, value in fixed.items():
        for found in _run_with(key, fixed, job):
            yield f"{key!r} is FIXED to {_short(value)}, but {_short(found)} was run"


def _run_with(key: str, fixed: Mapping[str, Any], job: Mapping[str, Any]) -> list[Any]:
    """What was run for a key of FIXED, if that is something else."""
    name, dot, leaf = key.partition(".")
    if dot and f"{name}_kwargs" in job:  # an argument of a model, a data set or an executor
        found = job[f"{name}_kwargs"].get(leaf)
    elif dot:
        found = job[name].get(leaf) if isinstance(job.get(name), dict) else None
    elif key not in job:
        return []
    else:
        found = job[key]
        if any(other.startswith(f"{key}.") for other in fixed) and isinstance(found, dict):
            found = found.get("class")  # of which only leaves are fixed
    same = found == fixed[key] or found == [fixed[key]]  # one of what there may be several of
    return [] if same else [found]


def _rows(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """Every row that was recorded is there once."""
    samples = tables["samples"]
    if row["rows"] is not None and samples.num_rows != row["rows"]:
        yield f"samples has {samples.num_rows} rows, {row['rows']} were recorded"
    counted = samples.group_by(["agent", "attempt"]).aggregate(
        [("seq", "count"), ("seq", "max"), ("seq", "min")]
    )
    for each in counted.to_pylist()[:MOST_SHOWN]:
        if each["seq_min"] != 0 or each["seq_max"] != each["seq_count"] - 1:
            yield (
                f"{each['agent']} has {each['seq_count']} rows with numbers from {each['seq_min']} to "
                f"{each['seq_max']}: they must count from 0 without a gap"
            )
    keys = samples.select(["agent", "attempt", "seq"]).group_by(["agent", "attempt", "seq"]).aggregate([])
    if keys.num_rows != samples.num_rows:
        yield f"{samples.num_rows - keys.num_rows} rows of samples stand there twice"


def _units(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """Every metric is in its unit, and what cannot be negative is not."""
    samples = tables["samples"]
    units = samples.group_by(["metric", "unit"]).aggregate([("value", "min")]).to_pylist()
    for each in units:
        known = CATALOGUE.get(each["metric"])
        if known is not None and known.unit != each["unit"]:
            yield f"{each['metric']} is in {each['unit']!r}: its unit is {known.unit!r}"
        least = each["value_min"]
        if known is not None and known.kind in ("cost", "rate", "count") and least is not None and least < 0:
            yield f"{each['metric']} has the value {least}: it cannot be negative"


def _steps(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """Every agent recorded every step, at times that go forward."""
    samples = tables["samples"]
    of_agents = pc.and_(pc.equal(samples["metric"], "step_time"), pc.equal(samples["scope"], "agent"))
    times = samples.filter(of_agents)
    events = set(tables["events"]["name"].to_pylist())
    if not times.num_rows or row["steps"] is None or events & {"agent_died", "joined"}:
        return
    for rank in times["rank"].unique().to_pylist()[: MOST_SHOWN * 100]:
        own = times.filter(pc.equal(times["rank"], rank))
        steps, ends = own["step"].to_numpy(), own["t_mono"].to_numpy()
        missing = sorted(set(range(row["steps"])) - set(steps.tolist()))
        if missing:
            yield f"rank {rank} did not record {len(missing)} of {row['steps']} steps, such as {missing[0]}"
        if (np.diff(ends[np.argsort(steps, kind="stable")]) < 0).any():
            yield f"rank {rank} ended a later step before an earlier one"


def _environment(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """The machine is recorded."""
    known = set(tables["environment"]["key"].to_pylist())
    missing = [key for key in NEEDED if key not in known]
    if missing:
        yield f"the environment lacks {', '.join(missing)}"


def verdicts_of(row: dict[str, Any], tables: Tables) -> Iterator[str]:
    """The verdicts are those that the rows give, and the overall one is theirs."""
    recorded = tables["verdicts"].to_pylist()
    for verdict in recorded:
        if verdict["metric"] not in CATALOGUE:
            continue  # of contenders side by side: what they are is not in the folder
        again = Criterion(metric_named(verdict["metric"]), verdict["relation"], verdict["target"]).judge(
            tables
        )
        for name in ("value", "low", "high", "verdict"):
            if not _alike(verdict[name], getattr(again, name)):
                what = f"{verdict['metric']} {verdict['relation']} {verdict['target']:g}"
                yield f"{what}: the {name} recorded is {verdict[name]}, the rows give {getattr(again, name)}"
    expected = overall([Verdict(**verdict) for verdict in recorded], row["status"]) if recorded else None
    if row["verdict"] != expected:
        yield f"the verdict recorded is {row['verdict']}, its criteria give {expected}"


RULES: tuple[Rule, ...] = (_names, _completed, _hashes, _rows, _units, _steps, _environment, verdicts_of)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"


def _alike(recorded: Any, again: Any) -> bool:
    if isinstance(recorded, float) and isinstance(again, float):
        both_nan = math.isnan(recorded) and math.isnan(again)
        return both_nan or math.isclose(recorded, again, rel_tol=CLOSE, abs_tol=0.0)
    return bool(recorded == again)
