"""Claims about the clock of a run: it goes on as it began, on the machine where it did"""

import time

from d5ray.metrics.record.run_clock import RunClock, boot, measured

HOUR = 3600 * 10**9


def test_a_clock_goes_on_as_it_was_when_the_run_began() -> None:
    """One of a run before whose beginning the clock was set by an hour is an hour away from the machine's."""
    clock = RunClock(offset=measured() - HOUR)
    assert clock.wall_minus_mono == clock.offset
    assert abs(clock.time_ns() - time.time_ns() + HOUR) < 10**9
    assert abs(clock.now().timestamp() - time.time() + 3600) < 1


def test_another_machine_has_a_monotonic_clock_of_its_own() -> None:
    """Its processes add what they measure themselves."""
    clock = RunClock(offset=measured() - HOUR, boot="of another machine")
    assert abs(clock.wall_minus_mono - measured()) < 10**9
    assert boot() and RunClock().boot == boot()
