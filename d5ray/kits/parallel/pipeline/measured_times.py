"""Times of a pipeline's pass, stage by stage, and its bubble"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, final

import numpy as np

from d5ray.kits.parallel.pipeline.actions import Action, Actions, Backward, Forward, Span
from d5ray.kits.parallel.pipeline.timetable import Timetable

Row = np.ndarray[Any, np.dtype[np.float64]]
NS = 1e-9


@final
@dataclass(frozen=True)
class StageTimes:
    """Seconds of one stage in a pass.

    compute   forward and backward passes
    send      handing over what others need, and copies to and from what travels
    wait      until there was what others make
    idle      of the whole pass, all but compute and send: the waiting, and what is before and after it
    """

    compute: float
    send: float
    wait: float
    idle: float


@final
@dataclass(frozen=True)
class PassTimes:
    """A pass over a batch as it was measured, from the first stage's begin to the last one's end.

    Stages on several nodes have clocks of their own: there a pass counts from each stage's own begin.
    """

    stages: tuple[StageTimes, ...]
    timetable: Timetable

    @property
    def seconds(self) -> float:
        """The time of the pass, from the first action's begin to the last one's end."""
        return self.timetable.seconds

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in the pass."""
        return 1 + max(span.action.micro for span in self.timetable.stages[0])

    @property
    def bubble(self) -> float:
        """The share of the pass (0..1) in which a stage is idle, on average over the stages."""
        idle = sum(stage.idle for stage in self.stages)
        return idle / (len(self.stages) * self.seconds) if self.seconds else 0.0

    def by_piece(self) -> tuple[list[float], list[float]]:
        """Mean seconds of a forward and of a backward pass in every piece, as `predicted` takes them."""
        found: list[list[float]] = []
        for kind in (Forward, Backward):
            spent: dict[int, list[float]] = defaultdict(list)
            for stage, spans in enumerate(self.timetable.stages):
                for span in spans:
                    if isinstance(span.action, kind):
                        spent[span.action.chunk * len(self.stages) + stage].append(span.seconds)
            found.append([fmean(spent[piece]) for piece in sorted(spent)])
        forward, backward = found
        return forward, backward

    def __str__(self) -> str:
        rows = [f"{'':>8} {'compute':>10} {'send':>10} {'wait':>10} {'idle':>10}  (seconds)"]
        for number, each in enumerate(self.stages):
            numbers = (each.compute, each.send, each.wait, each.idle)
            rows.append(f"stage {number:<2} " + " ".join(f"{number:>10.6f}" for number in numbers))
        return "\n".join([*rows, str(self.timetable)])


@final
class Stopwatch:
    """A stage's times in the pass under way, in ns of its scheduler's clock."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.send_ns = self.wait_ns = 0
        self.spans: list[tuple[int, int]] = []

    def row(self, end: int) -> Row:
        """The times as numbers (n,) that travel exactly: nanoseconds below 2^53."""
        spans = [moment for span in self.spans for moment in span]
        return np.array([self.begin, end, self.send_ns, self.wait_ns, *spans], np.float64)


def pass_times(name: str, actions: Actions, rows: Sequence[Row], one_clock: bool) -> PassTimes:
    """The times of a pass, from the rows of all stages' stopwatches. one_clock: they are of one clock."""
    first = min(row[0] for row in rows)
    origins = [first if one_clock else row[0] for row in rows]
    seconds = NS * max(row[1] - origin for row, origin in zip(rows, origins, strict=True))
    spans = tuple(
        _spans(own, row[4:] - origin) for own, row, origin in zip(actions, rows, origins, strict=True)
    )
    stages = []
    for row, own in zip(rows, spans, strict=True):
        compute, send = sum(span.seconds for span in own), NS * float(row[2])
        stages.append(StageTimes(compute, send, NS * float(row[3]), max(0.0, seconds - compute - send)))
    return PassTimes(tuple(stages), Timetable(name, spans, seconds))


def _spans(actions: tuple[Action, ...], moments: Row) -> tuple[Span, ...]:
    begins, ends = (NS * moments[0::2]).tolist(), (NS * moments[1::2]).tolist()
    return tuple(map(Span, actions, begins, ends))
