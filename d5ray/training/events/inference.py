"""The event that measures the time of an inference of the trained network"""

from time import perf_counter_ns
from typing import final

import numpy as np

from d5ray.checks import check_count
from d5ray.networks.executors.trees import Tree, mapped
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.datasets.samples import Subset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment

INFERENCE_TIME = "inference_time"
WARM_UP = 10  # calls that are not recorded
MOST_CALLS = 1_000_000  # one after the other, at every evaluation


@final
class MeasureInference(Event):
    """Times inferences on test samples at the end of each call of `train`: rows of `inference_time`.

    The time is from a batch in host memory to its scores there, on every agent, one call after the other;
    batches are the test split's samples in their order, repeated if necessary. `InferenceTime` and
    `InferenceLatency(0.99)` use the slowest agent of each call.

    batch_size: 1 gives the latency of a single sample. calls: the number of recorded calls; p99 with its
    interval needs 3,680.
    """

    records = (INFERENCE_TIME,)

    def __init__(self, batch_size: int = 1, calls: int = 1000) -> None:
        check_count("batch_size", batch_size)
        check_count("calls", calls, high=MOST_CALLS)
        self.batch_size = batch_size
        self.calls = calls

    def after_run(self, moment: Moment) -> None:
        test = moment.dataset.test
        if not moment.completed or not len(test):
            return
        batches = -(-len(test) // self.batch_size)
        kept: dict[int, Tree] = {}  # so that reading is not measured
        for call in range(-WARM_UP, self.calls):
            number = call % batches
            if number not in kept:
                kept[number] = self._batch(moment, number)
            begin = perf_counter_ns()
            moment.executor.inference(kept[number])
            seconds = (perf_counter_ns() - begin) * 1e-9
            if call >= 0:
                moment.record(INFERENCE_TIME, seconds, "s", phase="test", step=call)

    def _batch(self, moment: Moment, number: int) -> Tree:
        """Samples (batch, ...) as the network gets them; the last batch may be smaller."""
        first = number * self.batch_size
        indices = np.arange(first, min(first + self.batch_size, len(moment.dataset.test)), dtype=np.int64)
        inputs, _ = next(pieces_to_test(Subset(moment.dataset.test, indices), moment.transformations))
        return mapped(np.ascontiguousarray, inputs)
