"""Metrics of `d5ray bench`: the time of a call, its rates, and their share of what the machine can do

Of operators, of whole networks, of loading data, and of allreduces.

Rows of `samples` name in `scope` the framework and the problem, `torch gemm 1760×16×1760 NN`, and in `rep`
the fresh process. A share is of the roofline (Williams, Waterman and Patterson, doi 10.1145/1498765.1498785):
the least time that the measured peaks of this machine allow, over the time that was taken. It can be above 1:
the operands lay in a cache, or an algorithm does without some of the operations that the definition counts.
"""

import json
from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import pyarrow.compute as pc

from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME, AllreduceTime
from d5ray.kits.laboratory.metrics.rates import SAMPLE_RATE
from d5ray.kits.laboratory.metrics.side_by_side import (
    OfAContender,
    contenders,
    times_by_pair,
)
from d5ray.metrics.judge.criteria import RunTables
from d5ray.ops.counting.measurable import BYTE_RATE as BYTE_RATE
from d5ray.ops.counting.measurable import FLOP_RATE as FLOP_RATE
from d5ray.ops.counting.measurable import PEAK_BYTE_RATE as PEAK_BYTE_RATE
from d5ray.ops.counting.measurable import PEAK_FLOP_RATE as PEAK_FLOP_RATE

OPERATOR_TIME: Final = "operator_time"
NETWORK_TIME: Final = "network_time"
LOADING_TIME: Final = "loading_time"
SHARE_OF_PEAK: Final = "share_of_peak"
OF_CALLS: Final = "median over calls in each process, median over fresh processes"


@dataclass(frozen=True)
class OfAnOperator(OfAContender, ABC):
    """Something of one problem under one framework, by the scope of its rows."""

    aggregation = OF_CALLS


@dataclass(frozen=True)
class RateOfAnOperator(OfAnOperator, ABC):
    """A rate of one problem under one framework."""

    unit = "1/s"
    direction = "max"
    kind = "rate"


@final
class OperatorTime(OfAnOperator, name=OPERATOR_TIME):
    """One call of an operator, the device synchronised."""


@final
class NetworkTime(OfAnOperator, name=NETWORK_TIME):
    """One pass of a network over one batch, in training forwards and backwards."""


@final
class LoadingTime(OfAnOperator, name=LOADING_TIME):
    """The time until the next sample or batch is there, when nothing else is computed meanwhile."""


@final
class SamplesPerSecond(RateOfAnOperator, name=SAMPLE_RATE):
    """Samples a second."""


@final
class FlopRate(RateOfAnOperator, name=FLOP_RATE):
    """Floating-point operations of the operator's definition a second."""


@final
class ByteRate(RateOfAnOperator, name=BYTE_RATE, unit="B/s"):
    """Bytes that an operator must move at least, a second."""


@final
class ShareOfPeak(OfAnOperator, name=SHARE_OF_PEAK, unit="1", direction="max", kind="ratio"):
    """The least time that this machine's measured peaks allow, over the time of a call; above 1 where the
    operands lie in a cache, or an algorithm does without operations that the definition counts.
    """


@final
class PeakFlopRate(RateOfAnOperator, name=PEAK_FLOP_RATE):
    """Floating-point operations a second in a square product of matrices."""


@final
class PeakByteRate(RateOfAnOperator, name=PEAK_BYTE_RATE, unit="B/s"):
    """Bytes read and written a second where an array is copied that no cache holds."""


OF_OPERATORS: Final[Mapping[str, type[OfAContender]]] = {
    kind.name: kind
    for kind in (
        OperatorTime, NetworkTime, LoadingTime, AllreduceTime, FlopRate, ByteRate, SamplesPerSecond,
        ShareOfPeak, PeakFlopRate, PeakByteRate,
    )
}  # fmt: skip


def allreduce_time(scope: str) -> AllreduceTime:
    """The metric of a scope that has the size in it."""
    return AllreduceTime(scope, "")


# By the metric, from whom and at what to its estimate. One of them is what a run of `d5ray bench` has timed.
TIMES: Final[Mapping[str, Callable[[str], OfAContender]]] = {
    OPERATOR_TIME: OperatorTime,
    NETWORK_TIME: NetworkTime,
    LOADING_TIME: LoadingTime,
    ALLREDUCE_TIME: allreduce_time,
}


def operator_rows() -> list[dict[str, Any]]:
    """The metrics of `d5ray bench` as rows of the table `metrics`."""
    columns = ("name", "unit", "direction", "kind", "aggregation", "description")
    return [{column: getattr(kind, column) for column in columns} for kind in OF_OPERATORS.values()]


def timed_by(job: Mapping[str, Any]) -> str:
    """The metric that a run of `d5ray bench` has timed, by the description of its job."""
    return str(job.get("metric", OPERATOR_TIME))


def times_of_operators(run: RunTables) -> dict[str, float]:
    """The time of everything that a bench measured, by its metric's label; empty for another kind of run."""
    found = {}
    metric = timed_by(_job(run))
    for scope in measured(run, metric) if metric in TIMES else ():
        value = TIMES[metric](scope).estimate(run).value
        if value is not None:
            found[f"{metric}(contender={scope})"] = value
    return found


def _job(run: RunTables) -> Mapping[str, Any]:
    rows = run["runs"].to_pylist() if "runs" in run else []
    job: Mapping[str, Any] = json.loads(rows[0]["experiment"] or "{}") if rows else {}
    return job


def peak(run: RunTables, metric: str) -> tuple[float, str] | None:
    """The machine's peak: the largest median of a process, of any framework, and whose it is.

    The largest, since whatever disturbs a process makes it slower than the machine is.
    """
    values = {scope: max(times_by_pair(run, metric, scope).values()) for scope in contenders(run, metric)}
    whose = max(values, key=lambda scope: values[scope], default=None)
    return None if whose is None else (values[whose], whose)


def measured(run: RunTables, metric: str = OPERATOR_TIME) -> list[str]:
    """The scopes of all that has a time, in order of appearance; a warm-up alone is none."""
    samples = run["samples"]
    for column, wanted in (("metric", metric), ("phase", "run")):
        samples = samples.filter(pc.equal(samples[column], wanted))
    scopes: list[str] = samples.filter(pc.is_valid(samples["value"]))["scope"].unique().to_pylist()
    return scopes


def missing(run: RunTables, metric: str = OPERATOR_TIME) -> dict[str, str]:
    """The reason by the scope of everything that was not measured."""
    samples, there = run["samples"], set(measured(run, metric))
    rows = samples.filter(
        pc.and_(pc.equal(samples["metric"], metric), pc.is_null(samples["value"], nan_is_null=False))
    )
    scopes, reasons = (rows[name].to_pylist() for name in ("scope", "status"))
    return {scope: why for scope, why in zip(scopes, reasons, strict=True) if scope not in there}
