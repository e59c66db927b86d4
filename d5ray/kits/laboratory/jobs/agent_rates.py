"""Trainings whose steps are equal, and the rates of their agents, from what each recorded at every step"""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.errors import AgentError, ConfigurationError
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.contenders import RankSeries
from d5ray.kits.laboratory.metrics.rates import AGENT_STEP_TIME, SAMPLE_RATE
from d5ray.metrics.definitions.catalogue import SamplesSeen, StepTime
from d5ray.training.datasets.dataset import Dataset, Split


def whole_batches(dataset: Dataset, batch: int) -> Dataset:
    """The data set with as many training samples as fill whole batches, so that all steps are equal."""
    samples = len(dataset.train) // batch * batch
    if samples == 0:
        raise ConfigurationError(
            f"the data set {dataset.name!r} has {len(dataset.train)} training samples, one step of all "
            f"agents takes {batch}: choose a smaller batch_size"
        )
    train = Split(dataset.train.inputs[:samples], dataset.train.labels[:samples])
    return Dataset(dataset.name, train, dataset.test, dataset.classes)


def on_agents(experiment: Experiment, steps: int, folder: Path) -> list[RankSeries]:
    """The rates of agents on Ray."""
    from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

    with launch(experiment, quiet=True, root=folder) as group:
        group.train(steps, progress=False)
        return rates(group.metrics())


def rates(samples: pa.Table) -> list[RankSeries]:
    """Every agent's times of its own steps, and the samples it trained a second in them.

    Counted are the steps after the warm-up that ended while all agents trained: one that is slow goes on
    alone when the others are done. Raises `AgentError` where an agent has none.
    """
    steps = samples.filter(pc.equal(samples["phase"], "train"))
    by_rank = [("rank", "ascending"), ("step", "ascending")]
    times, counts = (
        steps.filter(pc.equal(steps["metric"], metric)).sort_by(by_rank)
        for metric in (StepTime.name, SamplesSeen.name)
    )
    rank, ended = times["rank"].to_numpy(), times["t_mono"].to_numpy()
    ranks = np.unique(rank)
    together = ended <= min(ended[rank == own].max() for own in ranks)
    found = []
    for own in map(int, ranks):
        counted = (rank == own) & together
        seconds, trained = times["value"].to_numpy()[counted], counts["value"].to_numpy()[counted]
        if not len(seconds):
            raise AgentError(f"agent {own} ended no step before another one was done: let all do more steps")
        found.append(RankSeries(AGENT_STEP_TIME, "s", own, seconds.tolist()))
        found.append(RankSeries(SAMPLE_RATE, "1/s", own, [float(trained.sum() / seconds.sum())]))
    return found
