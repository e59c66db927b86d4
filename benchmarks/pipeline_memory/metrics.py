"""Metrics of trainings within a limit of memory, side by side: who stays within it, and trains alike"""

from dataclasses import dataclass
from typing import Final, final

import numpy as np

from benchmarks.microbatch_speed.metrics import STEP_PEAK_MEMORY
from d5ray.metrics.definitions.catalogue import TrainingLoss
from d5ray.metrics.definitions.side_by_side import ByPair, OfAContender, over_processes, rows_of
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate

OUT_OF_MEMORY: Final = "out_of_memory"  # 1 where a training ended since there was no more memory, else 0


@final
@dataclass(frozen=True)
class PeakMemoryOf(OfAContender):
    """The most memory that a contender's process takes for its part of the training.

    What the process held before (framework, data) is not counted; parameters, gradients, the optimizer's
    state and activations are.
    """

    name = "peak_memory"
    recorded = STEP_PEAK_MEMORY
    unit = "B"
    aggregation = "largest over ranks, median over fresh processes"
    description = "what the training takes at its peak in one process"


@final
@dataclass(frozen=True)
class OutOfMemory(OfAContender):
    """1 where the limit of memory ended a contender's training, 0 where it came to its end."""

    name = OUT_OF_MEMORY
    unit = "1"
    direction = "max"
    kind = "count"
    aggregation = "median over fresh processes"
    description = "whether this contender does not fit into its memory"


@final
@dataclass(frozen=True)
class LossDeviation(Metric):
    """How far the losses of `ours` are from those of `base`, which trains on the same batches.

    |ours − base| / |base|, the largest over the steps. The first agent's count.
    """

    ours: str
    base: str

    name = "loss_deviation"
    unit = "1"
    direction = "min"
    kind = "ratio"
    aggregation = "largest over steps, median over pairs of fresh processes"
    description = "the relative difference of the losses of two trainings on the same batches"

    def estimate(self, run: RunTables) -> Estimate:
        ours, base = (_losses(run, contender) for contender in (self.ours, self.base))
        apart: ByPair = {}
        for pair in ours.keys() & base.keys():
            steps = ours[pair].keys() & base[pair].keys()
            apart[pair] = max(abs(ours[pair][step] / base[pair][step] - 1) for step in steps)
        return over_processes(run, dict(sorted(apart.items())), self.ours if base else self.base)


def _losses(run: RunTables, contender: str) -> dict[int, dict[int, float]]:
    """The first agent's, by pair and step."""
    rows = rows_of(run, TrainingLoss.name, contender)
    found: dict[int, dict[int, float]] = {}
    columns = (rows[name].to_numpy() for name in ("rank", "rep", "step", "value"))
    for rank, pair, step, value in zip(*columns, strict=True):
        if rank == 0:
            found.setdefault(int(pair), {})[int(step)] = float(np.float64(value))
    return found
