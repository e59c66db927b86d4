"""The findings of a search: every trial in a table, the best settings, and the verdict on them"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import pyarrow as pa

from d5ray.display import notebook_html
from d5ray.identity.canonical import canonical
from d5ray.metrics.judge.run_series import RunSeries
from d5ray.metrics.views import notebook
from d5ray.recipes.engine.recipe import Result

COMPLETED = "completed"


@final
@dataclass(frozen=True)
class Tuned:
    """The result of a search. True exactly when the best settings passed with fresh seeds.

    settings: the best, by key; best: the run that had them. value: its metric, which luck has made better
    than it will be again. trials: a row each, with the run, its settings and its metric, also of those that
    failed. study: the runs of the search as a series. result: what the best settings came to with other
    seeds, which is what counts.
    """

    settings: Mapping[str, Any]
    best: str
    metric: str
    value: float
    trials: pa.Table
    study: RunSeries
    result: Result

    @property
    def verdict(self) -> str:
        """PASS, FAIL or INCONCLUSIVE, of the best settings with fresh seeds."""
        return self.result.verdict

    @property
    def row(self) -> dict[str, Any]:
        """The findings as JSON data."""
        return {
            "series": self.study.name,
            "metric": self.metric,
            "value": self.value,
            "best": self.best,
            "settings": canonical(dict(self.settings)),
            "trials": self.trials.to_pylist(),
            "judged": self.result.run_id,
            "verdict": self.verdict,
            "exit_code": self.result.exit_code,
            "criteria": [verdict.row for verdict in self.result.verdicts],
        }

    def __bool__(self) -> bool:
        return bool(self.result)

    def _repr_html_(self) -> str:
        chosen = ", ".join(f"{key} = {value!r}" for key, value in self.settings.items())
        return notebook_html.block(
            notebook_html.small(f"{self.trials.num_rows} trials, the best: {chosen}"),
            notebook_html.title(self.result.recipe.name, self.study.name, notebook_html.word(self.verdict)),
            notebook.criteria([verdict.row for verdict in self.result.verdicts]),
        )


@final
@dataclass(frozen=True)
class TrialOutcome:
    """A trial as its run tells of it. value: its metric, if it has one; reason: why it ended so."""

    settings: Mapping[str, Any]
    run: str
    status: str
    value: float | None
    steps: int | None
    reason: str


def table_of(outcomes: Sequence[TrialOutcome], keys: Sequence[str], metric: str) -> pa.Table:
    """The trials as a table: numbers stay numbers, everything else is written as in Python."""
    columns: dict[str, pa.Array] = {
        "trial": pa.array(range(len(outcomes)), pa.int64()),
        "run": pa.array([each.run or None for each in outcomes], pa.utf8()),
        "status": pa.array([each.status for each in outcomes], pa.utf8()),
        metric: pa.array([each.value for each in outcomes], pa.float64()),
        "steps": pa.array([each.steps for each in outcomes], pa.int64()),
    }
    for key in keys:
        columns[key] = _column([each.settings.get(key) for each in outcomes])
    columns["reason"] = pa.array([each.reason or None for each in outcomes], pa.utf8())
    return pa.table(columns)


def best_of(outcomes: Sequence[TrialOutcome], mode: str) -> TrialOutcome | None:
    """The best of the trials that trained to their end, or of all, if none did; None without a value."""
    valued = [each for each in outcomes if each.value is not None and each.value == each.value]
    whole = [each for each in valued if each.status == COMPLETED]
    choose = max if mode == "max" else min
    return choose(whole or valued, key=lambda each: each.value or 0.0, default=None)


def _column(values: list[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    for kinds_of, made in (({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())):
        if kinds and kinds <= kinds_of:
            return pa.array(values, made)
    return pa.array([None if v is None else v if isinstance(v, str) else repr(v) for v in values], pa.utf8())
