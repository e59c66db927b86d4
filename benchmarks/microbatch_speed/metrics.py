"""Metrics of micro-batches: the peak memory of a step over that of the same step on whole batches"""

from typing import Final, final

from d5ray.kits.laboratory.metrics.side_by_side import RatioOfPairs

STEP_PEAK_MEMORY: Final = "step_peak_memory"  # bytes, over what the process held before


@final
class PeakMemoryRatio(RatioOfPairs, name="peak_memory_ratio", recorded=STEP_PEAK_MEMORY):
    """A step's peak memory over that of the base, which does the same work.

    What framework, network and inputs take is not counted; the executor's parameters and gradients are.
    """

    aggregation = "largest over steps in each process, median of the log-ratio over pairs of processes"
