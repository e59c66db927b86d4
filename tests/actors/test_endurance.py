"""Claims about how runs of hours are judged: what grows is seen in noise, and what was not seen is said"""

import os
import subprocess
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.actors import endurance
from tests.actors.endurance import Ended, Meter, grown, judged, unseen
from tests.conftest import wait_until

SECONDS = 7200
ENDED = Ended(Path(), 0.9, "same", SECONDS, Counter(fault=359), [])


def seen(leak: float, recoveries: bool = True) -> list[float]:
    """A look every second at 400 MB and noise, to which `leak` come an hour; a recovery takes 80 more."""
    at = np.arange(SECONDS)
    noise = np.random.default_rng(3).normal(0.0, 5.0, SECONDS)
    more = np.where(at % 20 < 3, 80.0, 0.0) if recoveries else 0.0
    return list(400.0 + leak * at / 3600 + noise + more)


@pytest.mark.parametrize("recoveries", [False, True])
@pytest.mark.parametrize(("leak", "wrong"), [(0.0, 0), (10.0, 0), (40.0, 1)])
def test_a_leak_is_seen_though_every_recovery_takes_more_for_a_moment(
    leak: float, wrong: int, recoveries: bool
) -> None:
    """40 MB an hour are a tenth, and much less than what a recovery takes; the noise of medians is small."""
    values = seen(leak, recoveries)
    second, _, more, noise = grown(values)
    assert second == pytest.approx(400 + 0.75 * leak, abs=3) and noise < 5
    assert more == pytest.approx(leak, abs=2)
    found = list(judged("allreduce", ENDED, Meter({}, {"driver: MB": values}), [ENDED]))
    assert len(found) == wrong and all("driver: MB grew" in each for each in found)


def test_what_was_not_looked_at_all_the_time_is_wrong() -> None:
    """Too few looks; and a process that ends in the midst, from when on nothing is seen."""
    few = Meter({}, {"driver: MB": seen(0.0)[: SECONDS // 3]})
    (text,) = judged("allreduce", ENDED, few, [ENDED])
    assert "looked 2400 times in 7200 s, less than 3600" in text
    assert list(unseen(Meter({}), 1.0)) and not list(unseen(Meter({}, {"driver: MB": seen(0.0)}), SECONDS))


def test_a_process_that_ends_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that lives for a moment, beside this one."""
    monkeypatch.setattr(endurance, "LOOK_SECONDS", 0.01)
    with subprocess.Popen(["sleep", "0.5"]) as process:
        meter = Meter({"driver": os.getpid(), "agent": process.pid})
        looking = threading.Thread(target=meter.run, daemon=True)
        looking.start()
        process.wait()
        wait_until(lambda: meter.blind > endurance.MOST_BLIND, 10)
        meter.over.set()
        looking.join()
    looks = len(meter.values["driver: MB"])
    (text,) = unseen(replace_values(meter, 100), 1.0)
    assert looks >= 1 and f"'agent': {process.pid}" in text


def replace_values(meter: Meter, looks: int) -> Meter:
    """The same meter with so many looks before."""
    return Meter(meter.pids, {"driver: MB": seen(0.0)[:looks]}, meter.over, meter.blind)
