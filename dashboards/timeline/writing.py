"""Writes a run's timeline into a file: the steps that are asked for, and what happened between them"""

import gzip
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, final

from d5ray.checks import check_count
from d5ray.dashboards.timeline import agents, operations, steps
from d5ray.dashboards.timeline.clocks import Clocks, RecorderClock
from d5ray.dashboards.timeline.messages import Messages
from d5ray.dashboards.timeline.needed import needed_in
from d5ray.dashboards.timeline.trace import Trace
from d5ray.dashboards.timeline.tracks import Tracks
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.files import replacing
from d5ray.metrics.record.reader import Run
from d5ray.metrics.views.view import RunView

MOST_STEPS: Final = 500  # unless others are asked for: two agents' are about a megabyte
OF_STEPS: Final = "metric = 'step_time' and scope = 'agent' and value is not null"
NOTES: Final = {
    "parts": "how long each part of a step took is measured; their order within it is the usual one",
    "waits": "from an agent's entry into an exchange to that of the last agent that it needed",
    "servers": "a request is shown in the middle of what its agent's times and its turn leave open",
}


@final
@dataclass(frozen=True)
class Written:
    """The extent of a timeline: its first and last step, of those from `low` to `high`; its events."""

    first: int
    last: int
    low: int
    high: int
    events: int


def write(run: Run, file: Path, first: int = 0, last: int | None = None, most: int = MOST_STEPS) -> Written:
    """Write the steps from the first to the last as a trace in JSON; without a last one at most `most`.

    A file that ends in .gz is compressed, which Perfetto reads too. It appears when it is complete, in the
    place of what stood there. Raises `ConfigurationError` where there is no such step, `StorageError` where
    the file cannot be written.
    """
    for name, value in (("--from", first), ("--to", last), ("--steps", most)):
        if value is not None:
            check_count(name, value, low=0)
    with RunView(run) as view:
        low, high = _range(view)
        begin, end = max(first, low), high if last is None else min(last, high)
        if begin > end:
            asked = f"--from {first}" + ("" if last is None else f" --to {last}")
            raise ConfigurationError(f"{run.name} has no step in {asked}: it has the steps {low} to {high}")
        if last is None and most:
            end = min(end, begin + most - 1)
        with _text(file) as text:
            events = _write(view, text, begin, end)
    return Written(begin, end, low, high, events)


def _write(view: RunView, text: IO[str], first: int, last: int) -> int:
    row, clocks = view.row, Clocks(_recorders(view))
    begin, end = _times(view, clocks, first, last)
    trace = Trace(text, origin=begin)
    tracks = Tracks(trace, view.name, row["agents"] or 0)
    needed, meet = needed_in(view), _meet(view)
    for same in steps.read(view, clocks, first, last):
        waited = steps.waits(same, needed) if meet else {}
        for done in same:
            agents.step(tracks, done, waited.get(done.rank))
        agents.arrows(tracks, same, waited)
    agents.evaluations(tracks, view, clocks, first, last)
    agents.epochs(tracks, view, clocks, first, last)
    agents.events(tracks, view, clocks, first, last, begin, end)
    Messages(tracks, operations.shards_of(view)).write(view, clocks, first, last)
    trace.close(
        run=view.name, recipe=row["recipe"], status=row["status"], steps=f"{first} to {last}", **NOTES
    )
    return trace.events


def _range(view: RunView) -> tuple[int, int]:
    found = view.ask(f"select min(step) as low, max(step) as high from samples where {OF_STEPS}")
    low, high = (found[name][0].as_py() for name in ("low", "high"))
    if low is None:
        raise ConfigurationError(
            f"the run {view.name} has no step of an agent: a timeline is made of the steps of a training"
        )
    return low, high


def _recorders(view: RunView) -> list[RecorderClock]:
    found = view.ask(
        "select rank, agent, attempt, node, max(epoch_ns(t_wall) - t_mono) as shift from samples "
        f"where {OF_STEPS} group by rank, agent, attempt, node order by rank, attempt",
    )
    return [RecorderClock(*row.values()) for row in found.to_pylist()]


def _times(view: RunView, clocks: Clocks, first: int, last: int) -> tuple[int, int]:
    """The begin of the first step, or of what was asked of servers in it, and the end of the last; ns."""
    found = view.ask(
        "select node, min(t_mono - cast(round(value * 1e9) as bigint)) as low, max(t_mono) as high from "
        f"samples where {OF_STEPS} and step between {first} and {last} group by node",
    )
    rows = found.to_pylist()
    begins = [clocks.common(row["low"], row["node"]) for row in rows]
    asked = view.ask(
        "select epoch_ns(t_wall) - t_mono as shift, "
        "min(t_mono - cast(round(duration * 1e9) as bigint)) as low "
        f"from events where name in ({operations.NAMED}) and step between {first} and {last} group by shift",
    )
    begins += [clocks.of_event(row["low"], row["shift"]) for row in asked.to_pylist()]
    return min(begins), max(clocks.common(row["high"], row["node"]) for row in rows)


def _meet(view: RunView) -> bool:
    """True if agents wait for each other in their exchanges: not where servers or windows are asked."""
    of_others = f"name = 'train' or name in ({operations.NAMED})"
    found = view.ask(f"select count(*) as n from (select 1 from events where {of_others} limit 1)")
    return bool(found["n"][0].as_py() == 0)


@contextmanager
def _text(file: Path) -> Iterator[IO[str]]:
    """The file's text; a compressed one has no time and no name in it: the same run gives the same file."""
    with replacing(file) as temporary:
        if file.suffix == ".gz":
            with (
                temporary.open("wb") as raw,
                gzip.GzipFile("", "wb", compresslevel=5, fileobj=raw, mtime=0) as packed,
                io.TextIOWrapper(packed, encoding="utf-8") as text,
            ):
                yield text
        else:
            with temporary.open("w", encoding="utf-8") as text:
                yield text
