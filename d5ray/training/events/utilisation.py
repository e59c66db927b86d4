"""The event that measures what share of an agent's peak the training of its model takes"""

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.metrics.definitions.utilisation import MODEL_FLOPS, PEAK, TOKENS
from d5ray.operators.framework import Framework, framework_of
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.problem import gemm
from d5ray.training.datasets.samples import IGNORED, Shape
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment

# From the shapes of the parameters, by name, and the shape of a sample, to operations.
CountFlops = Callable[[Mapping[str, tuple[int, ...]], Shape], float]
SIZES: Final = (256, 512, 1024, 2048, 4096, 8192)
LEAST_SECONDS: Final = 0.01  # that a product takes, to be taken for the peak
PRODUCTS: Final = 5
SHORT: Final = ("bfloat16", "float16", "float64")  # precisions whose products have a peak of their own


@final
class MeasureUtilisation(Event):
    """Rows for `TokensPerSecond` and `ModelFlopUtilisation`.

    Every step has its tokens (labels, but for those of −100) and the operations that the model needs for its
    samples. Each call of `train` begins and ends with the agent's peak: products of square matrices of
    growing size, until one takes 10 ms, by the run's framework, device, threads and precision.

    flops: a function of the parameters' shapes, by name, and a sample's shape; it gives the operations of a
    sample's forward and backward pass, a multiplication and an addition being two.
    """

    records = (TOKENS, MODEL_FLOPS, PEAK)

    def __init__(self, flops: CountFlops) -> None:
        if not callable(flops):
            raise ConfigurationError(
                f"flops is {flops!r}: it must be a function of the parameters' shapes and a sample's shape"
            )
        self.flops = flops

    def before_run(self, moment: Moment) -> None:
        shapes = {slot.name: slot.shape for slot in moment.executor.slots}
        found: Any = self.flops(shapes, moment.dataset.sample_shape)
        if not isinstance(found, (int, float)) or not np.isfinite(found) or found <= 0:
            raise ConfigurationError(
                f"{self!r}: flops gave {found!r}: it must give the operations of a sample, more than 0"
            )
        self._of_a_sample = float(found)
        self._peak(moment)

    def after_step(self, moment: Moment) -> None:
        if moment.batch is None:
            return
        labels, step = moment.batch.labels, moment.step - 1
        ignored = labels == IGNORED if labels.dtype.names is None else np.zeros(0)  # of parts: samples count
        tokens = labels.size - int(ignored.sum())
        moment.record(TOKENS, tokens, phase="train", step=step)
        moment.record(MODEL_FLOPS, self._of_a_sample * len(labels), phase="train", step=step)

    def after_run(self, moment: Moment) -> None:
        self._peak(moment)

    def _peak(self, moment: Moment) -> None:
        dtype = moment.precision if moment.precision in SHORT else "float32"
        framework = framework_of([moment.executor.parameters])
        moment.record(PEAK, peak_flop_rate(framework, dtype), "1/s")


def peak_flop_rate(framework: Framework, dtype: str) -> float:
    """Operations a second of the quickest of five products of square matrices, as large as take 10 ms."""

    def array(descriptor: TensorDescriptor, low: float = -0.05, high: float = 0.05) -> Any:
        values = np.random.default_rng(0).uniform(low, high, descriptor.sizes)
        return framework.array(values.astype(descriptor.dtype))

    best = 0.0
    for size in SIZES:
        problem = gemm(size, size, size, "NN", dtype)
        call = problem.call(framework, array)
        seconds = min(_seconds(call, framework) for _ in range(PRODUCTS))
        best = max(best, problem.flops / seconds)
        if seconds >= LEAST_SECONDS:
            break
    return best


def _seconds(call: Callable[[], object], framework: Framework) -> float:
    framework.synchronize()
    begin = perf_counter()
    call()
    framework.synchronize()
    return perf_counter() - begin
