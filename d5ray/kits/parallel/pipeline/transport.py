"""Carriers of messages from stage to stage while the stages compute: a channel a pair, or all in one order"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, final

from d5ray.distributed.communicators.background import Background, Handle
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import PeerLost
from d5ray.kits.parallel.pipeline.messages import Message, PassMessages
from d5ray.kits.parallel.pipeline.tensor_encoding import Kind, TensorCodec

KindOf = Callable[[Message], Kind | None]


class StageTransport(ABC):
    """Sends and receives the messages of one stage in the background; every wait is bounded."""

    @abstractmethod
    def begin(self, passage: PassMessages, kind_of: KindOf) -> None:
        """A pass begins. kind_of: shape and type of a message, None where a header has to tell."""

    @abstractmethod
    def ask(self, message: Message) -> None:
        """Receive this message as soon as it comes: it is needed soon."""

    @abstractmethod
    def take(self, message: Message) -> Any:
        """The array that came; waits for it. Raises `PeerLost` with the stage that is gone."""

    @abstractmethod
    def give(self, message: Message, array: Any) -> None:
        """Send an array, which nobody changes any more."""

    @abstractmethod
    def finish(self) -> None:
        """Return when all that was given has been received."""

    @abstractmethod
    def leave(self) -> None:
        """Leave: whoever waits for this stage gets `PeerLost`, and so does who waits in it."""

    @abstractmethod
    def close(self) -> None:
        """End the carrier, and leave nothing."""


@final
class PairChannels(StageTransport):
    """A group of two and a thread at each end for every two stages and direction, first in, first out.

    So no message waits for one of another pair or direction, and the stages are free of each other but for
    what they need. pairs: those that have this stage; every stage makes its own in ascending order.
    """

    def __init__(self, communicator: Communicator, wire: TensorCodec, pairs: set[tuple[int, int]]) -> None:
        self._stage, self._wire = communicator.rank, wire
        self._channels: dict[tuple[int, int], Background[Communicator]] = {}
        self._sending: dict[int, deque[Handle]] = {}
        self._coming: dict[int, deque[Message]] = {}
        self._asked: dict[Message, Handle] = {}
        for pair in sorted(pairs):
            self._channels[pair] = communicator.subgroup(pair).in_background()
            if pair[0] == self._stage:
                self._sending[pair[1]] = deque()

    def begin(self, passage: PassMessages, kind_of: KindOf) -> None:
        self._coming = {source: deque(messages) for source, messages in passage.arrivals.items()}
        self._kind_of, self._limit = kind_of, passage.limit

    def ask(self, message: Message) -> None:
        channel, coming = self._channels[message.source, self._stage], self._coming[message.source]
        while message not in self._asked:
            following = coming.popleft()
            kind = self._kind_of(following)
            self._asked[following] = channel.run(partial(self._wire.receive, source=0, kind=kind))

    def take(self, message: Message) -> Any:
        self.ask(message)
        with self._naming(message.source, self._stage):
            return self._asked.pop(message).wait()

    def give(self, message: Message, array: Any) -> None:
        channel, sending = self._channels[self._stage, message.target], self._sending[message.target]
        kind = self._kind_of(message)
        sending.append(channel.run(partial(self._wire.send, to=1, kind=kind, array=array)))
        with self._naming(self._stage, message.target):
            while sending and (sending[0].done() or len(sending) > (self._limit or len(sending))):
                sending.popleft().wait()

    def finish(self) -> None:
        for target, sending in self._sending.items():
            with self._naming(self._stage, target):
                while sending:
                    sending.popleft().wait()

    def leave(self) -> None:
        for channel in self._channels.values():
            channel.leave()

    def close(self) -> None:
        self.leave()
        for channel in self._channels.values():
            channel.join()

    @contextmanager
    def _naming(self, *pair: int) -> Iterator[None]:
        """A loss by the stage, not by the rank in the pair."""
        try:
            yield
        except PeerLost as error:
            lost = None if error.rank is None else pair[error.rank]
            raise PeerLost(lost, error.detail) from None


@final
class Ordered(StageTransport):
    """A carrier with one thread over all stages' group, and one order of messages, which all stages know.

    For NCCL, which wants the operations of several communicators in one order: a message begins when those
    before it are over on both sides, so none waits for ever. Where stages do not take equally long, messages
    wait for others.
    """

    def __init__(self, communicator: Communicator, wire: TensorCodec) -> None:
        self._stage, self._wire = communicator.rank, wire
        self._seconds = communicator.group.timeout_seconds
        self._scheduler = communicator.scheduler
        self._background = communicator.start
        self._handles: dict[Message, Handle] = {}
        self._communicator = communicator
        self._given: dict[Message, tuple[Any, Any]] = {}  # an array, and the mark of what makes it
        self._made: dict[Message, Any] = {}  # events
        self._closed = False

    def begin(self, passage: PassMessages, kind_of: KindOf) -> None:
        for message in passage.in_common:
            kind = kind_of(message)
            if message.source == self._stage:
                self._made[message] = self._scheduler.event()
                call = partial(self._send_when_made, message=message, kind=kind)
            else:
                call = partial(self._wire.receive, source=message.source, kind=kind)
            self._handles[message] = self._background.run(call)

    def ask(self, message: Message) -> None:
        pass

    def take(self, message: Message) -> Any:
        return self._handles.pop(message).wait()

    def give(self, message: Message, array: Any) -> None:
        self._given[message] = array, self._communicator.mark()
        self._made[message].set()

    def finish(self) -> None:
        for handle in self._handles.values():
            handle.wait()
        self._handles.clear()

    def leave(self) -> None:
        self._closed = True
        for event in list(self._made.values()):
            event.set()

    def close(self) -> None:
        self.leave()  # the thread is the communicator's

    def _send_when_made(self, communicator: Communicator, message: Message, kind: Kind | None) -> None:
        made = self._made[message].wait(self._seconds)
        if self._closed or not made:
            why = "it has left the group" if self._closed else f"it made nothing for {self._seconds:g} s"
            raise PeerLost(self._stage, why)
        del self._made[message]
        array, mark = self._given.pop(message)
        communicator.follow(mark)
        self._wire.send(communicator, to=message.target, kind=kind, array=array)
