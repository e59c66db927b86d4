"""Subject of a report: runs, put together where they differ in nothing but the seed"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, final

import pyarrow as pa

from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.judge import run_series
from d5ray.metrics.judge.comparison import runs_named
from d5ray.metrics.judge.criteria import Metric
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.schema import TABLES, checked
from d5ray.metrics.statistics.estimates import over_runs
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.views.run_labels import PASSING, described, labels, place_of
from d5ray.metrics.views.view import RunView

KEPT_ROWS: Final = 400_000  # of a run, so that a metric that several others are made of is read once


@final
class Member:
    """One run, and what it came to; asked for when it is needed, and kept."""

    def __init__(self, run: Run) -> None:
        self.run, self.name = run, run.name
        self.view = RunView(run)
        self.row = self.view.row
        self._estimates: dict[str, Estimate] = {}
        self._kept: dict[str, pa.Table] = {}

    @cached_property
    def described(self) -> dict[str, Any]:
        """The description of what the run ran, as data."""
        return described(self.row)

    @cached_property
    def measured(self) -> dict[str, str]:
        """The unit of every metric that has values."""
        rows = self.view.ask(
            "SELECT metric, any_value(unit) AS unit FROM samples WHERE value IS NOT NULL GROUP BY metric "
            "ORDER BY metric"
        )
        return dict(zip(rows["metric"].to_pylist(), rows["unit"].to_pylist(), strict=True))

    def tables(self, metrics: Iterable[str]) -> dict[str, pa.Table]:
        """The tables with the rows of these metrics alone, in the store's own types."""
        rows = [self._rows(name) for name in metrics] or [TABLES["samples"].empty_table()]
        return {"samples": pa.concat_tables(rows).unify_dictionaries(), **self._small}

    def _rows(self, metric: str) -> pa.Table:
        """The rows of one metric; the last ones that were asked for are kept."""
        if metric in self._kept:
            return self._kept[metric]
        asked = self.view.ask("SELECT * FROM samples WHERE metric = $metric", metric=metric)
        rows = checked(asked, TABLES["samples"])
        self._kept[metric] = rows
        while len(self._kept) > 1 and sum(table.num_rows for table in self._kept.values()) > KEPT_ROWS:
            del self._kept[next(iter(self._kept))]
        return rows

    @cached_property
    def _small(self) -> dict[str, pa.Table]:
        """The tables that metrics need besides."""
        asked = {name: self.view.ask(f"SELECT * FROM {name}") for name in ("runs", "events", "metrics")}
        return {name: checked(table, TABLES[name]) for name, table in asked.items()}

    def estimate(self, metric: Metric) -> Estimate:
        """The run's value of this metric."""
        if metric.label not in self._estimates:
            reads = metric.reads()
            lacking = [name for name in reads if name not in self.measured]
            if lacking:
                found = Estimate(None, reason=f"unavailable: no row of {lacking[0]} was recorded")
            else:
                found = metric.estimate(self.tables(reads))
            self._estimates[metric.label] = found
        return self._estimates[metric.label]

    @cached_property
    def values(self) -> dict[str, float]:
        """The values of all metrics of the catalogue that the run has."""
        found = {name: self.estimate(kind()).value for name, kind in CATALOGUE.items()}
        return {name: value for name, value in found.items() if value is not None}

    def close(self) -> None:
        """Close the run's view, and its tables."""
        self.view.close()


def listed(texts: Iterable[str]) -> str:
    """Texts as a list of SQL, never an empty one.

    >>> listed(["step_time", "it's"])
    "'step_time', 'it''s'"
    """
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts) or "NULL"


@final
@dataclass(frozen=True)
class Setting:
    """Runs of one experiment: a setting, tried with one seed or several. label: what tells it from others."""

    label: str
    members: tuple[Member, ...]
    _estimates: dict[str, Estimate] = field(default_factory=dict)

    @property
    def one(self) -> Member:
        """Any member, for what all have in common."""
        return self.members[0]

    def estimate(self, metric: Metric) -> Estimate:
        """The value of a run's metric; of several as a series is judged, each one process of every agent."""
        if len(self.members) == 1:
            return self.one.estimate(metric)
        if metric.label not in self._estimates:
            self._estimates[metric.label] = self._together(metric)
        return self._estimates[metric.label]

    def _together(self, metric: Metric) -> Estimate:
        found = [member.estimate(metric) for member in self.members]
        values = {at: each.value for at, each in enumerate(found) if each.value is not None}
        if len(values) < 2:
            return found[next(iter(values), 0)]
        if not metric.reads():  # it looks at events, which are each run's own
            return over_runs(list(values.values()))
        return metric.estimate(self.tables(metric.reads()))

    def tables(self, metrics: Iterable[str]) -> dict[str, pa.Table]:
        """The rows of these metrics of all runs, as those of a series."""
        names = list(metrics)
        return run_series.joined([member.tables(names) for member in self.members])


@final
@dataclass
class Subject:
    """The runs of a report. series: those among what was named, for their joint verdicts."""

    settings: tuple[Setting, ...]
    series: tuple[RunSeries, ...] = ()
    notes: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[Member]:
        """The runs, setting by setting."""
        return [member for setting in self.settings for member in setting.members]

    def label(self, member: Member) -> str:
        """The words that tell this run from the others."""
        setting = next(each for each in self.settings if member in each.members)
        return setting.label if len(setting.members) == 1 else f"{setting.label}, seed {member.row['seed']}"

    def close(self) -> None:
        """Give back what the runs hold."""
        for member in self.members:
            member.close()


def subject_of(names: Sequence[str]) -> Subject:
    """The runs that these texts name: runs, series, `a,b`, `a*`; see `runs_named`.

    Runs that a text names together stay together, where they differ in the seed alone; so do those named one
    by one. Raises `ConfigurationError` for a name that fits nothing, `StorageError` for a run that cannot be
    read.
    """
    if not names:
        raise ConfigurationError("there is nothing to report on: name a run, such as last")
    found: list[tuple[str, Run]] = []
    kept: list[RunSeries] = []
    for text in names:
        if "*" not in text and "," not in text and isinstance(named := run_series.find(text), RunSeries):
            kept.append(named)
            found += [(text, run) for run in named.runs]
        else:
            runs = sorted(runs_named(text), key=lambda run: str(run.row["started"]))
            found += [(text if len(runs) > 1 else "", run) for run in runs]
    once = {run.folder.resolve(): (text, run) for text, run in reversed(found)}
    if not once:
        raise ConfigurationError(f"{', '.join(names)} has no run yet: there is nothing to report on")
    members = []
    try:
        for text, run in reversed(once.values()):
            members.append((text, Member(run)))
        return Subject(_settings(members), tuple(kept))
    except BaseException:
        for _, member in members:
            member.close()
        raise


def _settings(members: Sequence[tuple[str, Member]]) -> tuple[Setting, ...]:
    groups: dict[tuple[str, str], list[Member]] = {}
    for text, member in members:
        groups.setdefault((text, _setting_of(member)), []).append(member)
    firsts = [alike[0].row for alike in groups.values()]
    told = labels(firsts, [text for text, _ in groups])
    return tuple(
        Setting(label, tuple(sorted(alike, key=lambda member: str(member.row["started"]))))
        for label, alike in zip(told, groups.values(), strict=True)
    )


def _setting_of(member: Member) -> str:
    row = member.row
    found = {name: value for name, value in member.described.items() if name not in PASSING}
    return json.dumps([row["recipe"], row["recipe_hash"], place_of(row), found], sort_keys=True)
