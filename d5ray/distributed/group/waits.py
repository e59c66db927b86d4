"""Waits of agents for each other as they last: told to who asks from outside, and followed to their end"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from d5ray.distributed.group.group import Group


@final
@dataclass(frozen=True)
class PresentWait:
    """One wait of an agent, as it tells it from another thread while it lasts.

    operation: what it waits in. seconds: how long by now. agents: the ranks of those that it waits for.
    servers: the shards whose answer it waits for.
    """

    operation: str
    seconds: float
    agents: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()

    def __str__(self) -> str:
        whom = [f"the answer of shard {shard}" for shard in self.servers]
        if self.agents:
            whom.append(named(self.agents))
        return f"in {self.operation} for {' and '.join(whom) or 'others'}"


def declared(group: Group, waiting: tuple[float, Sequence[int], object] | None) -> list[PresentWait]:
    """The wait of a group's member, if it has one. waiting: since when, for which members, in what."""
    if waiting is None:
        return []
    since, ranks, operation = waiting
    agents = tuple(group.agent(rank) for rank in ranks)
    return [PresentWait(str(operation), time.monotonic() - since, agents)]


def named(ranks: Iterable[int]) -> str:
    """Ranks as a sentence has them.

    >>> named([2]), named([3, 0, 1])
    ('rank 2', 'ranks 0, 1 and 3')
    """
    *first, last = [str(rank) for rank in sorted(ranks)]
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def ends(begin: Collection[int], waiting: Mapping[int, Collection[int]]) -> list[int]:
    """The ranks at which waits that begin with these end: those reached that wait for nobody themselves.

    waiting: for whom each waits that does.

    >>> ends([1], {0: [1], 1: [2], 3: [0]}), ends([1], {0: [1], 1: [0]})
    ([2], [])
    """
    found: list[int] = []
    passed: set[int] = set()
    ahead = list(begin)
    while ahead:
        rank = ahead.pop(0)
        if rank not in passed:
            passed.add(rank)
            ahead += waiting.get(rank, ())
            if rank not in waiting:
                found.append(rank)
    return found
