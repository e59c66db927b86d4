"""Runs a recipe's job: launches the experiment, trains, judges, and completes the run's folder."""

import contextlib
from pathlib import Path
from typing import Protocol

from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.group.training import TrainingRun
from d5ray.actors.launch import launch
from d5ray.dashboards.terminal import run_tables
from d5ray.distributed.faults.plan import Faults
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import Recipe, Result, judged, overall

NO_FAULTS = Faults()


class Begin(Protocol):
    """A maker of an experiment's agents: `launch`, `simulate`, or one of them with some arguments."""

    def __call__(self, experiment: Experiment, /, *, origin: RunOrigin) -> TrainingRun:
        """Start the agents, ready to train."""


class Job(Protocol):
    """A recipe's job other than a training: a dataclass with this method."""

    def run(self, recipe: Recipe, origin: RunOrigin, address: str | None, quiet: bool) -> Result:
        """Do the job and judge it by the recipe's metrics."""


def run(
    recipe: Recipe,
    *,
    address: str | None,
    quiet: bool,
    series: str = "",
    resume: str | Path | None = None,
    flight: str | None = None,
    faults: Faults = NO_FAULTS,
    by: Begin | None = None,
) -> Result:
    """Run the recipe's job to its verdict.

    series: the name of that which the run is a part of; resume: the checkpoint that it goes on from;
    flight: [HOST:]PORT where the run answers queries; faults: what happens to it by plan; by: what makes
    agents of an experiment, in the place of `launch` with all of these.
    """
    job: Experiment | Job = recipe.made()
    origin = RunOrigin(**recipe.described(), series=series)
    if by is not None:
        assert isinstance(job, Experiment)
        return _trained(recipe, by(job, origin=origin), quiet)
    if isinstance(job, Experiment):
        return train(recipe, job, origin, address, quiet, resume, flight, faults)
    if resume is not None:
        raise ConfigurationError(
            f"--resume {resume}: the recipe {recipe.name} is no training that could go on: leave it out"
        )
    if flight is not None:
        raise ConfigurationError(
            f"--flight {flight}: the recipe {recipe.name} is no training of agents: leave it out, and ask "
            "its folder: d5ray sql last"
        )
    if faults:
        raise ConfigurationError(
            f"--faults {faults}: the recipe {recipe.name} is no training of agents: leave it out"
        )
    return job.run(recipe, origin, address, quiet)


def train(
    recipe: Recipe,
    experiment: Experiment,
    origin: RunOrigin,
    address: str | None,
    quiet: bool,
    resume: str | Path | None = None,
    flight: str | None = None,
    faults: Faults = NO_FAULTS,
) -> Result:
    """A training on Ray agents; Ctrl-C ends it, keeps what was measured and leaves the verdict open."""
    group = launch(
        experiment, address=address, origin=origin, quiet=quiet, resume=resume, flight=flight, faults=faults
    )
    return _trained(recipe, group, quiet)


def _trained(recipe: Recipe, begun: TrainingRun, quiet: bool) -> Result:
    with begun as group:
        if not quiet and isinstance(group, TrainingGroup):
            run_tables.announce(group)
        with contextlib.suppress(KeyboardInterrupt):
            group.train(progress=not quiet)
        return close(recipe, group)


def close(recipe: Recipe, group: TrainingRun) -> Result:
    """Judge a training that has ended, and close it."""
    outcome = group.outcome
    verdicts = judged(recipe.criteria, group.tables(), outcome.status)
    verdict = overall(verdicts, outcome.status)
    group.close(verdict=verdict, verdicts=table_of("verdicts", [v.row for v in verdicts]))
    return Result(
        recipe=recipe,
        run_id=group.run_id,
        folder=group.folder,
        verdict=verdict,
        verdicts=verdicts,
        status=outcome.status,
        reason=outcome.reason,
        startup_seconds=group.startup_seconds,
    )
