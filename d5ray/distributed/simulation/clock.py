"""The virtual clock: tasks that yield where they wait, and events in the order of their times"""

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable
from typing import Any, final

from greenlet import getcurrent, greenlet

from d5ray.distributed.scheduler import Queue, Scheduler, Signal
from d5ray.errors import D5Error

NS = 1e9
WATCH_EVENTS = 1000  # between two looks of whoever watches


class SimulatedDeadlock(D5Error):
    """Every task of a simulation waits for another one."""


@final
class Task:
    """A function that runs as a greenlet: its result or error, what it waits for, until when it is held."""

    def __init__(self, run: Callable[[], Any], name: str, parent: greenlet) -> None:
        self.name = name
        self.result: Any = None
        self.error: BaseException | None = None
        self.waits_for = ""
        self.held_until = 0.0
        self.greenlet = greenlet(lambda: self._run(run), parent)

    def _run(self, run: Callable[[], Any]) -> None:
        try:
            self.result = run()
        except Exception as error:  # raised where the clock runs
            self.error = error


@final
class VirtualClock(Scheduler):
    """A discrete-event simulation. One task runs at a time, until it waits; nothing else takes time.

    What is due at the same time happens in the order in which it was asked for, so that a run can be
    repeated to the last bit.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._cancelled: set[int] = set()  # of what is due, by number
        self._hub: greenlet | None = None
        self._tasks: dict[greenlet, Task] = {}
        self._ended: Task | None = None  # in this turn
        self._awaited: set[Task] = set()  # by `run`

    # -- of tasks --------------------------------------------------------------------------------------

    def now(self) -> int:
        return round(self.seconds * NS)

    def epoch(self) -> int:
        return 0

    def sleep(self, seconds: float) -> None:
        task = self._current()
        task.waits_for = "time to pass"
        self.at(self.seconds + seconds, lambda: self._resume(task))
        self._suspend()

    def spawn(self, run: Callable[[], object], name: str) -> None:
        self.start(run, name)

    def event(self) -> Signal:
        return VirtualEvent(self)

    def queue(self) -> Queue:
        return VirtualQueue(self)

    # -- of who runs them ------------------------------------------------------------------------------

    def start(self, run: Callable[[], Any], name: str) -> Task:
        """A task that begins now, when whoever runs now waits."""
        hub = self._hub or getcurrent()
        task = Task(run, name, hub)
        self._tasks[task.greenlet] = task
        self.at(self.seconds, lambda: self._resume(task))
        return task

    def at(self, seconds: float, call: Callable[[], None]) -> int:
        """Call this at a time that has not passed; it must not wait. Gives a number to `cancel` it by."""
        number = next(self._count)
        heapq.heappush(self._due, (max(seconds, self.seconds), number, call))
        return number

    def cancel(self, number: int) -> None:
        """Do not call what is due under this number."""
        self._cancelled.add(number)
        if 2 * len(self._cancelled) > len(self._due):
            self._due = [due for due in self._due if due[1] not in self._cancelled]
            heapq.heapify(self._due)
            self._cancelled.clear()

    def kill(self, task: Task) -> None:
        """End a task where it is, without a result; called by what was given to `at`."""
        task.greenlet.throw()
        self._tasks.pop(task.greenlet, None)
        self._ended = task

    def hold(self, task: Task, seconds: float) -> None:
        """Let a task stand still for so long, whatever it waits for; infinite: until it is killed."""
        task.held_until = max(task.held_until, self.seconds + seconds)

    def await_too(self, task: Task) -> None:
        """Let the `run` that is under way wait for this task, too."""
        self._awaited.add(task)

    def run(
        self, tasks: list[Task], watch: Callable[[], None] | None = None, every: int = WATCH_EVENTS
    ) -> list[Any]:
        """Let time pass until these tasks have ended; gives their results.

        watch: called now and then, once in `every` events.

        Raises the first error of any task, and `SimulatedDeadlock` when they wait for what never happens.
        """
        self._hub = getcurrent()
        running = self._awaited = set(tasks)
        try:
            for turn in itertools.count():
                if not running:
                    break
                if not self._due:
                    raise self._deadlock(tasks)
                seconds, number, call = heapq.heappop(self._due)
                if number in self._cancelled:
                    self._cancelled.remove(number)
                    continue
                self.seconds = seconds
                call()
                if (ended := self._ended) is not None:
                    self._ended = None
                    running.discard(ended)
                    if ended.error is not None:
                        raise ended.error
                if watch is not None and turn % every == 0:
                    watch()
        finally:
            self._hub = None
        return [task.result for task in tasks]

    def close(self) -> None:
        """End the tasks that still wait."""
        for task in list(self._tasks.values()):
            task.greenlet.throw()
        self._tasks.clear()
        self._due.clear()
        self._cancelled.clear()

    # --------------------------------------------------------------------------------------------------

    def _current(self) -> Task:
        return self._tasks[getcurrent()]

    def _suspend(self) -> None:
        assert self._hub is not None, "only a running clock's tasks can wait"
        self._hub.switch()

    def _resume(self, task: Task) -> None:
        if task.held_until > self.seconds:
            if task.held_until < math.inf:
                self.at(task.held_until, lambda: self._resume(task))
            return
        task.waits_for = ""
        task.greenlet.switch()
        if task.greenlet.dead:
            self._tasks.pop(task.greenlet, None)
            self._ended = task

    def _deadlock(self, tasks: list[Task]) -> SimulatedDeadlock:
        waiting = [f"{task.name} waits for {task.waits_for}" for task in tasks if not task.greenlet.dead]
        shown = "; ".join(waiting[:8]) + (f"; and {len(waiting) - 8} more" if len(waiting) > 8 else "")
        return SimulatedDeadlock(f"the simulation stands still at {self.seconds:g} s: {shown}")


@final
class VirtualEvent:
    """Wakes the tasks that wait for it when it is set."""

    def __init__(self, clock: VirtualClock, what: str = "an event") -> None:
        self.what = what
        self._clock = clock
        self._happened = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        """Let it have happened: whoever waits goes on."""
        self._happened = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._clock.at(self._clock.seconds, lambda task=task: self._clock._resume(task))  # type: ignore[misc]

    def is_set(self) -> bool:
        """True once `set` has been called."""
        return self._happened

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has happened, for these virtual seconds at most; True if it has."""
        if self.is_set():
            return True
        clock, task = self._clock, self._clock._current()
        task.waits_for = self.what
        self._waiting.append(task)
        if timeout is None:
            clock._suspend()
            return self.is_set()
        bound = clock.at(clock.seconds + timeout, lambda: self._give_up(task))
        clock._suspend()
        if self._happened:
            clock.cancel(bound)
        return self.is_set()

    def _give_up(self, task: Task) -> None:
        if task in self._waiting:
            self._waiting.remove(task)
            self._clock._resume(task)


@final
class VirtualQueue:
    """A queue on the virtual clock: first in, first out, for one task that takes."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._items: deque[Any] = deque()
        self._news = VirtualEvent(clock, "work")

    def put(self, item: Any) -> None:
        """Append an item to the queue."""
        self._items.append(item)
        self._news.set()

    def get(self) -> Any:
        """Take the first item, waiting until there is one."""
        while not self._items:
            self._news = VirtualEvent(self._clock, "work")
            self._news.wait()
        return self._items.popleft()
