"""The check that everything a recipe's criteria are about will be measured, made before anything starts"""

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from d5ray.agent.records import EVALUATION_METRICS, PEER_METRICS, PREDICTED, STEP_METRICS, VALIDATION_METRICS
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.parameter_server.client import SERVER_METRICS
from d5ray.errors import ConfigurationError, nearest
from d5ray.experiment import Experiment
from d5ray.metrics.definitions import resources
from d5ray.metrics.definitions.asynchrony import ConsensusDistance
from d5ray.metrics.definitions.utilisation import MODEL_FLOPS, PEAK, TOKENS
from d5ray.metrics.judge.criteria import Criterion, Metric
from d5ray.names.kits import brought
from d5ray.training.events.evaluations import INFERENCE_TIME

CONTENDERS = ("ours", "base", "contender")  # fields of a metric that name one
OF_NODES = (
    resources.ProcessorUtilisation, resources.ProcessUtilisation, resources.DeviceUtilisation,
    resources.ProcessPeakMemory, resources.DevicePeakMemory, resources.ControlGroupPeakMemory,
    resources.NodeTime, resources.ProcessorEnergy, resources.MemoryEnergy, resources.DeviceEnergy,
)  # fmt: skip


def check_measured(criteria: Iterable[Criterion], job: object) -> None:
    """Raise `ConfigurationError` for a criterion that no row of this job could decide.

    The original gives such a metric a silent failure after the training. A metric of the user's own is asked
    for its rows by `reads()`; one that does not say is let pass.
    """
    for criterion in criteria:
        if isinstance(job, Experiment):
            _of_experiment(criterion, job)
        elif hasattr(job, "check_criterion"):
            job.check_criterion(criterion)


def _of_experiment(criterion: Criterion, experiment: Experiment) -> None:
    metric = criterion.metric
    if criterion.relation == ">=" and criterion.target > metric.highest:
        raise ConfigurationError(
            f"METRICS has {criterion}, which nothing can reach: {metric.name} is at most {metric.highest:g}"
        )
    if (named := contenders_in(metric)) and type(metric).__module__.startswith("d5ray."):
        raise ConfigurationError(
            f"METRICS has {metric.label}, which compares contenders ({', '.join(named)}), but the recipe "
            "trains one experiment: take a metric such as StepTime(), or a job such as StepTimes"
        )
    assert isinstance(experiment.events, tuple)
    known = {name for event in experiment.events for name in event.records}
    known |= set(STEP_METRICS) | set(PREDICTED)  # the prediction where the network was measured once
    lacking: dict[tuple[str, ...], tuple[bool, str]] = {
        EVALUATION_METRICS: (experiment.evaluate, "set evaluate=True"),
        VALIDATION_METRICS[:2]: (
            experiment.evaluate and experiment.validates,
            "give the data set a split to validate on, such as dataset_kwargs={'validation': 0.1}",
        ),
        SERVER_METRICS: (
            ExchangeVia.SERVERS in experiment.distributed_optimizer.exchange,
            "take an optimizer with servers, such as ASGD()",
        ),
        PEER_METRICS: (
            ExchangeVia.PEERS in experiment.distributed_optimizer.exchange,
            "take an optimizer with peers, such as ADPSGD()",
        ),
        **{
            (name,): (experiment.agents_per_replica > 1, remedy)
            for name, remedy in brought("agents that share a network record").items()
        },
        (INFERENCE_TIME,): (INFERENCE_TIME in known, "add MeasureInference() to the events"),
        (TOKENS, MODEL_FLOPS, PEAK): (TOKENS in known, "add MeasureUtilisation(flops) to the events"),
        **{
            (name,): (name in known, f"add {event} to the events")
            for name, event in brought("events that record").items()
        },
        tuple(kind.name for kind in OF_NODES): (
            experiment.recording.monitor_seconds > 0,
            "set monitor_seconds=1",
        ),
    }
    for names, (recorded, _) in lacking.items():
        if recorded:
            known |= set(names)
    if not experiment.loss.classifies:
        known.discard("test_accuracy")
        lacking["test_accuracy",] = (False, f"{experiment.loss!r} has no accuracy, take another metric")
    if isinstance(metric, ConsensusDistance) and not experiment.distributed_optimizer.asynchronous:
        raise ConfigurationError(
            f"METRICS has {metric.label}, but the agents of {experiment.distributed!r} wait for each other "
            "at every step, and nobody looks how far apart they are: take an optimizer such as ADPSGD()"
        )
    for name in metric.reads():
        if name not in known:
            remedies = [what for names, (recorded, what) in lacking.items() if name in names and not recorded]
            remedy = next(iter(remedies), "")
            raise ConfigurationError(
                f"METRICS has {metric.label}, but this experiment records no {name}: "
                + (remedy or nearest(name, known))
            )


def contenders_in(metric: Metric) -> dict[str, str]:
    """The contenders that a metric names, by field."""
    values: dict[str, Any] = {field.name: getattr(metric, field.name) for field in fields(metric)}
    return {name: value for name, value in values.items() if name in CONTENDERS and isinstance(value, str)}
