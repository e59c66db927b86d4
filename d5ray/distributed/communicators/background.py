"""Operations in the background: started, then waited for, while the caller computes"""

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast, final

from d5ray.distributed.scheduler import THREADS, Scheduler
from d5ray.distributed.traffic import Traffic
from d5ray.errors import PeerLost

END_SECONDS = 5.0  # that threads are given to see that its group is left


@final
class Handle:
    """An operation under way: the array must not be touched before `wait` has returned."""

    def __init__(
        self,
        call: Callable[[], Any],
        seconds: float,
        scheduler: Scheduler,
        traffic: Traffic,
        worker: "Worker",
        then: Callable[[], None] | None = None,
    ) -> None:
        # traffic: of those who wait; worker: which runs it; then: what whoever waits does at its end
        self._call, self._seconds, self._traffic = call, seconds, traffic
        self._worker, self._then = worker, then
        self._now, self._done = scheduler.now, scheduler.event()
        self._error: BaseException | None = None
        self._result: Any = None
        self._moved: Traffic | None = None

    def wait(self, timeout_seconds: float | None = None) -> Any:
        """The operation's result; raises what it raised, or `PeerLost` when it takes too long."""
        begin = self._now()
        seconds = self._seconds if timeout_seconds is None else timeout_seconds
        self._worker.awaited += 1  # where others can see it
        try:
            finished = self._done.wait(seconds)
        finally:
            self._worker.awaited -= 1
        self._traffic.nanoseconds += self._now() - begin
        if not finished:
            raise PeerLost(None, f"an operation in the background took longer than {seconds:g} s")
        if self._moved is not None:
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

    def done(self) -> bool:
        """True if `wait` would return at once."""
        return self._done.is_set()


class Worker:
    """Runs operations beside the caller, one after the other, in the order in which they were started."""

    def __init__(self, scheduler: Scheduler, traffic: Traffic, seconds: float) -> None:
        self.awaited = 0  # how many threads wait for an operation now
        self._scheduler, self._traffic, self._seconds = (
            scheduler,
            traffic,
            seconds,
        )  # traffic: of those who wait
        self._queue = scheduler.queue()

    def _handle(self, call: Callable[[], Any], then: Callable[[], None] | None = None) -> Handle:
        return Handle(call, self._seconds, self._scheduler, self._traffic, self, then)


Group = TypeVar("Group")  # a `Communicator`, whose file imports this one


@final
class Background(Worker, Generic[Group]):
    """A thread that runs operations on a communicator of its own."""

    def __init__(self, communicator: Group, traffic: Traffic, timeout_seconds: float) -> None:
        self.communicator = communicator
        self._on = cast(Any, communicator)
        super().__init__(self._on.scheduler, traffic, timeout_seconds)
        self._lock = threading.Lock()  # between closing and starting
        self._closed = False
        self._ended = self._scheduler.event()
        self._scheduler.spawn(self._run, "d5ray-background")

    def allreduce(self, array: Any, operation: str = "sum") -> Handle:
        """Start `Communicator.allreduce` in the background."""
        return self._start(lambda: self._on.allreduce(array, operation))

    def reduce_scatter(self, array: Any, operation: str = "sum") -> Handle:
        """Start `Communicator.reduce_scatter` in the background; `wait` gives the slice."""
        return self._start(lambda: self._on.reduce_scatter(array, operation))

    def all_gather(self, array: Any) -> Handle:
        """Start `Communicator.all_gather` in the background."""
        return self._start(lambda: self._on.all_gather(array))

    def all_to_all(self, array: Any) -> Handle:
        """Start `Communicator.all_to_all` in the background."""
        return self._start(lambda: self._on.all_to_all(array))

    def broadcast(self, array: Any, root: int = 0) -> Handle:
        """Start `Communicator.broadcast` in the background."""
        return self._start(lambda: self._on.broadcast(array, root))

    def barrier(self) -> Handle:
        """Start `Communicator.barrier` in the background."""
        return self._start(self._on.barrier)

    def send(self, array: Any, to: int, tag: int = 0) -> Handle:
        """Start `Communicator.send` in the background."""
        return self._start(lambda: self._on.send(array, to, tag))

    def recv(self, array: Any, source: int, tag: int = 0) -> Handle:
        """Start `Communicator.recv` in the background."""
        return self._start(lambda: self._on.recv(array, source, tag))

    def neighbor_average(self, *arrays: Any) -> Handle:
        """Start `Communicator.neighbor_average`; its rounds are counted apart from the foreground's."""
        return self._start(lambda: self._on.neighbor_average(*arrays))

    def neighbor_exchange(self, array: Any) -> Handle:
        """Start `Communicator.neighbor_exchange`; `wait` gives the arrays by rank."""
        return self._start(lambda: self._on.neighbor_exchange(array))

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
        self._on.leave()

    def join(self) -> None:
        """Wait a while until the thread has seen that its group is left.

        A thread that is in a framework's code when the process ends may abort it.
        """
        if self._scheduler is THREADS:
            self._ended.wait(END_SECONDS)

    def _start(self, call: Callable[[], Any]) -> Handle:
        """Operations follow what the caller has given its device, and the caller follows them."""
        communicator = self._on
        given = communicator.mark()
        done: list[Any] = []

        def run() -> Any:
            communicator.follow(given)
            result = call()
            done.append(communicator.mark())
            return result

        def then() -> None:
            communicator.follow(done[0])

        handle = self._handle(run, then)
        with self._lock:
            if not self._closed:
                self._queue.put(handle)
                return handle
        handle.run()  # which raises that this member has left
        return handle

    def _run(self) -> None:
        traffic: Traffic = self._on.traffic
        while (handle := self._queue.get()) is not None:
            before = dict(vars(traffic))

            def moved(before: dict[str, int] = before) -> Traffic:
                since = {name: vars(traffic)[name] - value for name, value in before.items()}
                return type(traffic)(**since | {"nanoseconds": 0})

            handle.run(moved)
        self._ended.set()
