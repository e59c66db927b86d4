"""Two runs, or two groups of runs, metric by metric: which is better, and whether that can be said at all"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, final

from d5ray.checks import check_number
from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.catalogue import CATALOGUE, metric_named
from d5ray.metrics.judge import run_series
from d5ray.metrics.judge.comparable import incomparable
from d5ray.metrics.judge.differences import BAD, TOLERANCE, MetricDifference, Together, together
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.statistics.familywise import FAMILY_LEVEL
from d5ray.metrics.views import notebook_comparison
from d5ray.metrics.views.run_labels import Row, differences, in_words, place_of
from d5ray.names.kits import brought, parts

METRICS: Final = (*CATALOGUE, *brought("several values of a run"))
PASSING = ("load_average", "ray_memory_bytes", "ray_object_store_bytes")  # facts that differ always
MOST_SHOWN = 60  # characters of a value


@final
@dataclass(frozen=True)
class RunComparison:
    """Every metric's own verdict, and one of all together, which is wrong for equal sides in at most 5 of 100
    cases, however many metrics are compared.

    first_is, second_is: what the runs are; differing: in which settings the sides differ, with the values of
    both. incomparable: why the runs cannot be compared; then there are no differences. notes: to be known
    by whoever believes the figures. together: the second side is "worse" in one of the metrics, or "not
    worse" where any is decided; decided_by: by which metrics it is worse.
    """

    first: tuple[str, ...]
    second: tuple[str, ...]
    incomparable: tuple[str, ...]
    notes: tuple[str, ...]
    differences: tuple[MetricDifference, ...]
    together: Together = "inconclusive"
    decided_by: tuple[str, ...] = ()
    first_is: str = ""
    second_is: str = ""
    differing: tuple[tuple[str, str, str], ...] = ()

    @property
    def conclusion(self) -> tuple[str, ...]:
        """The verdict of all metrics together, as lines for people."""
        family = sum(each.adjusted_level is not None for each in self.differences)
        if not family:
            return ()
        worse = [each for each in self.differences if each.verdict in BAD]
        lines = [f"all metrics together: {self.together}"]
        if self.decided_by:
            lines[0] += f" in {_listed(worse, found=True)}"
        if alone := _listed(worse, found=False):
            lines.append(
                f"worse alone, but not together: {alone}. Of {family} metrics one can be so by chance, and "
                f"levels above {FAMILY_LEVEL:g} do not count: make more pairs of runs"
            )
        return tuple(lines)

    def _repr_html_(self) -> str:
        return notebook_comparison.comparison(self)


def _listed(worse: Iterable[MetricDifference], found: bool) -> str:
    """Metrics that are worse with their levels: those that are so among all, or those that are not."""
    return ", ".join(
        f"{each.metric} (level {each.adjusted_level:.2g})" for each in worse if each.sure == found
    )


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
            found += run_series.runs_of(run_series.find(name))
    return found


def compare(
    first: Sequence[Run],
    second: Sequence[Run],
    tolerance: float = TOLERANCE,
    metrics: Iterable[str] = METRICS,
    known: Mapping[str, Mapping[str, float]] | None = None,
) -> RunComparison:
    """The second side's runs over the first's, in pairs by the order in which they started.

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
    rows = [[run.row for run in side] for side in sides]
    told = RunComparison(
        names[0], names[1], incomparable(sides[0] + sides[1]), (), (),
        first_is=_what(rows[0]), second_is=_what(rows[1]), differing=_differing(*rows),
    )  # fmt: skip
    if told.incomparable:
        return told
    known = known or {}
    first_values, second_values = (
        [known[run.name] if run.name in known else _values(run, metrics) for run in side] for side in sides
    )
    differences, word, decided_by = together(first_values, second_values, tolerance)
    return replace(told, notes=_notes(*sides), differences=differences, together=word, decided_by=decided_by)


def _what(rows: Sequence[Row]) -> str:
    """The labels of a side's runs, each once."""
    return "; ".join(dict.fromkeys(in_words(row, short=False) for row in rows))


def _differing(first: Sequence[Row], second: Sequence[Row]) -> tuple[tuple[str, str, str], ...]:
    """The settings whose values on one side are not those on the other."""
    found = []
    for key, values in differences([*first, *second]).items():
        one, other = (tuple(dict.fromkeys(side)) for side in (values[: len(first)], values[len(first) :]))
        if set(one) != set(other):
            found.append((key, ", ".join(one), ", ".join(other)))
    return tuple(found)


def _values(run: Run, metrics: Iterable[str]) -> dict[str, float]:
    """The value of each metric that a run measured; of what has several, such as operators, each of them."""
    tables, estimates = run.tables(), dict[str, float | None]()
    several = parts("several values of a run")
    for metric in metrics:
        if metric in several:
            estimates |= several[metric](tables)
        else:
            estimates[metric] = metric_named(metric).estimate(tables).value
    return {metric: value for metric, value in estimates.items() if value is not None}


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
    if len({place_of(run.row) for run in (*first, *second)}) > 1:
        notes.append("some runs are simulated and some are real: their times are of different clocks")
    if not first[0].row["recipe_hash"]:
        notes.append("the runs come from no recipe: nothing says that they had to be alike")
    notes += _machines((*first, *second))
    return tuple(notes)


def _machines(runs: Sequence[Run]) -> list[str]:
    """The differences between the machines of the runs, and between the versions on them."""
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
