"""Consistency of parameter servers: synchronous, with bounded staleness, or asynchronous"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import final

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count
from d5ray.distributed.parameter_server.requests import Request
from d5ray.errors import ConfigurationError


@final
class Frontier:
    """The smallest of the members' counters, which only grow: known at any time without a look at all."""

    def __init__(self, members: Iterable[int], first: int = 0) -> None:
        self._at = dict.fromkeys(members, first)
        self._count = Counter(self._at.values())
        self.low = first

    def __getitem__(self, rank: int) -> int:
        return self._at.get(rank, 0)

    def all(self) -> dict[int, int]:
        """The counter of every member, by rank."""
        return dict(self._at)

    def raise_to(self, rank: int, value: int) -> None:
        """The counter of a member is now at least this."""
        if rank in self._at and value > self._at[rank]:
            self._move(rank, value)

    def add(self, rank: int) -> None:
        """Add a member, with the smallest counter."""
        self._at[rank] = self.low
        self._count[self.low] += 1

    def remove(self, rank: int) -> None:
        """Forget a member."""
        if rank in self._at:
            self._move(rank, None)

    def _move(self, rank: int, value: int | None) -> None:
        self._count[self._at[rank]] -= 1
        if value is None:
            del self._at[rank]
        else:
            self._at[rank] = value
            self._count[value] += 1
        while self._at and not self._count[self.low]:
            del self._count[self.low]
            self.low += 1


class Policy(ABC):
    """A consistency as it works in one shard. `members`: the current ranks."""

    def __init__(self, members: Sequence[int], apply: Callable[[list[Request]], None]) -> None:
        self.members = set(members)
        self.apply = apply  # update the values by these pushes, in the order of ranks
        self.clocks = Frontier(members)  # pushes that came, by rank

    @abstractmethod
    def push(self, push: Request) -> bool:
        """Handle a push. It is `apply`d now or later, unless this returns False because it is too late."""

    def may_read(self, rank: int) -> bool:
        """True if this agent may read now: by default always."""
        return True

    def read(self, rank: int) -> None:  # noqa: B027 - most need not know
        """Note that this agent has read."""

    def changed(self) -> None:  # noqa: B027
        """Handle a change of the members, or a completed update."""

    @final
    def tick(self, push: Request) -> int:
        """The number of this push among those of its agent, from 0."""
        number = self.clocks[push.rank] + push.skipped
        self.clocks.raise_to(push.rank, number + 1)
        return number

    @final
    def gap(self, rank: int) -> int:
        """The clocks by which this agent is ahead of the slowest."""
        return max(0, self.clocks[rank] - self.clocks.low)

    def counters(self) -> dict[str, Frontier]:
        """The policy's counters of the members, by name, for a snapshot."""
        return {"clocks": self.clocks}

    def enter(self, rank: int) -> None:
        """Add an agent, at the clock of the slowest."""
        if rank not in self.members:
            self.members.add(rank)
            self.clocks.add(rank)
            self.changed()

    def leave(self, rank: int) -> None:
        """Remove an agent."""
        self.members.discard(rank)
        self.clocks.remove(rank)
        self.changed()


class Consistency(KnownKeywords, ABC):
    """A consistency model: when agents of a parameter server see each other's updates; frozen data."""

    @abstractmethod
    def policy(self, members: Sequence[int], apply: Callable[[list[Request]], None]) -> Policy:
        """The policy of this consistency in one shard."""

    def check(self, agents: int) -> None:
        """Raise `ConfigurationError` unless it makes sense for this number of agents."""


@final
@dataclass(frozen=True)
class Synchronous(Consistency):
    """The mean of one push of every agent is one update; a push returns when its update is complete.

    With b `backups` among m agents (backup workers), an update takes the first m − b pushes; later ones,
    computed from parameters that are old by then, are dropped (Chen et al., arXiv:1604.00981).
    """

    backups: int = 0

    def __post_init__(self) -> None:
        check_count("backups", self.backups, 0, MOST_RANKS)

    def policy(self, members: Sequence[int], apply: Callable[[list[Request]], None]) -> Policy:
        return _Rounds(members, apply, self.backups)

    def check(self, agents: int) -> None:
        if self.backups >= agents:
            raise ConfigurationError(
                f"{self!r} among {agents} agents leaves no push to await: take {agents - 1} at most"
            )


@final
@dataclass(frozen=True)
class StaleSynchronous(Consistency):
    """An agent is at most `bound` pushes ahead of the slowest when it reads (Ho et al., NIPS 2013: SSP).

    An agent that reads after c pushes sees all pushes with a number up to c − bound − 1, none with more
    than c + bound, and its own. Every push is a separate update, by 1/m of the pushed vector, so that a
    bound of 0 with SGD equals `Synchronous`.
    """

    bound: int

    def __post_init__(self) -> None:
        check_count("bound", self.bound, low=0)

    def policy(self, members: Sequence[int], apply: Callable[[list[Request]], None]) -> Policy:
        return _Window(members, apply, self.bound)


@final
@dataclass(frozen=True)
class Asynchronous(Consistency):
    """Every push is applied as an update when it arrives, and every pull reads the current parameters."""

    def policy(self, members: Sequence[int], apply: Callable[[list[Request]], None]) -> Policy:
        return _Free(members, apply)


@final
class _Free(Policy):
    def push(self, push: Request) -> bool:
        self.tick(push)
        self.apply([push])
        return True


@final
class _Rounds(Policy):
    def __init__(self, members: Sequence[int], apply: Callable[[list[Request]], None], backups: int) -> None:
        super().__init__(members, apply)
        self._backups = backups
        self._waiting: dict[int, deque[Request]] = defaultdict(deque)
        self._came: set[int] = set()  # the ranks that `_waiting` has a push of

    def push(self, push: Request) -> bool:
        self.tick(push)
        if self._backups and push.staleness > 0:
            return False
        self._waiting[push.rank].append(push)
        self._came.add(push.rank)
        self.changed()
        return True

    def changed(self) -> None:
        wanted = max(1, len(self.members) - self._backups)
        while len(self._came) >= wanted and len(self._came & self.members) >= wanted:
            pushes = [self._waiting[rank].popleft() for rank in sorted(self._came)]
            self._came = {rank for rank in self._came if self._waiting[rank]}
            self.apply(pushes)


@final
class _Window(Policy):
    def __init__(self, members: Sequence[int], apply: Callable[[list[Request]], None], bound: int) -> None:
        super().__init__(members, apply)
        self._bound = bound
        self._share = 1 / max(1, len(members))  # m at the start, also when agents have ended
        # At which clock they read last, or must have read before they pushed; -1: they did neither yet.
        self._seen = Frontier(members, first=-1)
        self._early: deque[tuple[int, Request]] = deque()  # pushes that somebody may not see yet, by number

    def push(self, push: Request) -> bool:
        number = self.tick(push)
        self._seen.raise_to(push.rank, number)
        push.scale = self._share
        self._early.append((number, push))
        self.changed()
        return True

    def may_read(self, rank: int) -> bool:
        return self.gap(rank) <= self._bound

    def read(self, rank: int) -> None:
        self._seen.raise_to(rank, self.clocks[rank])
        self.changed()

    def changed(self) -> None:
        visible = self._seen.low + self._bound
        early, self._early = self._early, deque()
        for number, push in early:
            if number <= visible or not self.members:
                self.apply([push])
            else:
                self._early.append((number, push))

    def counters(self) -> dict[str, Frontier]:
        return super().counters() | {"seen": self._seen}

    def enter(self, rank: int) -> None:
        if rank not in self.members:
            self._seen.add(rank)
        super().enter(rank)

    def leave(self, rank: int) -> None:
        self._seen.remove(rank)
        super().leave(rank)
