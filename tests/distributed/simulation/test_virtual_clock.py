"""Claims about the virtual clock: what happens when, in which order, and what ends when nothing can happen"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.scheduler import THREADS, Queue, Scheduler
from d5ray.distributed.simulation.clock import SimulatedDeadlock, VirtualClock, VirtualEvent

Function = Callable[[], Any]


@pytest.fixture
def clock() -> Iterator[VirtualClock]:
    made = VirtualClock()
    yield made
    made.close()


def run(clock: VirtualClock, **functions: Function) -> list[Any]:
    """The functions side by side, as tasks with these names; their results."""
    return clock.run([clock.start(function, name) for name, function in functions.items()])


def test_tasks_wake_in_the_order_of_their_times(clock: VirtualClock) -> None:
    """Ten tasks sleep six times each: the log is what sorting the sums of their sleeps gives, to the ns."""
    begin = time.monotonic()
    sleeps = np.random.default_rng(0).permutation(60).reshape(10, 6) + 1  # whole seconds: sums are exact
    log: list[tuple[int, str]] = []

    def sleeper(name: str) -> None:
        for seconds in sleeps[int(name)]:
            clock.sleep(float(seconds) + int(name) / 16)  # so that no two wake at the same time
            log.append((clock.now(), name))

    run(clock, **{str(task): lambda task=task: sleeper(str(task)) for task in range(10)})
    due = (sleeps + np.arange(10)[:, None] / 16).cumsum(axis=1)
    assert len(np.unique(due)) == 60
    expected = sorted((round(seconds * 1e9), str(task)) for (task, _), seconds in np.ndenumerate(due))
    assert log == expected
    end = clock.seconds
    assert run(clock, long=lambda: clock.sleep(3600.0), short=clock.now) == [None, round(end * 1e9)]
    assert clock.seconds == end + 3600.0 and clock.epoch() == 0 and time.monotonic() - begin < 5.0


def test_a_task_that_is_started_by_another_begins_now_when_that_waits(clock: VirtualClock) -> None:
    """Not before, and not later: a parent logs on, then its children, each started by the one before."""
    log: list[tuple[float, str]] = []

    def generation(number: int) -> None:
        log.append((clock.seconds, f"{number} begins"))
        if number < 3:
            clock.spawn(lambda: generation(number + 1), f"generation {number + 1}")
        log.append((clock.seconds, f"{number} goes on"))
        clock.sleep(1.0)
        log.append((clock.seconds, f"{number} ends"))

    def parent() -> None:
        clock.sleep(2.0)
        generation(0)

    run(clock, parent=parent)
    assert log == [
        (2.0, word) for number in range(4) for word in (f"{number} begins", f"{number} goes on")
    ] + [(3.0, "0 ends")]


def test_a_run_ends_with_its_own_tasks_and_the_next_one_goes_on_with_the_others(clock: VirtualClock) -> None:
    """A worker that counts every second is at 2 when its parent has ended after 2.5 s, and at 5 later."""
    counted: list[float] = []

    def worker() -> None:
        while True:
            clock.sleep(1.0)
            counted.append(clock.seconds)

    def parent() -> None:
        clock.spawn(worker, "worker")
        clock.sleep(2.5)

    run(clock, parent=parent)
    assert counted == [1.0, 2.0]
    run(clock, other=lambda: clock.sleep(3.0))
    assert counted == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("set_at", "timeout", "expected"),
    [
        (2.0, None, (True, 2.0)),
        (2.0, 3.0, (True, 2.0)),
        (2.0, 1.5, (False, 1.5)),
        (2.0, 2.0, (False, 2.0)),  # the time-out was asked for first
        (1.0, 0.0, (False, 0.0)),
        (0.0, 1.0, (True, 0.0)),
    ],
)
def test_an_event_wakes_when_it_is_set_or_when_the_time_is_out(
    clock: VirtualClock, set_at: float, timeout: float | None, expected: tuple[bool, float]
) -> None:
    """What `wait` says, and at what time it says so; both to the last bit."""
    event = clock.event()

    def waiter() -> tuple[bool, float]:
        return event.wait(timeout), clock.seconds

    def setter() -> None:
        clock.sleep(set_at)
        event.set()

    assert run(clock, waiter=waiter, setter=setter) == [expected, None]
    assert event.is_set() and clock.seconds == max(set_at, expected[1])
    assert run(clock, late=waiter) == [(True, clock.seconds)]  # that it happened stays so


def test_an_event_wakes_all_who_wait_in_their_order_and_each_once(clock: VirtualClock) -> None:
    """Those that came at 3, 1 and 2 s wake at 5 s as they came; who gave up at 4 s waits once more."""
    event, log = clock.event(), []

    def waiter(name: str, after: float, timeout: float | None = None) -> None:
        clock.sleep(after)
        log.append((name, event.wait(timeout), clock.seconds))
        if timeout:
            log.append((name, event.wait(timeout), clock.seconds))

    def setter() -> None:
        clock.sleep(5.0)
        event.set()

    run(
        clock,
        c=lambda: waiter("c", 3.0),
        a=lambda: waiter("a", 1.0),
        b=lambda: waiter("b", 2.0, timeout=2.0),
        setter=setter,
    )
    assert log == [("b", False, 4.0), ("a", True, 5.0), ("c", True, 5.0), ("b", True, 5.0)]


def test_what_is_cancelled_is_not_called(clock: VirtualClock) -> None:
    """However often one cancels, and also what has been called."""
    called: list[int] = []

    def work() -> None:
        numbers = [clock.at(float(number), partial(called.append, number)) for number in range(10)]
        clock.sleep(1.5)
        for number in (3, 4, 3, 1):
            clock.cancel(numbers[number])
        clock.sleep(10.0)

    run(clock, worker=work)
    assert called == [0, 1, 2, 5, 6, 7, 8, 9]


def test_threads_and_the_virtual_clock_do_the_same(clock: VirtualClock) -> None:
    """A worker doubles what it is given, with a queue there and an event back: the program is one."""

    def program(scheduler: Scheduler) -> list[int]:
        queue, results = scheduler.queue(), {}

        def worker(queue: Queue = queue) -> None:
            while (item := queue.get()) is not None:
                number, done = item
                scheduler.sleep(0.001)
                results[number] = 2 * number
                done.set()

        scheduler.spawn(worker, "worker")
        begin, sent = scheduler.now(), []
        for number in range(5):
            sent.append(scheduler.event())
            queue.put((number, sent[-1]))
        assert not sent[-1].is_set()
        assert all(done.wait(10.0) for done in sent)
        queue.put(None)
        assert 5_000_000 <= scheduler.now() - begin < 5_000_000_000
        assert not scheduler.event().wait(0.001)
        return list(results.values())

    assert program(THREADS) == [0, 2, 4, 6, 8]
    assert run(clock, program=lambda: program(clock)) == [[0, 2, 4, 6, 8]]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_first_error_of_any_task_ends_the_run(clock: VirtualClock, error: type[BaseException]) -> None:
    """At its time, also of a task that another one started, and Ctrl-C too: later ones never happen."""
    reached: list[str] = []

    def failing(name: str, after: float) -> None:
        clock.sleep(after)
        reached.append(name)
        raise error(name)

    def parent() -> None:
        clock.spawn(lambda: failing("spawned", 2.0), "spawned")
        clock.sleep(10.0)

    with pytest.raises(error, match="spawned"):
        run(clock, late=lambda: failing("late", 3.0), parent=parent)
    assert (reached, clock.seconds) == (["spawned"], 2.0)


def test_a_standstill_says_when_and_who_waits_for_what(clock: VirtualClock) -> None:
    """Three tasks for what never happens, at 1.5 s; neither who has ended counts, nor an old time-out."""

    def never(what: str) -> None:
        VirtualEvent(clock, what).wait()

    def queued() -> None:
        clock.queue().get()

    def late() -> None:
        over = clock.event()
        clock.at(1.5, over.set)
        over.wait(timeout=100.0)
        never("the end of the world")

    with pytest.raises(SimulatedDeadlock) as raised:
        run(clock, alice=lambda: never("Bob"), ended=lambda: clock.sleep(1.0), carol=queued, dave=late)
    assert str(raised.value) == (
        "the simulation stands still at 1.5 s: alice waits for Bob; carol waits for work; "
        "dave waits for the end of the world"
    )


def test_closing_ends_the_tasks_and_runs_their_finally_blocks(clock: VirtualClock) -> None:
    """Those that sleep, wait and have not begun; a finally block that waits is cut short, not hung."""
    log: list[str] = []

    def guarded(name: str, wait: Function) -> None:
        log.append(f"{name} begins")
        try:
            wait()
        finally:
            log.append(f"{name} cleans up")
            clock.sleep(1.0)
            log.append(f"{name} has slept")

    def late() -> None:
        clock.start(lambda: log.append("never"), "not begun")
        raise ValueError

    clock.start(lambda: guarded("sleeper", lambda: clock.sleep(9.0)), "sleeper")
    clock.start(lambda: guarded("waiter", clock.event().wait), "waiter")
    with pytest.raises(ValueError):
        run(clock, late=late)
    assert log == ["sleeper begins", "waiter begins"]
    clock.close()
    assert log[2:] == ["sleeper cleans up", "waiter cleans up"]
    clock.close()  # a second time does nothing
    run(clock, after=lambda: clock.sleep(1.0))
    assert clock.seconds == 1.0 and len(log) == 4


def test_a_watcher_is_called_while_time_passes(clock: VirtualClock) -> None:
    """Twelve thousand events are seen about every thousandth; nothing is lost by it."""
    seen: list[float] = []

    def worker() -> int:
        for _ in range(6000):
            clock.sleep(1.0)
        return 7

    tasks = [clock.start(worker, "one"), clock.start(worker, "other")]
    assert clock.run(tasks, watch=lambda: seen.append(clock.seconds)) == [7, 7]
    assert 10 <= len(seen) <= 14 and seen == sorted(seen)
