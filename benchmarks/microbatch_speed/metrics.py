"""Metrics of micro-batches: the peak memory of a step over that of the same step on whole batches"""

from dataclasses import dataclass
from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import RatioOfPairs

STEP_PEAK_MEMORY: Final = "step_peak_memory"  # bytes, over what the process held before


@final
@dataclass(frozen=True)
class PeakMemoryRatio(RatioOfPairs):
    """How many times as much memory a step of `ours` takes at its peak as one of `base`, in pairs.

    What framework, network and inputs take is not counted; the executor's parameters and gradients are.
    """

    name = "peak_memory_ratio"
    recorded = STEP_PEAK_MEMORY
    aggregation = "largest over steps in each process, median of the log-ratio over pairs of processes"
    description = "a step's peak memory over that of the base, which does the same work"
