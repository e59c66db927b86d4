"""Runs operators of one framework on one device: some to time them, or a piece of a network beside others

A plain class, launched as an actor.
"""

import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from d5ray.actors.executors.piece_holder import HoldsPiece
from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.errors import first_line
from d5ray.metrics.definitions.operator_calls import (
    BYTE_RATE,
    FLOP_RATE,
    OF_OPERATORS,
    OPERATOR_TIME,
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
)
from d5ray.metrics.record.recorder import Recorder
from d5ray.operators.framework import Call, Framework, class_named
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.deepbench import problems
from d5ray.ops.problem import FORWARD, Problem

WARMUPS: Final = 2  # calls before anything counts: the first compiles, chooses an algorithm, fills caches
FEWEST, MOST = 5, 100  # values of a problem in one process
CALIBRATED_SECONDS: Final = 1e-3
SHORT_SECONDS, SAMPLE_SECONDS = 1e-4, 1e-2  # shorter calls are repeated until a value covers so much
BLOCK: Final = 1 << 20  # random numbers that the inputs repeat
SCALE: Final = 0.1  # of them: neither overflow nor numbers too small to be normal, at any size
COPIED_BYTES: Final = {"cpu": 1 << 27, "cuda": 1 << 30}
PEAK_SIZES: Final = {"cpu": (256, 512, 1024, 2048), "cuda": (1024, 2048, 4096, 8192)}
PEAK_SECONDS: Final = 0.01  # that a product should take at least, to be taken for the peak
PEAK_VALUES: Final = 5


@final
@dataclass(frozen=True)
class ProblemTiming:
    """The measurement of a problem: the median time of a call, or why there is none; the rows, as batches.

    call_seconds: what a call took that was not warm, also of a problem that takes too long.
    """

    rows: tuple[pa.RecordBatch, ...]
    seconds: float | None = None
    call_seconds: float | None = None
    reason: str = ""


class OperatorExecutor(HoldsPiece):
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
        super().__init__(framework, threads, rank, seed)
        self._device = device
        self._attempt, self._batches = attempt, list[pa.RecordBatch]()
        self._random = np.random.default_rng(seed)
        exporter = exporter or silent()
        self._recorder = Recorder(
            run_id=run_id,
            agent=repr(self),
            rank=rank,
            node=platform.node(),
            attempt=attempt,
            send=exporter.watched(self._batches.append),
        )
        for name, kind in OF_OPERATORS.items():
            self._recorder.declare(name, kind.unit)
        exporter.start()

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
        try:
            for size in PEAK_SIZES[self._device]:
                problem = problems.gemm(size, size, size, "NN", dtype)
                call = self._call(problem)
                seconds = min(self._timed(call, PEAK_VALUES, lambda _: False))
                if seconds >= PEAK_SECONDS:
                    break
            products = self._timed(call, PEAK_VALUES, lambda _: False)
            source = self._array(TensorDescriptor("float32", (COPIED_BYTES[self._device] // 4,)))
            copies = self._timed(self._framework.copying(source), WARMUPS + PEAK_VALUES, lambda _: False)
        except Exception as error:  # whatever a framework raises
            return ProblemTiming(self._sent(), reason=first_line(error))
        for step, seconds in enumerate(products):
            self._row(PEAK_FLOP_RATE, problem.flops / seconds, step, self._name)
        for step, seconds in enumerate(copies):
            rate, phase = 2 * COPIED_BYTES[self._device] / seconds, "warmup" if step < WARMUPS else "run"
            self._row(PEAK_BYTE_RATE, rate, step, self._name, phase)
        return ProblemTiming(self._sent(), seconds=float(np.median(products)))

    def measure(self, problem: Problem, seconds: float, most_seconds: float) -> ProblemTiming:
        """Time a problem for about `seconds`, at least five calls, and at most about `most_seconds`.

        The first calls are recorded as warm-up. What cannot be done gives a row without a value and a reason.
        """
        scope, began = f"{self._name} {problem.name}", perf_counter()
        try:
            call = self._call(problem)
            begin = perf_counter()
            warm = self._timed(call, WARMUPS, lambda found: (perf_counter() - begin) > most_seconds)
            if min(warm) < CALIBRATED_SECONDS:  # how often it must be repeated no single call can tell
                warm += self._timed(call, FEWEST, lambda _: False)
            for step, value in enumerate(warm):
                self._row(OPERATOR_TIME, value, step, scope, "warmup")
            expected = min(warm)
            if len(warm) < WARMUPS or FEWEST * expected > most_seconds:
                reason = (
                    f"{FEWEST} calls of {expected:.2g} s take longer than the {most_seconds:.2g} s for each"
                )
                self.skip(scope, f"time: {reason}")
                return ProblemTiming(self._sent(), call_seconds=expected, reason=f"time: {reason}")
            loops = 1 if expected >= SHORT_SECONDS else max(1, round(SAMPLE_SECONDS / expected))
            begin = perf_counter()

            def enough(found: list[float]) -> bool:
                passed = perf_counter() - begin
                return (len(found) >= FEWEST and passed >= seconds) or passed > most_seconds

            values = self._timed(call, MOST, enough, loops)
        except Exception as error:  # whatever a framework raises: too little memory, a type that it has not
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.skip(scope, reason)
            return ProblemTiming(self._sent(), call_seconds=perf_counter() - began, reason=reason)
        for step, value in enumerate(values):
            self._row(OPERATOR_TIME, value, step, scope, loops=loops)
            self._row(FLOP_RATE, problem.flops / value, step, scope, loops=loops)
            self._row(BYTE_RATE, problem.moved_bytes / value, step, scope, loops=loops)
        return ProblemTiming(self._sent(), float(np.median(values)), expected)

    def skip(self, scope: str, reason: str) -> None:
        """A row without a value that says why."""
        status = f"unavailable: {reason}"
        self._recorder.record(
            OPERATOR_TIME, None, scope=scope, level=0, rep=self._attempt, status=status, source="unavailable"
        )

    def _call(self, problem: Problem) -> Call:
        framework = self._framework
        function = framework.built(problem.context)
        inputs = [None if each is None else self._array(each) for each in problem.inputs]
        if problem.of == FORWARD:
            return framework.inference(function, inputs)
        return framework.training(function, inputs, self._array(problem.output))

    def _array(self, descriptor: TensorDescriptor) -> Any:
        """Random numbers in a block that is repeated: time does not depend on more of them."""
        block = (self._random.random(BLOCK, dtype=np.float32) - 0.5) * SCALE
        values = np.empty(math.prod(descriptor.sizes), descriptor.dtype)
        whole = len(values) // BLOCK * BLOCK
        values[:whole].reshape(-1, BLOCK)[:] = block
        values[whole:] = block[: len(values) - whole]
        return self._framework.array(values.reshape(descriptor.sizes))

    def _timed(
        self, call: Call, most: int, enough: Callable[[list[float]], bool], loops: int = 1
    ) -> list[float]:
        """Seconds of a call, each the mean over that many calls, the device having done all of them."""
        found: list[float] = []
        synchronize = self._framework.synchronize
        synchronize()
        while len(found) < most and not enough(found):
            begin = perf_counter()
            for _ in range(loops):
                call()
            synchronize()
            found.append((perf_counter() - begin) / loops)
        return found

    def _row(
        self, metric: str, value: float, step: int, scope: str, phase: str = "run", loops: int = 1
    ) -> None:
        self._recorder.record(
            metric,
            value,
            step=step,
            phase=phase,
            scope=scope,
            level=0,
            rep=self._attempt,
            loops=loops,
        )

    def _sent(self) -> tuple[pa.RecordBatch, ...]:
        self._recorder.flush()
        batches = tuple(self._batches)
        self._batches.clear()
        return batches
