"""Runs operators of one framework on one device, to time them

A plain class, launched as an actor.
"""

from typing import Any, Final

import numpy as np

from d5ray.actors.executors.call_timer import FEWEST as FEWEST
from d5ray.actors.executors.call_timer import MOST as MOST
from d5ray.actors.executors.call_timer import WARMUPS as WARMUPS
from d5ray.actors.executors.call_timer import CallTimer, random_values, timed
from d5ray.actors.executors.call_timer import ProblemTiming as ProblemTiming
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.errors import first_line
from d5ray.operators.framework import Framework, class_named
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import PEAK_BYTE_RATE, PEAK_FLOP_RATE, Computation
from d5ray.ops.problem import gemm

SCALE: Final = 0.1  # of random numbers: neither overflow nor numbers too small to be normal, at any size
COPIED_BYTES: Final = {"cpu": 1 << 27, "cuda": 1 << 30}
PEAK_SIZES: Final = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192)}
PEAK_SECONDS: Final = 0.01  # that a product should take at least, to be taken for the peak
PEAK_VALUES: Final = 5


class OperatorExecutor:
    """One framework in a process of its own, so that none disturbs another's threads and memory.

    framework   by name; device: "cpu" or "cuda"; threads: on a CPU
    run_id, attempt, rank  of the rows: the run, the number of the fresh process, the framework's number
    """

    def __init__(
        self,
        framework: str,
        device: str,
        threads: int,
        run_id: str,
        attempt: int,
        rank: int,
        seed: int,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self._name, self._device, self._threads = framework, device, threads
        self._random = np.random.default_rng(seed)
        self._timer = CallTimer(repr(self), framework, run_id, attempt, rank, exporter)

    def __repr__(self) -> str:
        return f"OperatorExecutor({self._name})"

    def prepare(self) -> dict[str, str]:
        """Import the framework; gives what it is and what it computes with. Raises `ConfigurationError`."""
        self._framework: Framework = class_named(self._name).on(self._device)
        if self._device == "cpu":
            self._framework.use_threads(self._threads)
        return {
            f"{self._name}_version": self._framework.version,
            f"{self._name}_operator_threads": str(self._framework.threads),
        }

    def peaks(self, dtype: str) -> ProblemTiming:
        """Rows of the peak rates: of a product of square matrices, and of copying an array.

        A framework that cannot multiply in this type has no peak of its own, and none is recorded.
        """
        framework, timer = self._framework, self._timer
        try:
            for size in PEAK_SIZES[self._device]:
                problem = gemm(size, size, size, "NN", dtype)
                call = problem.call(framework, self._array)
                seconds = min(timed(call, framework.synchronize, PEAK_VALUES, lambda _: False))
                if seconds >= PEAK_SECONDS:
                    break
            products = timed(call, framework.synchronize, PEAK_VALUES, lambda _: False)
            source = self._array(TensorDescriptor("float32", (COPIED_BYTES[self._device] // 4,)))
            copying, most = framework.copying(source), WARMUPS + PEAK_VALUES
            copies = timed(copying, framework.synchronize, most, lambda _: False)
        except Exception as error:  # whatever a framework raises
            return ProblemTiming(timer.sent(), reason=first_line(error))
        for step, seconds in enumerate(products):
            timer.row(PEAK_FLOP_RATE, problem.flops / seconds, step, self._name)
        for step, seconds in enumerate(copies):
            rate, phase = 2 * COPIED_BYTES[self._device] / seconds, "warmup" if step < WARMUPS else "run"
            timer.row(PEAK_BYTE_RATE, rate, step, self._name, phase)
        return ProblemTiming(timer.sent(), seconds=float(np.median(products)))

    def measure(
        self, problem: Computation, seconds: float, most_seconds: float, keep: bool = False
    ) -> ProblemTiming:
        """Time a problem for about `seconds`, and at most about `most_seconds`; see `CallTimer.measure`."""
        framework = self._framework
        return self._timer.measure(
            problem,
            lambda: problem.call(framework, self._array),
            framework.synchronize,
            seconds,
            most_seconds,
            keep=keep,
        )

    def _array(self, descriptor: TensorDescriptor, low: float = -SCALE / 2, high: float = SCALE / 2) -> Any:
        """Random numbers in a block that is repeated: time does not depend on more of them."""
        return self._framework.array(random_values(self._random, descriptor, low, high))
