"""Operations in the background: started, then waited for, while the caller computes"""

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar, final

from d5ray.distributed.scheduler import THREADS, Scheduler
from d5ray.distributed.traffic import Traffic
from d5ray.errors import PeerLost

END_SECONDS = 5.0  # that threads are given to see that its group is left


class Awaited(Protocol):
    """A thread that runs operations in the background; awaited: how many threads wait for one now."""

    awaited: int


@final
class Handle:
    """An operation under way: the array must not be touched before `wait` has returned."""

    def __init__(
        self,
        call: Callable[[], Any],
        seconds: float,
        scheduler: Scheduler,
        traffic: Traffic | None = None,
        background: "Awaited | None" = None,
        then: Callable[[], None] | None = None,
    ) -> None:
        # traffic: of those who wait; background: which runs it; then: what whoever waits does at its end
        self._call = call
        self._seconds = seconds
        self._now = scheduler.now
        self._done = scheduler.event()
        self._error: BaseException | None = None
        self._result: Any = None
        self._moved: Traffic | None = None
        self._traffic = traffic
        self._background = background
        self._then = then

    def wait(self, timeout_seconds: float | None = None) -> Any:
        """The operation's result; raises what it raised, or `PeerLost` when it takes too long."""
        begin = self._now()
        seconds = self._seconds if timeout_seconds is None else timeout_seconds
        finished = self._wait(seconds)
        if self._traffic is not None:
            self._traffic.nanoseconds += self._now() - begin
        if not finished:
            raise PeerLost(None, f"an operation in the background took longer than {seconds:g} s")
        if self._moved is not None and self._traffic is not None:
            self._traffic.add(self._moved)
            self._moved = None
        if self._error is not None:
            raise self._error
        if self._then is not None:
            self._then()
        return self._result

    def run(self, moved: Callable[[], Traffic] | None = None) -> None:
        """Run the operation; called by the worker. moved: what was moved, to be counted by whoever waits."""
        try:
            self._result = self._call()
        except BaseException as error:  # raised again by whoever waits
            self._error = error
        self._moved = moved and moved()
        self._done.set()

    def _wait(self, seconds: float) -> bool:
        """Wait while others can see it; True if the operation is done."""
        if self._background is None:
            return self._done.wait(seconds)
        self._background.awaited += 1
        try:
            return self._done.wait(seconds)
        finally:
            self._background.awaited -= 1

    def done(self) -> bool:
        """True if `wait` would return at once."""
        return self._done.is_set()


class Operations(Protocol):
    """The operations of a `Communicator`, and what counts and ends them."""

    traffic: Traffic

    @property
    def scheduler(self) -> Scheduler: ...
    def mark(self) -> Any: ...
    def follow(self, mark: Any) -> None: ...
    def allreduce(self, array: Any, operation: str = "sum") -> None: ...
    def reduce_scatter(self, array: Any, operation: str = "sum") -> slice: ...
    def all_gather(self, array: Any) -> None: ...
    def all_to_all(self, array: Any) -> None: ...
    def broadcast(self, array: Any, root: int = 0) -> None: ...
    def barrier(self) -> None: ...
    def send(self, array: Any, to: int, tag: int = 0) -> None: ...
    def recv(self, array: Any, source: int, tag: int = 0) -> None: ...
    def neighbor_average(self, *arrays: Any) -> None: ...
    def neighbor_exchange(self, array: Any) -> dict[int, Any]: ...
    def leave(self) -> Any: ...


Group = TypeVar("Group", bound=Operations)


@final
class Background(Generic[Group]):
    """A thread that runs operations on a communicator of its own, in the order they were started."""

    def __init__(self, communicator: Group, traffic: Traffic, timeout_seconds: float) -> None:
        self.communicator = communicator
        self.awaited = 0  # how many threads wait for an operation now
        self._traffic = traffic  # of those who wait
        self._seconds = timeout_seconds
        self._scheduler = communicator.scheduler
        self._queue = self._scheduler.queue()
        self._lock = threading.Lock()  # between closing and starting
        self._closed = False
        self._ended = self._scheduler.event()
        self._scheduler.spawn(self._run, "d5ray-background")

    def allreduce(self, array: Any, operation: str = "sum") -> Handle:
        """Start `Communicator.allreduce` in the background."""
        return self._start(lambda: self.communicator.allreduce(array, operation))

    def reduce_scatter(self, array: Any, operation: str = "sum") -> Handle:
        """Start `Communicator.reduce_scatter` in the background; `wait` gives the slice."""
        return self._start(lambda: self.communicator.reduce_scatter(array, operation))

    def all_gather(self, array: Any) -> Handle:
        """Start `Communicator.all_gather` in the background."""
        return self._start(lambda: self.communicator.all_gather(array))

    def all_to_all(self, array: Any) -> Handle:
        """Start `Communicator.all_to_all` in the background."""
        return self._start(lambda: self.communicator.all_to_all(array))

    def broadcast(self, array: Any, root: int = 0) -> Handle:
        """Start `Communicator.broadcast` in the background."""
        return self._start(lambda: self.communicator.broadcast(array, root))

    def barrier(self) -> Handle:
        """Start `Communicator.barrier` in the background."""
        return self._start(self.communicator.barrier)

    def send(self, array: Any, to: int, tag: int = 0) -> Handle:
        """Start `Communicator.send` in the background."""
        return self._start(lambda: self.communicator.send(array, to, tag))

    def recv(self, array: Any, source: int, tag: int = 0) -> Handle:
        """Start `Communicator.recv` in the background."""
        return self._start(lambda: self.communicator.recv(array, source, tag))

    def neighbor_average(self, *arrays: Any) -> Handle:
        """Start `Communicator.neighbor_average`; its rounds are counted apart from the foreground's."""
        return self._start(lambda: self.communicator.neighbor_average(*arrays))

    def neighbor_exchange(self, array: Any) -> Handle:
        """Start `Communicator.neighbor_exchange`; `wait` gives the arrays by rank."""
        return self._start(lambda: self.communicator.neighbor_exchange(array))

    def run(self, function: Callable[[Group], Any]) -> Handle:
        """function(communicator), several operations in their turn; `wait` gives what it gives."""
        return self._start(lambda: function(self.communicator))

    def close(self) -> None:
        """Leave the group; operations that have not begun, and those to come, raise `PeerLost`."""
        self.leave()
        self.join()

    def leave(self) -> None:
        """Leave the group as `close` does, but the thread may still be there."""
        with self._lock:
            self._closed = True
            self._queue.put(None)
        self.communicator.leave()

    def join(self) -> None:
        """Wait a while until the thread has seen that its group is left.

        A thread that is in a framework's code when the process ends may abort it.
        """
        if self._scheduler is THREADS:
            self._ended.wait(END_SECONDS)

    def _start(self, call: Callable[[], Any]) -> Handle:
        """Operations follow what the caller has given its device, and the caller follows them."""
        communicator = self.communicator
        given = communicator.mark()
        done: list[Any] = []

        def run() -> Any:
            communicator.follow(given)
            result = call()
            done.append(communicator.mark())
            return result

        def then() -> None:
            communicator.follow(done[0])

        handle = Handle(run, self._seconds, self._scheduler, self._traffic, self, then)
        with self._lock:
            if not self._closed:
                self._queue.put(handle)
                return handle
        handle.run()  # which raises that this member has left
        return handle

    def _run(self) -> None:
        traffic = self.communicator.traffic
        while (handle := self._queue.get()) is not None:
            before = dict(vars(traffic))

            def moved(before: dict[str, int] = before) -> Traffic:
                since = {name: vars(traffic)[name] - value for name, value in before.items()}
                return type(traffic)(**since | {"nanoseconds": 0})

            handle.run(moved)
        self._ended.set()
