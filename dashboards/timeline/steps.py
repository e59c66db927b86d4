"""The steps of agents as slices: their parts, and who waited for whom in an exchange"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, NamedTuple, final

from d5ray.dashboards.timeline.clocks import Clocks
from d5ray.metrics.views.view import RunView

FIRST: Final = ("record", "data")  # from the beginning of a step
LAST: Final = ("forward", "backward", "exchange", "update")  # up to its end
PARTS: Final = (*FIRST, *LAST)
COUNTED: Final = ("loss", "samples", "bytes_sent", "bytes_received", "messages_sent")
STEPS_AT_ONCE: Final = 5000  # read from the tables at once


class StepPart(NamedTuple):
    """A part of a step, ns."""

    name: str
    begin: int
    end: int


@final
@dataclass(frozen=True)
class TimedStep:
    """One step of one agent, in ns. parts: how long each of `PARTS` took; facts: its counts and loss."""

    rank: int
    attempt: int
    number: int
    epoch: int | None
    phase: str
    end: int
    duration: int
    parts: Mapping[str, int]
    facts: Mapping[str, float]

    @property
    def begin(self) -> int:
        """The time at which the step began, in ns."""
        return self.end - self.duration

    @property
    def overlaps(self) -> bool:
        """True if the parts took longer than the step: some ran side by side."""
        return sum(self.parts.values()) > self.duration

    def laid_out(self) -> list[StepPart]:
        """The parts in their order: recording and data begin a step, the others end it.

        The tables have how long each took. What they leave in between is the step's own: events, and what
        its optimizer computes besides.
        """
        found, at = [], self.begin
        for name in FIRST:
            found.append(StepPart(name, at, at + self.parts[name]))
            at += self.parts[name]
        at = self.end
        behind = []
        for name in reversed(LAST):
            if name == "exchange" and self.overlaps:
                continue
            behind.append(StepPart(name, at - self.parts[name], at))
            at -= self.parts[name]
        return [part for part in (*found, *reversed(behind)) if part.end > part.begin]

    @property
    def exchange(self) -> StepPart:
        """The part of the step in which it communicated."""
        end = self.end - self.parts["update"]
        return StepPart("exchange", end - self.parts["exchange"], end)


def read(view: RunView, clocks: Clocks, first: int, last: int) -> Iterator[list[TimedStep]]:
    """The steps from the first to the last, those with the same number together; a part of them at a time."""
    names = [f"{part}_time" for part in PARTS] + [*COUNTED]
    values = ", ".join(f"max(value) filter (metric = '{name}') as \"{name}\"" for name in names)
    wanted = ", ".join(f"'{name}'" for name in ("step_time", *names))
    for low in range(first, last + 1, STEPS_AT_ONCE):
        high = min(last, low + STEPS_AT_ONCE - 1)
        found = view.ask(
            "select rank, attempt, step, node, max(epoch) as epoch, max(phase) as phase, "
            f"max(t_mono) as ended, max(value) filter (metric = 'step_time') as step_time, {values} "
            f"from samples where scope = 'agent' and step between {low} and {high} and metric in ({wanted}) "
            "group by rank, attempt, step, node having step_time is not null order by step, rank, attempt",
        )
        rows = (row for batch in found.to_batches(max_chunksize=1000) for row in batch.to_pylist())
        for _, same in groupby(rows, key=lambda row: row["step"]):
            yield [_step(row, clocks) for row in same]


def _step(row: Mapping[str, Any], clocks: Clocks) -> TimedStep:
    return TimedStep(
        rank=row["rank"],
        attempt=row["attempt"],
        number=row["step"],
        epoch=row["epoch"],
        phase=row["phase"],
        end=clocks.common(row["ended"], row["node"]),
        duration=nanoseconds(row["step_time"]),
        parts={part: nanoseconds(row[f"{part}_time"]) for part in PARTS},
        facts={name: row[name] for name in COUNTED if row[name] is not None},
    )


def nanoseconds(seconds: float | None) -> int:
    """A time of the tables in whole ns, as it was measured."""
    return 0 if seconds is None else round(seconds * 1e9)


class Wait(NamedTuple):
    """The time in ns that an agent waited in its exchange, and for whom: the last of those it needed."""

    duration: int
    behind: int  # rank


def waits(steps: Sequence[TimedStep], needed: Callable[[int, int], Iterable[int]]) -> dict[int, Wait]:
    """The waits in this step, by rank: from its own entry into the exchange to that of the last it needed.

    needed: the ranks that an agent hears of in a step. One that entered when it had left already was not
    waited for.
    """
    entered = {step.rank: step.exchange for step in steps}  # the last one may have had nothing to wait for
    found = {}
    for rank, own in entered.items():
        if own.begin == own.end:
            continue
        others = [
            (entered[other].begin, other)
            for other in needed(rank, steps[0].number)
            if other != rank and other in entered and entered[other].begin <= own.end
        ]
        if others:
            latest, other = max(others)
            if latest > own.begin:
                found[rank] = Wait(latest - own.begin, other)
    return found
