"""Metrics of how much of a language model is trained: tokens a second, and the share of the peak it takes"""

from typing import Final, final

import numpy as np

from d5ray.metrics.definitions.families import RateOfSteps
from d5ray.metrics.judge.criteria import RunTables
from d5ray.metrics.statistics.estimates import Floats, Integers, Rows, over_steps
from d5ray.metrics.statistics.intervals import Estimate
from d5ray.metrics.statistics.time_series import Quotient

TOKENS: Final = "tokens"
MODEL_FLOPS: Final = "model_flops"
PEAK: Final = "agent_peak_flop_rate"


@final
class TokensPerSecond(RateOfSteps):
    """The tokens that all agents train together in a second, from the rows of `MeasureUtilisation`."""

    name = "tokens_per_second"
    aggregation = "sum of tokens over sum of step times"
    description = "labels that all agents together train in a second, those that a loss ignores left out"
    work = TOKENS


@final
class ModelFlopUtilisation(RateOfSteps):
    """MFU: the operations that the model needs, over those that the agents' measured peaks allow meanwhile.

    What is computed a second time to save memory does not count (Chowdhery et al., PaLM, arXiv:2204.02311,
    appendix B). The peak is what a product of square matrices reaches on this machine, measured by every
    agent beside the others, see `MeasureUtilisation`; the best that an agent has measured counts. So it is of
    real runs: times of a simulation are not the machine's.
    """

    name = "model_flop_utilisation"
    unit = "1"
    aggregation = "sum of the model's operations over sum of step times and over the sum of the agents' peaks"
    description = "operations that the model needs, over those that the measured peaks of its agents allow"
    work = MODEL_FLOPS

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), PEAK)

    def rate(self, run: RunTables, runs: Integers, done: Floats, seconds: Floats) -> Estimate:
        if _is_simulated(run):
            return Estimate(None, reason="unavailable: times of a simulation are not those of this machine")
        peaks = Rows(run, PEAK)
        if not len(peaks):
            return Estimate(None, reason=peaks.why_none(PEAK))
        together = np.zeros(int(max(runs.max(), peaks.run.max())) + 1)
        for number in range(len(together)):
            own = peaks.run == number
            agents = np.unique(peaks.rank[own])
            together[number] = sum(peaks.value[own & (peaks.rank == rank)].max() for rank in agents)
        if not together[runs].all():
            return Estimate(None, reason=f"unavailable: a run has no row of {PEAK}")
        return over_steps(runs, Quotient(done, seconds * together[runs]), "steps")


def _is_simulated(run: RunTables) -> bool:
    """True if the times of the run, or of one of several, are virtual."""
    if "environment" not in run:
        return False
    facts = run["environment"].select(["key", "value"]).to_pylist()
    return {"key": "communicator", "value": "simulated"} in facts
