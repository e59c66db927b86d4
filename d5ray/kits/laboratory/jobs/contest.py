"""The job that compares optimizers: what each of them needs to reach the targets of several workloads"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from d5ray.checks import check_kind
from d5ray.errors import ConfigurationError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import Comparison, SideBySide
from d5ray.kits.laboratory.jobs.workloads import AttemptCurve, Workload, train_to_target
from d5ray.kits.laboratory.metrics.performance_profiles import (
    EVALUATED_STEP,
    SAMPLES_TO_TARGET,
    STEPS_TO_TARGET,
    TIME_TO_TARGET,
    TRAINED_TIME,
)
from d5ray.metrics.definitions.catalogue import TestAccuracy, TestLoss
from d5ray.recipes.engine.parsing import settings
from d5ray.training.optimizers.optimizer import Optimizer

ATTEMPT_SECONDS = 3600.0  # for one process to reach its target, or not
SEPARATORS = (", ", "[", "]")  # in the names of contenders


@final
@dataclass(frozen=True, kw_only=True)
class Contest(SideBySide):
    """Every optimizer × workload, round after round with another seed, each in a process of its own.

    Wrong values raise `ConfigurationError`.

    workloads   by name: what is trained, and the target
    optimizers  by name: update rules, or their text such as 'AdamW(0.002)'; each is taken for all workloads
    pairs       how many seeds: seed, seed + 1, and so on; 3 or more, since the median counts
    """

    comparisons: tuple[Comparison, ...] = ()  # follow from the others
    workloads: Mapping[str, Workload]
    optimizers: Mapping[str, Optimizer]
    pairs: int = 3
    name: str = "contest"

    cpus = 0  # outside Ray

    def __post_init__(self) -> None:
        if self.comparisons:
            raise ConfigurationError("comparisons follow from workloads and optimizers: leave them out")
        for name in ("workloads", "optimizers"):
            _check_names(name, getattr(self, name))
        made = {
            name: settings.component(f"optimizers[{name!r}]", Optimizer, given, (), {}, {})
            for name, given in self.optimizers.items()
        }
        object.__setattr__(self, "optimizers", made)
        object.__setattr__(self, "workloads", dict(self.workloads))
        super().__post_init__()

    def check(self) -> None:
        for name, workload in self.workloads.items():
            check_kind(f"workloads[{name!r}]", workload, Workload, "a Workload(...)")
            for optimizer in self.optimizers.values():
                workload.experiment(optimizer, self.seed)  # checks the rest

    def datasets(self) -> dict[str, tuple[str, Mapping[str, Any]]]:
        return {name: (one.dataset, one.dataset_kwargs) for name, one in self.workloads.items()}

    def contenders(self) -> list[AnyContender]:
        return [Tries(optimizer, workload) for workload in self.workloads for optimizer in self.optimizers]

    def interleaved(self) -> Iterator[tuple[int, AnyContender]]:
        """The order of entries: in every other round the last is first on each workload; seed by round."""
        for pair in range(self.most_pairs):
            for workload in self.workloads:
                names = list(self.optimizers)
                for optimizer in names if pair % 2 == 0 else reversed(names):
                    yield pair, Tries(optimizer, workload, self.seed + pair)


@final
@dataclass(frozen=True)
class Tries(Contender[Contest]):
    """One optimizer on one workload, both by their names in the job."""

    optimizer: str
    workload: str
    seed: int = 0
    processes: int = 1

    @property
    def name(self) -> str:
        return f"{self.optimizer}, {self.workload}[{self.processes}]"

    def measure(self, job: Contest, folder: Path) -> list[RankSeries]:
        from d5ray.actors.shipping import ship  # noqa: PLC0415 - imports Ray

        workload = job.workloads[self.workload]
        experiment = workload.experiment(job.optimizers[self.optimizer], self.seed)
        work = partial(train_to_target, ship(experiment), workload.target, workload.steps, workload.every)
        (curve,) = processes.measured(work, folder, self.processes, ATTEMPT_SECONDS)
        return series_of(curve)


def series_of(curve: AttemptCurve) -> list[RankSeries]:
    """The learning curve, and what it took to the target: infinitely much where it was missed."""
    parts = (
        (EVALUATED_STEP, "1", curve.steps),
        (TRAINED_TIME, "s", curve.seconds),
        (TestAccuracy.name, TestAccuracy.unit, [found.accuracy for found in curve.found]),
        (TestLoss.name, TestLoss.unit, [found.loss for found in curve.found]),
    )
    needed = (
        (STEPS_TO_TARGET, "1", curve.steps),
        (TIME_TO_TARGET, "s", curve.seconds),
        (SAMPLES_TO_TARGET, "1", curve.samples),
    )
    return [
        *(RankSeries(metric, unit, 0, values, phase="test") for metric, unit, values in parts),
        *(
            RankSeries(metric, unit, 0, [values[-1] if curve.reached else math.inf], phase="run")
            for metric, unit, values in needed
        ),
    ]


def _check_names(what: str, given: object) -> None:
    """Raise `ConfigurationError` unless this is a dictionary under names that tables can be made of."""
    example = "{'AdamW': AdamW(0.002)}" if what == "optimizers" else "{'lenet': Workload(...)}"
    if not isinstance(given, Mapping) or not given:
        raise ConfigurationError(f"{what} is {given!r}: it must be a dictionary such as {example}")
    for name in given:
        if not isinstance(name, str) or not name or any(mark in name for mark in SEPARATORS):
            raise ConfigurationError(
                f"{what} has the name {name!r}: it must be a text without ', ' and brackets, as in {example}"
            )
