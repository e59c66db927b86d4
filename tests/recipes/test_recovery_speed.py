"""Claims about timing recoveries: what the marks of processes say of a kill, and who is measured"""

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from benchmarks.recovery_speed import recipe
from benchmarks.recovery_speed.baselines import killed_and_replaced, workers
from benchmarks.recovery_speed.marks import Kill, Marks, Noted, noted, outcome
from d5ray.errors import AgentError, D5Error
from tests.kits.laboratory.comparing import job_of

SECOND = 10**9


def values(all_: list[Noted], moment: float, victim: int) -> dict[str, float | None]:
    found = outcome(all_, int(moment * SECOND), victim)
    return {each.metric: each.values[0] for each in found}


def process(rank: int, pid: int, begin: int, at: list[float], sha256: str = "") -> Noted:
    """Steps from this one on, committed at these seconds."""
    return Noted(rank, pid, [int(each * SECOND) for each in at], list(range(begin, begin + len(at))), sha256)


def test_the_recovery_ends_with_the_longest_pause_of_the_slowest_survivor() -> None:
    """A step that was under way at the kill and is done a moment later is none; the newcomer is another's."""
    first = process(0, 10, 1, [1, 2, 3, 3.6, 4, 5, 6], "a")
    second = process(2, 12, 1, [1, 2, 3, 3.1, 5.5, 5.6, 6], "a")
    victim, newcomer = process(1, 11, 1, [1, 2, 2.9]), process(1, 13, 4, [7, 8], "a")
    assert values([first, victim, second, newcomer], 3.05, 11) == {
        "recovery_time": pytest.approx(5.5 - 3.05), "newcomer_time": pytest.approx(7 - 3.05),
        "undone_steps": 0.0, "equal_at_the_end": 1.0,
    }  # fmt: skip


def test_steps_that_are_done_again_are_undone_and_unequal_hashes_are_not_equal() -> None:
    survivor = process(0, 10, 1, [1, 2, 3], "a")
    survivor.times += [9 * SECOND, 10 * SECOND]
    survivor.steps += [2, 3]
    other = process(2, 12, 1, [1, 2, 3, 9, 10], "b")
    found = values([survivor, process(1, 11, 1, [1, 2]), other], 3.1, 11)
    assert (found["undone_steps"], found["equal_at_the_end"]) == (2.0, 0.0)
    assert "newcomer_time" not in found


def test_where_nobody_survives_the_first_newcomer_ends_the_recovery() -> None:
    """Ray Train's workers, from their checkpoint of step 10."""
    old = [process(rank, 10 + rank, 1, list(np.linspace(0.1, 1.4, 14))) for rank in range(3)]
    new = [process(rank, 20 + rank, 11, [9 + rank, 12], "a") for rank in range(3)]
    found = values([*old, *new], 1.45, 11)
    assert found["recovery_time"] == found["newcomer_time"] == pytest.approx(9 - 1.45)
    assert (found["undone_steps"], found["equal_at_the_end"]) == (4.0, 1.0)


def train(given: dict[str, Any], _: int) -> None:
    """Steps of a millisecond, until the file says so."""
    marks, step = Marks(given["folder"], given["rank"]), 1
    while not marks.committed(step):
        time.sleep(1e-3)
        step += 1
    marks.end(np.zeros(2))


@pytest.mark.full
def test_one_of_the_processes_is_killed_and_the_others_are_ended(tmp_path: Path) -> None:
    """Another one takes its place; those that are left end with the same, and nothing is left of them."""
    job = job_of(recipe, steps=5, seconds=60.0)
    with workers(tmp_path) as start:
        rows = killed_and_replaced(3, job, tmp_path, train, {}, start)
    found = {each.metric: each.values[0] for each in rows}
    assert found["equal_at_the_end"] == 1.0 and (found["newcomer_time"] or 0) > 0
    assert sorted((each.rank, bool(each.sha256)) for each in noted(tmp_path)) == [
        (0, True), (1, False), (1, True), (2, True),
    ]  # fmt: skip
    assert not any(psutil.pid_exists(each.pid) for each in noted(tmp_path))


def test_a_worker_that_does_not_do_it_is_told_with_what_it_wrote(tmp_path: Path) -> None:
    """It has no `rank`."""
    with (
        pytest.raises(D5Error, match=r"(?s)was not told within 0 s.*KeyError: 'rank'"),
        workers(tmp_path) as go,
    ):
        go(train, {"folder": str(tmp_path)})
        while not (tmp_path / "train-0" / "0.log").read_text().count("KeyError"):
            time.sleep(0.05)
        raise AgentError("it was not told within 0 s")


def test_who_does_not_train_in_time_is_an_error_that_says_how_far_all_came(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path), 2)
    marks.committed(1)
    with pytest.raises(D5Error, match=r"not all of 3 processes did 5 steps in time; .* rank 2: 1$"):
        Kill(3, 5, 2, 0.1).strike(tmp_path)
    assert marks.committed(2)  # who still trains ends
