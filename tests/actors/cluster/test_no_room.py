"""Claims about a cluster whose CPUs other work holds: the truth with numbers, and nothing left behind"""

import os
import re
import threading
from pathlib import Path

import pytest
import ray
from ray.util.placement_group import placement_group_table

from d5ray.actors.cluster import placement
from d5ray.actors.cluster.placement import Reservation, memory_bytes, reserve
from d5ray.actors.session import session
from d5ray.actors.session.ray_processes import HEAD_SECONDS
from d5ray.errors import PlacementError
from tests.patience import patience


@pytest.fixture
def held() -> float:
    """A Ray whose CPUs another's actors hold, all but one; how many there are."""
    session.shutdown()  # that of tests before
    session.connect(None, cpus=2, metadata={"task": "test"}, quiet=True)
    whole = ray.cluster_resources()["CPU"]
    busy = ray.remote(num_cpus=whole - 1)(threading.Event).remote()
    ray.get(busy.is_set.remote())
    _HOLDERS.append(busy)
    return float(whole)


_HOLDERS: list[object] = []


def granted() -> list[str]:
    """The states of the placement groups that are not removed."""
    return [each["state"] for each in placement_group_table().values() if each["state"] != "REMOVED"]


@pytest.mark.full
def test_room_that_others_hold_is_told_in_numbers(held: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than a silent head would be waited for, Ray answers, and the error says who has the room.

    When the others give it back, nobody gets a group that was asked for before.
    """
    monkeypatch.setattr(placement, "PLACEMENT_SECONDS", HEAD_SECONDS + 2)
    with pytest.raises(PlacementError) as refused:
        reserve(2, Reservation(1.0))
    told = re.search(r"2 CPUs asked, (\d+) of (\d+) free, (\d+) held", str(refused.value))
    assert told and [float(each) for each in told.groups()] == [1.0, held, held - 1]
    assert "memory" not in str(refused.value)
    ray.kill(_HOLDERS.pop())
    whole = ray.remote(num_cpus=held)(lambda: 0).remote()  # which needs all that the others had
    assert ray.get(whole, timeout=patience(60.0)) == 0
    assert granted() == []
    bundles = reserve(2, Reservation(1.0))
    assert granted() == ["CREATED"]
    ray.util.remove_placement_group(bundles)


@pytest.mark.full
def test_group_is_given_back_where_nobody_waits_any_more(held: float) -> None:
    """Ctrl-C while others hold the room takes the group back."""
    timer = threading.Timer(2.0, os.kill, (os.getpid(), 2))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        reserve(2, Reservation(1.0))
    assert granted() == []
    ray.kill(_HOLDERS.pop())


@pytest.mark.parametrize("file", ["memory.max", "memory/memory.limit_in_bytes"])
def test_a_container_has_no_more_memory_than_it_is_given(file: str, tmp_path: Path) -> None:
    """By its control group, of either version; without a limit it has the machine's."""
    whole = memory_bytes(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    for limit, expected in (("5000\n", 5000), ("max\n", whole)):
        (tmp_path / file).write_text(limit)
        assert memory_bytes(tmp_path) == expected > 0
