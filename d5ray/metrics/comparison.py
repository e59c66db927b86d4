"""Two runs, or two groups of runs, metric by metric: which is better, and whether that can be said at all"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, final

import numpy as np

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.metrics import series, shown
from d5ray.metrics.definitions import CATALOGUE, metric_named
from d5ray.metrics.estimates import FEWEST_BLOCKS
from d5ray.metrics.operators import OPERATOR_TIME, labelled, times_of_operators
from d5ray.metrics.reader import Run, list_runs
from d5ray.metrics.statistics import median_interval, median_log_ratio

Word = Literal["better", "worse", "faster", "slower", "differs", "same", "inconclusive"]
GOOD: Final = ("better", "faster")
BAD: Final = ("worse", "slower")
TOLERANCE = 0.02  # ratios this near to 1 make no difference
METRICS: Final = (*CATALOGUE, OPERATOR_TIME)
PASSING = ("load_average", "ray_memory_bytes", "ray_object_store_bytes")  # facts that differ always
MOST_SHOWN = 60  # characters of a value


@final
@dataclass(frozen=True)
class Difference:
    """What a metric came to on both sides; ratio: of the second side over the first, with its 95 % interval.

    Where a value is not positive there is no ratio; n counts pairs of runs.
    """

    metric: str
    unit: str
    first: float
    second: float
    ratio: float | None
    low: float | None
    high: float | None
    n: int
    verdict: Word  # of the second side
    reason: str = ""


@final
@dataclass(frozen=True)
class Comparison:
    """incomparable: in what the runs' FIXED parts differ; then there are no differences. notes: to be known
    by whoever believes the figures."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    incomparable: tuple[str, ...]
    notes: tuple[str, ...]
    differences: tuple[Difference, ...]

    def _repr_html_(self) -> str:
        return shown.comparison(self)


def runs_named(text: str) -> list[Run]:
    """The runs that a text names: of runs or series, several with commas between them, `*` for any part.

    Raises `ConfigurationError` where there is none.
    """
    found: list[Run] = []
    for name in text.split(","):
        if "*" in name:
            fitting = [run for run in list_runs() if run.folder.match(name)]
            if not fitting:
                raise ConfigurationError(f"there is no run whose name is like {name!r}: see d5ray runs")
            found += fitting
        else:
            found += series.runs_of(series.find(name))
    return found


def compare(
    first: Sequence[Run],
    second: Sequence[Run],
    tolerance: float = TOLERANCE,
    metrics: Iterable[str] = METRICS,
    known: Mapping[str, Mapping[str, float]] | None = None,
) -> Comparison:
    """What the second side's runs came to over the first's, in pairs by the order in which they started.

    A run is one process of each agent, and what differs from process to process is larger than what differs
    within one: so a run counts once, and fewer than six pairs decide nothing. Runs that were started in turn
    cancel what drifts slowly. Raises `ConfigurationError` for a run on both sides, or that is not completed.

    known: what the metrics came to in runs, by their names, where that is known already.
    """
    check_number("tolerance", tolerance, low=0.0, low_included=True, high=1.0)
    sides = [sorted(runs, key=_started) for runs in (first, second)]
    for run in (*sides[0], *sides[1]):
        if run.row["status"] != "completed":
            raise ConfigurationError(
                f"the run {run.name} is {run.row['status']}: only completed runs can be compared"
            )
    twice = {run.name for run in sides[0]} & {run.name for run in sides[1]}
    if twice:
        raise ConfigurationError(f"{', '.join(sorted(twice))} stands on both sides: give different runs")
    names = [tuple(run.name for run in side) for side in sides]
    incomparable = _unlike(sides[0] + sides[1])
    if incomparable:
        return Comparison(names[0], names[1], incomparable, (), ())
    known = known or {}
    values = [
        [known[run.name] if run.name in known else _values(run, metrics) for run in side] for side in sides
    ]
    differences = []
    for metric in dict.fromkeys(label for side in values for of in side for label in of):
        one, other = ([of[metric] for of in side if metric in of] for side in values)
        if one and other:
            differences.append(judged(metric, one, other, tolerance))
    return Comparison(names[0], names[1], (), _notes(*sides), tuple(differences))


def judged(metric: str, first: Sequence[float], second: Sequence[float], tolerance: float) -> Difference:
    """One metric's values of the runs of both sides, in the order in which they started."""
    kind = labelled(metric) if metric.startswith(f"{OPERATOR_TIME}(") else metric_named(metric)
    pairs = min(len(first), len(second))
    a, b = np.array(first[:pairs]), np.array(second[:pairs])
    medians = float(np.median(a)), float(np.median(b))
    if np.array_equal(a, b):
        return Difference(metric, kind.unit, *medians, 1.0, 1.0, 1.0, pairs, "same")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        reason = "a value is not a finite number"
        return Difference(metric, kind.unit, *medians, None, None, None, pairs, "inconclusive", reason)
    if (a > 0).all() and (b > 0).all():
        found = median_log_ratio(b, a)
        ratio: float | None = found.value
        interval, neutral = found.interval, (1 / (1 + tolerance), 1.0, 1 + tolerance)
    else:
        ratio, interval, neutral = None, median_interval(b - a), (0.0, 0.0, 0.0)
    if interval is None:
        too_few = "1 pair of runs is" if pairs == 1 else f"{pairs} pairs of runs are"
        reason = f"{too_few} too few, it needs {FEWEST_BLOCKS}: make {FEWEST_BLOCKS - pairs} more"
        return Difference(metric, kind.unit, *medians, ratio, None, None, pairs, "inconclusive", reason)
    verdict = _word(kind, *interval, *neutral)
    low, high = interval if ratio is not None else (None, None)
    return Difference(metric, kind.unit, *medians, ratio, low, high, pairs, verdict)


def _word(kind: Any, low: float, high: float, nothing: float, equal: float, little: float) -> Word:
    """The second side's verdict, its interval being [low, high] and no difference [nothing, little]."""
    if nothing <= low and high <= little:
        return "same"
    if low <= equal <= high:
        return "inconclusive"
    if kind.direction == "target":
        return "differs"
    good = (high < equal) == (kind.direction == "min")
    if kind.unit == "s" and kind.kind == "cost":
        return "faster" if good else "slower"
    return "better" if good else "worse"


def _values(run: Run, metrics: Iterable[str]) -> dict[str, float]:
    """What each metric came to in a run, where it was measured; of operators, that of each of them."""
    tables, estimates = run.tables(), dict[str, float | None]()
    for metric in metrics:
        if metric == OPERATOR_TIME:
            estimates |= times_of_operators(tables)
        else:
            estimates[metric] = metric_named(metric).estimate(tables).value
    return {metric: value for metric, value in estimates.items() if value is not None}


def _unlike(runs: Sequence[Run]) -> tuple[str, ...]:
    """In what the FIXED parts differ: a line for every key, empty where the runs are comparable."""
    rows = [run.row for run in runs]
    if len({row["recipe_hash"] or "" for row in rows}) == 1:
        return ()
    fixed = [json.loads(row["fixed"] or "{}") for row in rows]
    lines = []
    for key in sorted(set().union(*fixed)):
        found: dict[str, str] = {}
        for row, keys in zip(rows, fixed, strict=True):
            found.setdefault(json.dumps(keys.get(key, "not fixed"), sort_keys=True), row["run_id"])
        if len(found) > 1:
            lines.append(
                f"{key}: " + ", ".join(f"{_short(value)} in {name}" for value, name in found.items())
            )
    return tuple(lines) or ("the hashes of their FIXED parts",)


def _notes(first: Sequence[Run], second: Sequence[Run]) -> tuple[str, ...]:
    notes = []
    if len(first) != len(second):
        notes.append(f"{len(first)} and {len(second)} runs: those that have no partner do not count")
    order = sorted([(_started(run), 0) for run in first] + [(_started(run), 1) for run in second])
    pairs = min(len(first), len(second))
    sides = [side for _, side in order]
    turns = all(sides[2 * pair] != sides[2 * pair + 1] for pair in range(min(pairs, len(sides) // 2)))
    if pairs > 1 and not turns:
        notes.append("the sides were not run in turn: what drifted meanwhile counts as a difference")
    if not first[0].row["recipe_hash"]:
        notes.append("the runs come from no recipe: nothing says that they had to be alike")
    notes += _machines((*first, *second))
    return tuple(notes)


def _machines(runs: Sequence[Run]) -> list[str]:
    """What differs between the machines of the runs, and the versions on them."""
    found: list[dict[str, str]] = []  # by run: of a fact, all its nodes' values
    for run in runs:
        values: dict[str, set[str]] = {}
        for row in run.tables(without=("samples", "events"))["environment"].to_pylist():
            values.setdefault(row["key"], set()).add(row["value"])
        found.append({key: " and ".join(sorted(of)) for key, of in values.items()})
    keys = set().union(*found)
    facts = {key: [known.get(key, "not recorded") for known in found] for key in keys}
    different = {key: sorted(set(told)) for key, told in facts.items() if len(set(told)) > 1}
    return [
        f"{key} differs: {', '.join(map(_short, different[key]))}"
        for key in sorted(different)
        if key not in PASSING
    ]


def _started(run: Run) -> float:
    started = run.row["started"]
    return started.timestamp() if started is not None else -math.inf


def _short(text: str) -> str:
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"
