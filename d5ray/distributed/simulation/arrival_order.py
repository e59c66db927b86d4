"""Order of the agents' requests: as they arrive, or as another run had it by its events table"""

import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.distributed.parameter_server.requests import Request
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.errors import ConfigurationError

Key = tuple[int, int]  # the agent that began an operation, and the operation's number


class Order(ABC):
    """Decides wherever an asynchronous run could have gone one way or another."""

    @abstractmethod
    def enter(self, shard: Shard, name: str, request: Request) -> None:
        """A request has arrived at the shard with this name: let it in, now or later."""

    @abstractmethod
    def next(self, window: int, waiting: Iterable[Key]) -> Key | None:
        """The first to take the free window, of those that wait in this order; None: one not here yet."""

    @abstractmethod
    def rounds(self, rank: int) -> int | None:
        """The idle rounds of an agent that has done its steps; None: until all have done theirs."""

    @abstractmethod
    def messages(self, rank: int, number: int) -> Sequence[Key] | None:
        """The messages, as (source, number), that this look into a mailbox finds; None: those there."""


@final
class FirstCome(Order):
    """An order of requests as they arrive."""

    def enter(self, shard: Shard, name: str, request: Request) -> None:
        shard.submit(request)

    def next(self, window: int, waiting: Iterable[Key]) -> Key | None:
        return next(iter(waiting), None)

    def rounds(self, rank: int) -> int | None:
        return None

    def messages(self, rank: int, number: int) -> Sequence[Key] | None:
        return None


SERVER_KINDS = ("pull", "push", "push_pull")
WINDOW_KINDS = ("average", "held", "read")


@final
@dataclass(frozen=True)
class RecordedSchedule:
    """The order of requests at every shard and window, by name; and the finds of each look at messages.

    rounds: how many idle rounds each agent did, at the end of each training.
    """

    requests: Mapping[str, list[Key]]
    looks: Mapping[Key, list[Key]]
    rounds: Mapping[int, list[int]]

    @property
    def operations(self) -> int:
        """The number of requests at all shards, windows and mailboxes."""
        return sum(map(len, self.requests.values())) + len(self.looks)

    @classmethod
    def of(
        cls, events: Iterable[Mapping[str, Any]], resolved: ResolvedServers | None, agents: int
    ) -> "RecordedSchedule":
        """The schedule in the rows of `events`, of a run with these servers and this many agents.

        Raises `ConfigurationError` where an operation is missing, as after a failure.
        """
        placed: dict[str, dict[int, Key]] = defaultdict(dict)
        looks: dict[Key, list[Key]] = {}
        rounds: dict[int, list[int]] = defaultdict(list)
        for event in events:
            rank, kind = event["rank"], event["name"]
            if kind in SERVER_KINDS and resolved is not None:
                detail, group = json.loads(event["detail"]), resolved.group_of(rank, agents)
                for shard, order in enumerate(detail["orders"]):
                    placed[resolved.shard_name(shard, group)][order] = (rank, detail["number"])
                for shard, (order, round) in enumerate(detail.get("above", ())):
                    placed[resolved.shard_name(shard)][order] = (group or 0, round)
            elif kind in WINDOW_KINDS:
                detail = json.loads(event["detail"])
                for window, order in detail["places"]:
                    placed[window_name(window)][order] = (rank, detail["number"])
            elif kind == "collect":
                detail = json.loads(event["detail"])
                looks[rank, detail["number"]] = [(source, number) for source, number in detail["letters"]]
            elif kind == "linger":
                rounds[rank].append(json.loads(event["detail"])["rounds"])
        requests = {name: _complete(name, by_order) for name, by_order in placed.items()}
        return cls(requests, looks, rounds)


@final
class Recorded(Order):
    """An order of requests that follows a schedule, whenever they arrive."""

    def __init__(self, schedule: RecordedSchedule) -> None:
        self._requests, self._looks = schedule.requests, schedule.looks
        self._rounds = {rank: iter(rounds) for rank, rounds in schedule.rounds.items()}
        self._next: dict[str, int] = defaultdict(int)
        self._waiting: dict[str, dict[Key, Request]] = defaultdict(dict)

    def enter(self, shard: Shard, name: str, request: Request) -> None:
        waiting = self._waiting[name]
        waiting[request.rank, request.number] = request
        while (turn := self._turn(name, waiting)) is not None:
            shard.submit(waiting.pop(turn))

    def next(self, window: int, waiting: Iterable[Key]) -> Key | None:
        return self._turn(window_name(window), list(waiting))

    def rounds(self, rank: int) -> int | None:
        return next(self._rounds.get(rank, iter(())), 0)

    def messages(self, rank: int, number: int) -> Sequence[Key] | None:
        found = self._looks.get((rank, number))
        if found is None:
            raise _more("a mailbox", rank, number)
        return found

    def check(self) -> None:
        """Raise `ConfigurationError` unless everything that the run did was done."""
        for name, requests in self._requests.items():
            if self._next[name] < len(requests):
                rank, number = requests[self._next[name]]
                raise ConfigurationError(
                    f"the replay did less than the run: operation {number} of agent {rank} did not come "
                    f"to {name}"
                )

    def _turn(self, name: str, waiting: Sequence[Key] | Mapping[Key, Any]) -> Key | None:
        """The request whose turn it is, if it is here."""
        requests = self._requests.get(name, [])
        if self._next[name] == len(requests):
            for rank, number in waiting:
                raise _more(name, rank, number)
            return None
        turn = requests[self._next[name]]
        if turn not in waiting:
            return None
        self._next[name] += 1
        return turn


def window_name(rank: int) -> str:
    """The name of an agent's window."""
    return f"the window of agent {rank}"


def _complete(name: str, by_order: Mapping[int, Key]) -> list[Key]:
    if sorted(by_order) != list(range(len(by_order))):
        raise ConfigurationError(
            f"the run cannot be replayed: of {max(by_order) + 1} operations that came to {name}, its events "
            f"table has {len(by_order)}; the others were of an agent or a server that died"
        )
    return [by_order[order] for order in range(len(by_order))]


def _more(name: str, rank: int, number: int) -> ConfigurationError:
    return ConfigurationError(
        f"the replay asks {name} for more than the run did: operation {number} of agent {rank} is not in its "
        "events table"
    )
