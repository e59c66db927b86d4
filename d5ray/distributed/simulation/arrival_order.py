"""Order of the agents' requests: as they arrive, or as another run had it"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import final

from d5ray.distributed.parameter_server.requests import Request
from d5ray.distributed.parameter_server.shard import Shard

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
    def letters(self, rank: int, number: int) -> Sequence[Key] | None:
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

    def letters(self, rank: int, number: int) -> Sequence[Key] | None:
        return None
