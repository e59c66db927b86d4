"""Waits of agents for each other as they last: told to who asks from outside, and followed to their end"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, final

from d5ray.distributed.group.group import Group

Who = TypeVar("Who", bound=Hashable)  # besides agents, which are known by rank


@final
@dataclass(frozen=True)
class PresentWait:
    """One wait of an agent, as it tells it from another thread while it lasts.

    operation: what it waits in. agents: the ranks of those that it waits for.
    servers: the shards whose answer it waits for. whom: whoever else it waits for.
    """

    operation: str
    agents: tuple[int, ...] = ()
    servers: tuple[int, ...] = ()
    whom: str = "others"

    def __str__(self) -> str:
        whom = [f"the answer of shard {shard}" for shard in self.servers]
        if self.agents:
            whom.append(named(self.agents))
        return f"in {self.operation} for {' and '.join(whom) or self.whom}"


def declared(group: Group, waiting: tuple[Sequence[int], object] | None) -> list[PresentWait]:
    """The wait of a group's member, if it has one. waiting: for which members, in what."""
    if waiting is None:
        return []
    ranks, operation = waiting
    return [PresentWait(str(operation), tuple(group.agent(rank) for rank in ranks))]


def named(ranks: Iterable[int]) -> str:
    """Ranks as a sentence has them.

    >>> named([2]), named([3, 0, 1])
    ('rank 2', 'ranks 0, 1 and 3')
    """
    *first, last = [str(rank) for rank in sorted(ranks)]
    return f"ranks {', '.join(first)} and {last}" if first else f"rank {last}"


def ends(begin: Collection[int], waiting: Mapping[int, Collection[Who]]) -> list[int | Who]:
    """The ends of waits that begin with these agents: whoever is reached and waits for nobody.

    waiting: for whom each agent waits that does, by rank.

    >>> ends([1], {0: [1], 1: [2], 3: [0]}), ends([1], {0: [1], 1: [0]})
    ([2], [])
    """
    found: list[int | Who] = []
    passed: set[int | Who] = set()
    ahead: list[int | Who] = list(begin)
    while ahead:
        who = ahead.pop(0)
        if who not in passed:
            passed.add(who)
            if isinstance(who, int) and who in waiting:
                ahead += waiting[who]
            else:
                found.append(who)
    return found
