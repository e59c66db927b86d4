"""The metrics that d5ray measures itself, and the catalogue of them by name."""

from itertools import pairwise
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError, nearest
from d5ray.metrics.definitions.asynchrony import (
    AsynchronousThroughput,
    ClockGap,
    ConsensusDistance,
    LetterWaitTime,
    LoadBalance,
    ParameterVersion,
    PullRate,
    Pulls,
    Pushes,
    PushRate,
    ServerQueue,
    ServerWaitTime,
    Staleness,
    WindowWaitTime,
)
from d5ray.metrics.definitions.balance import Imbalance
from d5ray.metrics.definitions.families import (
    LastEvaluation,
    MetricOfRows,
    RateOfSteps,
    TimeOfAStep,
    TotalOfAnAgent,
    evaluation_of,
)
from d5ray.metrics.definitions.latency import InferenceTime
from d5ray.metrics.definitions.resources import (
    ControlGroupPeakMemory,
    DeviceEnergy,
    DevicePeakMemory,
    DeviceUtilisation,
    Energy,
    EnergyAboveIdle,
    MemoryEnergy,
    NodeTime,
    ProcessorEnergy,
    ProcessorUtilisation,
    ProcessPeakMemory,
    ProcessUtilisation,
)
from d5ray.metrics.judge.criteria import Metric
from d5ray.metrics.statistics.estimates import (
    Rows,
    edges_of,
    last_of_each,
    of_each_run,
    one_by_one,
    over_runs,
)
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.names.kits import parts


@final
class StepTime(TimeOfAStep, name="step_time"):
    """One training step, from fetching the batch to recording the result."""


@final
class DataTime(TimeOfAStep, name="data_time"):
    """The part of a step that fetches the batch."""


@final
class ForwardTime(TimeOfAStep, name="forward_time"):
    """The part of a step that computes the loss."""


@final
class BackwardTime(TimeOfAStep, name="backward_time"):
    """The part of a step that computes the gradient."""


@final
class ExchangeTime(TimeOfAStep, name="exchange_time"):
    """The part of a step that communicates, including the wait for others."""


@final
class PredictedExchangeTime(TimeOfAStep, name="predicted_exchange_time"):
    """The exchange time that latency and bandwidth predict, see d5ray doctor --network."""


@final
class UpdateTime(TimeOfAStep, name="update_time"):
    """The part of a step that changes the parameters."""


@final
class RecordTime(TimeOfAStep, name="record_time"):
    """The part of a step that measuring itself takes."""


@final
class TestAccuracy(LastEvaluation, name="test_accuracy", direction="max"):
    """The share of the test set that is classified correctly."""

    highest = 1.0


@final
class TestLoss(LastEvaluation, name="test_loss", direction="min"):
    """The mean loss over the test set."""


@final
class ValidationAccuracy(LastEvaluation, name="validation_accuracy", phase="validation", direction="max"):
    """The share of the validation split that is classified correctly."""

    highest = 1.0


@final
class ValidationLoss(LastEvaluation, name="validation_loss", phase="validation", direction="min"):
    """The mean loss over the validation split."""


@final
class BytesSent(TotalOfAnAgent, name="bytes_sent", unit="B"):
    """The bytes that an agent sent in training steps."""


@final
class BytesReceived(TotalOfAnAgent, name="bytes_received", unit="B"):
    """The bytes that an agent received in training steps."""


@final
class MessagesSent(TotalOfAnAgent, name="messages_sent", unit="1"):
    """The messages that an agent sent in training steps."""


@final
class TrainingLoss(MetricOfRows):
    """The training loss at each rank's last step, as the mean over the ranks; an exact fact of the run."""

    name = "loss"
    unit = "1"
    direction = "min"
    kind = "quality"
    aggregation = "last step of each rank, mean over ranks"
    description = "the mean loss over a training batch"

    def of(self, rows: Rows) -> Estimate:
        last = last_of_each(rows.run, rows.rank)
        return of_each_run(rows.run[last], rows.value[last], np.mean)


@final
class EvaluationTime(MetricOfRows):
    """Seconds of an evaluation, the largest over the ranks; they lie an epoch apart and count one by one."""

    name = "evaluation_time"
    unit = "s"
    direction = "min"
    kind = "cost"
    aggregation = "largest over ranks, median over evaluations"
    description = "one evaluation on the test set"
    phase = "test"

    def of(self, rows: Rows) -> Estimate:
        runs, _, seconds = rows.per(evaluation_of(rows), np.maximum)
        edges = edges_of(runs)
        if len(edges) > 2:
            return over_runs([float(np.median(seconds[a:b])) for a, b in pairwise(edges)])
        return one_by_one(seconds.tolist(), "evaluation")


@final
class Throughput(RateOfSteps, name="samples_per_second", work="samples"):
    """Training samples that all agents together process in a second.

    The time of a step is that of its slowest rank. Of agents that do not wait for each other take
    `AsynchronousThroughput`, which `d5ray show` has of them.
    """

    aggregation = "sum of samples over sum of step times"


@final
class SamplesSeen(MetricOfRows):
    """The training samples of all agents and steps, warm-up included; an exact fact of the run."""

    name = "samples"
    unit = "1"
    direction = "max"
    kind = "count"
    aggregation = "sum over steps and agents"
    description = "training samples in a step's batch"

    def of(self, rows: Rows) -> Estimate:
        return of_each_run(rows.run, rows.value, np.sum)


CATALOGUE: dict[str, type[Metric]] = {
    metric.name: metric
    for metric in (
        TrainingLoss, TestAccuracy, TestLoss, ValidationAccuracy, ValidationLoss,
        StepTime, DataTime, ForwardTime, BackwardTime, ExchangeTime,
        PredictedExchangeTime, UpdateTime,
        RecordTime, EvaluationTime, Throughput, SamplesSeen, BytesSent, BytesReceived, MessagesSent,
        Staleness, ClockGap, ServerQueue, ParameterVersion, ServerWaitTime, WindowWaitTime, LetterWaitTime,
        Pushes, Pulls, PushRate, PullRate, ConsensusDistance, LoadBalance, AsynchronousThroughput,
        Imbalance, InferenceTime, ProcessorUtilisation, ProcessUtilisation, DeviceUtilisation,
        ProcessPeakMemory, DevicePeakMemory, ControlGroupPeakMemory,
        NodeTime, ProcessorEnergy, MemoryEnergy, DeviceEnergy, Energy, EnergyAboveIdle,
        *parts("metrics").values(),
    )
}  # fmt: skip


def metric_named(name: str) -> Metric:
    """The built-in metric `name`; ConfigurationError names the nearest one if there is none.

    >>> metric_named("step_time").unit
    's'
    """
    if name not in CATALOGUE:
        raise ConfigurationError(f"There is no metric {name!r}: {nearest(name, CATALOGUE)}")
    return CATALOGUE[name]()


def catalogue_rows() -> list[dict[str, Any]]:
    """The built-in metrics as rows of the table `metrics`."""
    columns = ("name", "unit", "direction", "kind", "aggregation", "description")
    return [{column: getattr(metric, column) for column in columns} for metric in CATALOGUE.values()]
