"""CallTimer: times calls until enough is known, and makes rows of them; no Ray in it"""

import math
import platform
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, final

import numpy as np
import pyarrow as pa

from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.errors import first_line
from d5ray.metrics.definitions.catalogue import Throughput
from d5ray.metrics.record.recorder import Recorder
from d5ray.operators.framework import Call
from d5ray.operators.tensors.tensor_descriptor import TensorDescriptor
from d5ray.ops.counting.measurable import BYTE_RATE, FLOP_RATE, UNITS, Measurable

WARMUPS: Final = 2  # calls before anything counts: the first compiles, chooses an algorithm, fills caches
FEWEST, MOST = 5, 100  # values of a problem in one process
CALIBRATED_SECONDS: Final = 1e-3
SHORT_SECONDS, SAMPLE_SECONDS = 1e-4, 1e-2  # shorter calls are repeated until a value covers so much
BLOCK: Final = 1 << 20  # random numbers that the inputs repeat


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


@final
class CallTimer:
    """The rows of one contender in one fresh process.

    agent           who measures; contender: what stands first in the scope of rows
    rank, attempt   of the rows: the contender's number, the number of the fresh process
    """

    def __init__(
        self,
        agent: str,
        contender: str,
        run_id: str,
        attempt: int,
        rank: int,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self._contender, self._attempt = contender, attempt
        self._batches = list[pa.RecordBatch]()
        self._steps: Counter[tuple[str, str]] = Counter()  # of a scope and a phase until now
        self._kept: dict[str, Call] = {}
        exporter = exporter or silent()
        self._recorder = Recorder(
            run_id=run_id,
            agent=agent,
            rank=rank,
            node=platform.node(),
            attempt=attempt,
            send=exporter.watched(self._batches.append),
        )
        for name, unit in (UNITS | {Throughput.name: Throughput.unit}).items():
            self._recorder.declare(name, unit)
        exporter.start()

    def measure(
        self,
        problem: Measurable,
        made: Callable[[], Call],
        synchronize: Call,
        seconds: float,
        most_seconds: float,
        *,
        keep: bool = False,
    ) -> ProblemTiming:
        """Time a problem for about `seconds`, at least five calls, and at most about `most_seconds`.

        made: gives the call that does it once. synchronize: returns when all that was called is done.
        keep: the call, for the next time that the problem is measured; its rows are numbered on.
        The first calls are recorded as warm-up. What cannot be done gives a row without a value and a reason.
        """
        scope, began = self._scope(problem), perf_counter()
        try:
            call = self._kept.get(problem.name) or made()
            if keep:
                self._kept[problem.name] = call
            begin = perf_counter()
            warm = timed(call, synchronize, WARMUPS, lambda found: (perf_counter() - begin) > most_seconds)
            if min(warm) < CALIBRATED_SECONDS:  # how often it must be repeated no single call can tell
                warm += timed(call, synchronize, FEWEST, lambda _: False)
            for step, value in self._numbered(scope, "warmup", warm):
                self.row(problem.metric, value, step, scope, "warmup", level=problem.level)
            expected = min(warm)
            if len(warm) < WARMUPS or FEWEST * expected > most_seconds:
                reason = (
                    f"{FEWEST} calls of {expected:.2g} s take longer than the {most_seconds:.2g} s for each"
                )
                self.skip(problem, f"time: {reason}")
                return ProblemTiming(self.sent(), call_seconds=expected, reason=f"time: {reason}")
            loops = 1 if expected >= SHORT_SECONDS else max(1, round(SAMPLE_SECONDS / expected))
            begin = perf_counter()

            def enough(found: list[float]) -> bool:
                passed = perf_counter() - begin
                return (len(found) >= FEWEST and passed >= seconds) or passed > most_seconds

            values = timed(call, synchronize, MOST, enough, loops)
        except Exception as error:  # whatever a framework raises: too little memory, a type that it has not
            reason = f"{type(error).__name__}: {first_line(error)}"
            self.skip(problem, reason)
            return ProblemTiming(self.sent(), call_seconds=perf_counter() - began, reason=reason)
        self.values(problem, values, loops)
        return ProblemTiming(self.sent(), float(np.median(values)), expected)

    def values(self, problem: Measurable, values: list[float], loops: int) -> None:
        """Rows of the times of calls, and of the rates that are known."""
        scope = self._scope(problem)
        for step, value in self._numbered(scope, "run", values):
            rates = {
                problem.metric: value,
                FLOP_RATE: problem.flops / value,  # 0 where they are not known
                BYTE_RATE: problem.moved_bytes / value,
                Throughput.name: problem.batch / value if problem.level in (1, 2) else 0.0,
            }
            for metric, each in rates.items():
                if each:
                    self.row(metric, each, step, scope, loops=loops, level=problem.level)

    def _scope(self, problem: Measurable) -> str:
        """The scope of a problem's rows, for which its time is declared."""
        self._recorder.declare(problem.metric, "s")
        return f"{self._contender} {problem.name}"

    def _numbered(self, scope: str, phase: str, values: list[float]) -> Iterator[tuple[int, float]]:
        """The values with their steps, which go on from the last time."""
        first = self._steps[scope, phase]
        self._steps[scope, phase] += len(values)
        return enumerate(values, first)

    def skip(self, problem: Measurable, reason: str) -> None:
        """A row without a value that says why."""
        self._recorder.record(
            problem.metric,
            None,
            scope=self._scope(problem),
            level=problem.level,
            rep=self._attempt,
            status=f"unavailable: {reason}",
            source="unavailable",
        )

    def row(
        self,
        metric: str,
        value: float,
        step: int,
        scope: str,
        phase: str = "run",
        loops: int = 1,
        level: int = 0,
    ) -> None:
        """A measured value."""
        self._recorder.record(
            metric,
            value,
            step=step,
            phase=phase,
            scope=scope,
            level=level,
            rep=self._attempt,
            loops=loops,
        )

    def sent(self) -> tuple[pa.RecordBatch, ...]:
        """The rows since the last time."""
        self._recorder.flush()
        batches = tuple(self._batches)
        self._batches.clear()
        return batches


def timed(
    call: Call, synchronize: Call, most: int, enough: Callable[[list[float]], bool], loops: int = 1
) -> list[float]:
    """Seconds of a call, each the mean over that many calls, the device having done all of them."""
    found: list[float] = []
    synchronize()
    while len(found) < most and not enough(found):
        begin = perf_counter()
        for _ in range(loops):
            call()
        synchronize()
        found.append((perf_counter() - begin) / loops)
    return found


def random_values(
    random: np.random.Generator, descriptor: TensorDescriptor, low: float, high: float
) -> np.ndarray[Any, Any]:
    """Numbers from low to high in the descriptor's type; a block of them is repeated."""
    dtype = descriptor.dtype
    block: np.ndarray[Any, Any]
    if dtype.kind in "iub":
        block = random.integers(round(low), round(high), BLOCK, endpoint=True)
    else:
        block = random.random(BLOCK, dtype=np.float32) * np.float32(high - low) + np.float32(low)
    values = np.empty(math.prod(descriptor.sizes), dtype)
    whole = len(values) // BLOCK * BLOCK
    values[:whole].reshape(-1, BLOCK)[:] = block
    values[whole:] = block[: len(values) - whole]
    return values.reshape(descriptor.sizes)
