"""The loss of a network that predicts bytes, in bits"""

import math
from dataclasses import replace
from typing import final

from d5ray.metrics.definitions.catalogue import TestLoss
from d5ray.metrics.judge.criteria import Metric, RunTables
from d5ray.metrics.statistics.intervals import Estimate


@final
class BitsPerByte(Metric):
    """The last test loss of a network that predicts bytes, nats / ln 2; guessing takes 8 bits a byte."""

    name = "bits_per_byte"
    unit = "1"
    direction = "min"
    kind = "quality"
    aggregation = TestLoss.aggregation
    description = "bits that a byte of the test text takes"

    def reads(self) -> tuple[str, ...]:
        return TestLoss().reads()

    def estimate(self, run: RunTables) -> Estimate:
        nats = TestLoss().estimate(run)
        value, low, high = (
            None if found is None else found / math.log(2) for found in (nats.value, nats.low, nats.high)
        )
        return replace(nats, value=value, low=low, high=high)
