"""The operations of agents at servers and peers, as a run's events have them, and when each had its turn"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, final

import numpy as np
import numpy.typing as npt

from d5ray.dashboards.timeline.clocks import Clocks
from d5ray.dashboards.timeline.steps import nanoseconds
from d5ray.dashboards.timeline.trace import Track
from d5ray.distributed.simulation.arrival_order import SERVER_KINDS, WINDOW_KINDS
from d5ray.metrics.views.view import RunView

Integers = npt.NDArray[np.int64]
KINDS: Final = (*SERVER_KINDS, *WINDOW_KINDS, "post", "collect")
NAMED: Final = ", ".join(f"'{kind}'" for kind in KINDS)  # in a query
AT_ONCE: Final = 10_000  # rows


class AgentOperation(NamedTuple):
    """One operation of an agent; times in ns. waited: of it, for others or for its turn at the servers.

    orders: by shard, its turn there; places: (window, turn) of each that it reached; messages: (source,
    number) of each that was received, (receiver, number) of the one that was sent.
    """

    rank: int
    kind: str
    number: int
    step: int
    begin: int
    end: int
    waited: int
    orders: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    messages: tuple[tuple[int, int], ...]
    facts: dict[str, Any]


@final
@dataclass
class Served:
    """The operations that came to one place, a shard or a window: their turns, and where they are drawn."""

    turn: list[int] = field(default_factory=list)
    rank: list[int] = field(default_factory=list)
    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    kind: list[str] = field(default_factory=list)
    track: list[Track] = field(default_factory=list)

    def add(self, turn: int, operation: AgentOperation, track: Track) -> None:
        """Take notice of the turn of an operation, which is drawn there."""
        self.turn.append(turn)
        self.rank.append(operation.rank)
        self.begin.append(operation.begin)
        self.end.append(operation.end)
        self.kind.append(operation.kind)
        self.track.append(track)

    def slices(self) -> Iterator[tuple[int, int, int]]:
        """(place in these lists, begin, end) of each, turn by turn; none begins before the last one ended.

        The tables have when an operation began and ended at its agent, and its turn. It is shown in the
        middle of the bounds that these leave, until the next one comes or its agent has the reply.
        """
        places = np.argsort(self.turn, kind="stable")
        begins, ends = (np.array(times, np.int64)[places] for times in (self.begin, self.end))
        came, latest = turns(begins, ends)
        over = np.minimum(latest, np.r_[came[1:], latest[-1:]])
        yield from zip(places.tolist(), came.tolist(), over.tolist(), strict=True)


def turns(begins: Integers, ends: Integers) -> tuple[Integers, Integers]:
    """The time at which each had its turn, in the middle of its bounds, and its latest end; both grow.

    Whoever has a turn came no earlier than those before it had begun, and no later than those after it had
    ended.

    begins, ends: (operations,), ns at the agents, in the order of the turns.

    >>> came, latest = turns(np.array([0, 5, 1]), np.array([9, 8, 20]))
    >>> came.tolist(), latest.tolist()
    ([4, 6, 12], [8, 8, 20])
    """
    earliest = np.maximum.accumulate(begins)
    latest = np.maximum(np.minimum.accumulate(ends[::-1])[::-1], earliest)
    return (earliest + latest) // 2, latest


def read(view: RunView, clocks: Clocks, first: int, last: int) -> Iterator[AgentOperation]:
    """Every operation of these steps, by agents and in the order in which they ended."""
    found = view.ask(
        "select rank, name, step, t_mono, epoch_ns(t_wall) - t_mono as shift, duration, detail from events "
        f"where name in ({NAMED}) and step between {first} and {last} order by rank, t_mono",
    )
    for batch in found.to_batches(max_chunksize=AT_ONCE):
        for row in batch.to_pylist():
            detail, end = json.loads(row["detail"]), clocks.of_event(row["t_mono"], row["shift"])
            yield AgentOperation(
                rank=row["rank"],
                kind=row["name"],
                number=detail["number"],
                step=row["step"],
                begin=end - nanoseconds(row["duration"]),
                end=end,
                waited=nanoseconds(detail.get("waited")),
                orders=tuple(detail.get("orders", ())),
                places=tuple(map(tuple, detail.get("places", ()))),
                messages=tuple(map(tuple, detail.get("letters", ()))),
                facts={name: detail[name] for name in ("versions", "staleness") if name in detail},
            )


def shards_of(view: RunView) -> dict[int, list[str]]:
    """The names of the shards that each agent spoke to, as its own links tell them; empty if none do."""
    found = view.ask("select rank, detail from events where name = 'links' order by t_mono")
    return {
        row["rank"]: [name for name in json.loads(row["detail"])["bytes"] if "shard=" in name]
        for row in found.to_pylist()
    }
