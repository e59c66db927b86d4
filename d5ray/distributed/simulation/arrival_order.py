"""In which order what agents ask for comes in: as it arrives, or as another run had it"""

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
        """Which of those that wait, in this order, takes the free window; None: one that is not here yet."""

    @abstractmethod
    def rounds(self, rank: int) -> int | None:
        """How often an agent that has done its steps lingers; None: until all have done theirs."""

    @abstractmethod
    def letters(self, rank: int, number: int) -> Sequence[Key] | None:
        """Which letters, as (source, number), this look into a mailbox finds; None: those that are there."""


@final
class FirstCome(Order):
    """Everything in the order in which it arrives."""

    def enter(self, shard: Shard, name: str, request: Request) -> None:
        shard.submit(request)

    def next(self, window: int, waiting: Iterable[Key]) -> Key | None:
        return next(iter(waiting), None)

    def rounds(self, rank: int) -> int | None:
        return None

    def letters(self, rank: int, number: int) -> Sequence[Key] | None:
        return None
