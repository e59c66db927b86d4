"""Metrics, criteria (a metric compared with a number), and the verdict on a run"""

import math
import numbers
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, final, get_args

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.checks import KnownKeywords
from d5ray.display import notebook_html
from d5ray.errors import ConfigurationError, D5Error, first_line
from d5ray.identity.canonical import canonical
from d5ray.identity.checkout import is_benchmark
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.views import notebook

RunTables = Mapping[str, pa.Table]  # from the table's name to the table, as `Run.tables()` returns it
Relation = Literal[">=", "<="]
Direction = Literal["min", "max", "target"]
Kind = Literal["cost", "rate", "ratio", "quality", "count"]

KINDS = get_args(Kind)
EXAMPLES = {  # what a class of a metric says
    "name": "slow_steps", "unit": "1", "direction": "min", "kind": "ratio", "aggregation": "share over steps",
    "description": "steps of more than twice the median",
}  # fmt: skip
MODEL = "model"  # the source of a value that was computed from other facts instead of measured

# The relation that makes sense for each direction; a metric with a target can be bounded on either side.
_GOOD: dict[str, tuple[Relation, ...]] = {"max": (">=",), "min": ("<=",), "target": (">=", "<=")}


@dataclass(frozen=True)
class Metric(KnownKeywords, ABC):
    """A quantity of a run, with a unit and a direction; `metric >= 0.97` is a criterion.

    A class defines its properties by attributes, or in one line, if another class computes it:
    `class StepTime(TimeOfAStep, name="step_time")`. Its description is then the start of its docstring.
    """

    __test__: ClassVar[bool] = False  # TestLoss is no test class, whatever pytest thinks of its name
    name: ClassVar[str]
    unit: ClassVar[str]  # SI: s, B, J, W, 1, 1/s
    direction: ClassVar[Direction]
    kind: ClassVar[Kind]
    aggregation: ClassVar[str]
    description: ClassVar[str]
    highest: ClassVar[float] = math.inf  # that it can be; a share is at most 1

    def __init_subclass__(cls, **row: str) -> None:
        super().__init_subclass__()
        for attribute, value in row.items():
            setattr(cls, attribute, value)
        if "name" in row and "description" not in cls.__dict__ and cls.__doc__:
            said = " ".join(cls.__doc__.partition("\n\n")[0].split()).removesuffix(".")
            cls.description = said[:1].lower() + said[1:]
            cls.__doc__ += f"\n\n    Unit {cls.unit}; {cls.aggregation}.\n"

    @abstractmethod
    def estimate(self, run: RunTables) -> Estimate:
        """The value of this metric in the tables of `run`; None with a reason if they have no data for it."""

    def reads(self) -> tuple[str, ...]:
        """The metrics whose rows this one uses; empty if unknown.

        A recipe that will not record one of them is refused before anything starts.
        """
        return ()

    def __bool__(self) -> bool:
        raise _no_truth(self)

    @final
    @property
    def label(self) -> str:
        """The name, with what tells it from others of its class: `recording_share(contender=d5ray[1])`."""
        own = ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))
        return f"{self.name}({own})" if own else self.name

    def __ge__(self, target: float) -> "Criterion":
        return Criterion(self, ">=", target)

    def __le__(self, target: float) -> "Criterion":
        return Criterion(self, "<=", target)

    def __gt__(self, target: float) -> "Criterion":
        raise ConfigurationError(f"{self} > {target}: a criterion includes its bound, write >= instead of >")

    def __lt__(self, target: float) -> "Criterion":
        raise ConfigurationError(f"{self} < {target}: a criterion includes its bound, write <= instead of <")


@final
@dataclass(frozen=True)
class Criterion:
    """`metric relation target`, for instance `StepTime() <= 0.02`, with the target in the metric's unit."""

    metric: Metric
    relation: Relation
    target: float

    def __post_init__(self) -> None:
        _check_complete(self.metric)
        if not _is_number(self.target) or not math.isfinite(self.target):
            raise ConfigurationError(
                f"{self.metric} {self.relation} {self.target!r}: a criterion needs a finite number "
                f"in the metric's unit ({self.metric.unit})"
            )
        allowed = _GOOD[self.metric.direction]
        if self.relation not in allowed:
            better = "larger" if self.metric.direction == "max" else "smaller"
            raise ConfigurationError(
                f"{self} points the wrong way: {better} is better for {self.metric.name}, "
                f"so write {self.metric} {allowed[0]} {self.target}"
            )
        object.__setattr__(self, "target", float(self.target))

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {self.target}"

    def __bool__(self) -> bool:
        raise _no_truth(self)

    def described(self) -> dict[str, Any]:
        """The criterion as JSON data, for the `runs` table; `criterion_of` makes it again."""
        return _whose(type(self.metric).__module__) | {
            "metric": self.metric.name,
            "arguments": {f.name: canonical(getattr(self.metric, f.name)) for f in fields(self.metric)},
            "label": self.metric.label,
            "unit": self.metric.unit,
            "relation": self.relation,
            "target": self.target,
        }

    def judge(self, run: RunTables) -> "Verdict":
        """PASS if the whole interval is on the good side of the target, FAIL if wholly on the bad side.

        In between the data do not decide, and the verdict is INCONCLUSIVE; so it is without data, and
        without an interval, unless the value is an exact fact of the run, or the target is so far from the
        run's steps that they decide by a margin. NaN fails.
        """
        found = _estimated(self.metric, run)
        verdict, reason = self._decide(found)
        measured = without_models(run)
        if measured is not run and _estimated(self.metric, measured) != found:
            verdict, reason = "INCONCLUSIVE", "it rests on values of a model, and only measured ones decide"
        return Verdict(
            run_id=_run_id(run),
            metric=self.metric.label,
            unit=self.metric.unit,
            relation=self.relation,
            target=self.target,
            value=found.value,
            low=found.low,
            high=found.high,
            n=found.n,
            sample_unit=found.sample_unit,
            verdict=verdict,
            reason=reason,
        )

    def _decide(self, found: Estimate) -> tuple[Literal["PASS", "FAIL", "INCONCLUSIVE"], str]:
        if found.value is None:
            return "INCONCLUSIVE", found.reason or "unavailable"
        if math.isnan(found.value):
            return "FAIL", found.reason or "not a number"
        if found.exact:
            return ("PASS" if self._holds(found.value) else "FAIL"), found.reason
        known = found.low is not None and found.high is not None
        good = {self._holds(bound) for bound in (found.low, found.high) if bound is not None}
        if known and len(good) == 1:
            return ("PASS" if good == {True} else "FAIL"), found.reason
        if found.steps is not None and (how := found.steps.beside(self.target)):
            return ("PASS" if self._holds(found.value) else "FAIL"), how
        inside = "the target lies inside the confidence interval"
        return "INCONCLUSIVE", found.reason or (inside if known else "no confidence interval")

    def _holds(self, value: float) -> bool:
        return value >= self.target if self.relation == ">=" else value <= self.target


@final
@dataclass(frozen=True)
class Verdict:
    """A row of the table `verdicts`; `run_id` is empty when several runs were judged together."""

    run_id: str
    metric: str
    unit: str
    relation: Relation
    target: float
    value: float | None
    low: float | None
    high: float | None
    n: int
    sample_unit: str
    verdict: Literal["PASS", "FAIL", "INCONCLUSIVE"]
    reason: str

    @property
    def row(self) -> dict[str, Any]:
        """The verdict as one row for `table_of("verdicts", …)`."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return notebook_html.block(notebook.criteria([self.row]), notebook_html.small(self.reason))


def as_criterion(item: object) -> Criterion:
    """`item` as a criterion; a pair `(metric, number)` is bounded in the metric's own direction.

    Raises ConfigurationError for anything else, and for a pair whose metric could be bounded either way.
    """
    if isinstance(item, Criterion):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], Metric):
        metric, target = item
        allowed = _GOOD[metric.direction]
        if len(allowed) == 1:
            return Criterion(metric, allowed[0], target)
        raise ConfigurationError(f"({metric}, {target}) does not say which side is good: write >= or <=")
    raise ConfigurationError(
        f"{item!r} is not a criterion: write a metric with a bound, such as TestAccuracy() >= 0.97"
    )


def _estimated(metric: Metric, run: RunTables) -> Estimate:
    """What a metric makes of a run; one of the user's that fails says so as its reason: the run is done."""
    if not _whose(type(metric).__module__).get("own"):
        return metric.estimate(run)
    try:
        found: Any = metric.estimate(run)
    except D5Error:
        raise
    except Exception as error:
        failed = f"{type(metric).__name__}.estimate failed: {type(error).__name__}: {first_line(error)}"
        return Estimate(None, reason=failed)
    if isinstance(found, Estimate):
        return found
    if _is_number(found):
        why = "a number without an interval: give Estimate(value, low, high), or Estimate(value, exact=True)"
        return Estimate(float(found), reason=why)
    why = f"{type(metric).__name__}.estimate gave {type(found).__name__}, not d5.metrics.Estimate"
    return Estimate(None, reason=why)


def _no_truth(what: object) -> ConfigurationError:
    """The error for `A >= 0.5 and B <= 0.1` and its like, of which Python keeps one part."""
    return ConfigurationError(
        f"{what} has no truth value before a run: of `and`, `or`, `not` and a chain of comparisons one part "
        "alone would be left; give each criterion by itself, as METRICS = [A >= 0.5, B <= 0.1]"
    )


def _whose(module: str) -> dict[str, Any]:
    """The record of where a metric is defined: nothing of d5ray's, the module of a benchmark's."""
    if module.startswith("d5ray."):
        return {}
    return {"module": module} if is_benchmark(module) else {"own": True}


def _check_complete(metric: Metric) -> None:
    """Raise `ConfigurationError` where a user's class lacks what a comparison needs to know."""
    kind = type(metric).__name__
    if missing := [name for name in EXAMPLES if not isinstance(getattr(metric, name, None), str)]:
        raise ConfigurationError(
            f"the metric {kind} does not say its {', '.join(missing)}: write in its class, for example, "
            f"{'; '.join(f'{name} = {EXAMPLES[name]!r}' for name in missing)}; a kind is one of "
            f"{', '.join(map(repr, KINDS))}"
        )
    for name, known in (("direction", tuple(_GOOD)), ("kind", KINDS)):
        if getattr(metric, name) not in known:
            raise ConfigurationError(
                f"the metric {kind} has the {name} {getattr(metric, name)!r}: it must be one of "
                f"{', '.join(map(repr, known))}"
            )


def without_models(run: RunTables) -> RunTables:
    """The tables without those values of `samples` that a model gave; the same object if there are none."""
    if "samples" not in run:
        return run
    samples = run["samples"]
    modelled = pc.equal(samples["source"], MODEL)
    if not pc.any(modelled).as_py():
        return run
    return {**run, "samples": samples.filter(pc.invert(modelled))}


def _is_number(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _run_id(run: RunTables) -> str:
    """The run that the tables are about; empty if they are about none, or about several."""
    for name in ("runs", "samples"):
        if name in run and run[name].num_rows:
            names = run[name]["run_id"].unique().to_pylist()
            return str(names[0]) if len(names) == 1 else ""
    return ""
