"""Claims about agents that no node has room for: they are told of once, when they are late"""

from typing import Any

import pytest

from d5ray.actors.group import room
from d5ray.actors.group.partitions import _cuts
from d5ray.actors.group.room import Room

WHY = "its node is lost"


def test_who_waits_for_room_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before it is late, not where there is room, once an attempt, and asked now and then alone."""
    told: list[tuple[str, int, Any]] = []
    asked: list[int] = []
    missing = {1: WHY, 2: ""}

    def why(rank: int) -> str:
        asked.append(rank)
        return missing[rank]

    rooms = Room(why, lambda name, rank, **detail: told.append((name, rank, detail)))
    rooms.look(1, 1, seconds=1.0)
    assert not asked
    for _ in range(3):
        rooms.look(1, 1, seconds=20.0)
        rooms.look(2, 1, seconds=20.0)
    assert asked == [1, 2]
    assert told == [("agent_waits", 1, {"reason": WHY})]
    monkeypatch.setattr(room, "LOOK_SECONDS", 0.0)
    missing[2] = WHY
    for attempt in (1, 1, 2, 2):
        rooms.look(1, attempt, seconds=20.0)
        rooms.look(2, attempt, seconds=20.0)
    assert [rank for _, rank, _ in told] == [1, 2, 1, 2]


def test_of_each_host_one_node_changes_the_routes() -> None:
    """To all addresses of the other side, each once, also where a host has two nodes."""
    sides = {"a": "10.0.0.1", "b": "10.0.0.1"}, {"c": "10.0.0.3", "d": "10.0.0.2", "e": "10.0.0.3"}
    assert _cuts(sides) == [
        ("a", ["10.0.0.2", "10.0.0.3"]),
        ("c", ["10.0.0.1"]),
        ("d", ["10.0.0.1"]),
    ]
