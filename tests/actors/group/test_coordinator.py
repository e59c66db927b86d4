"""Claims about where the members of a group meet, and about agents that no node has room for"""

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from d5ray.actors.cluster.placement import Place
from d5ray.actors.group import room
from d5ray.actors.group.coordinator import LOOPBACK, Coordinator
from d5ray.actors.group.partitions import _cuts
from d5ray.actors.group.room import Room
from d5ray.distributed.communicators.socket.communicator import Sockets
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost
from tests.together import together

HERE = Place("here", "127.0.0.2", "h", 1)  # an address of this machine that is not the usual loopback
ELSEWHERE = Place("elsewhere", "127.0.0.3", "e", 2)


def _hosts(groups: list[Group]) -> set[str]:
    """Where their rendezvous listens."""
    return {each.store.host for each in groups if each.store is not None}


def _sums(groups: list[Group]) -> list[float]:
    """What an allreduce of rank + 1 gives each member."""

    def one(rank: int) -> float:
        with closing(Sockets(groups[rank], Complete(groups[rank].size))) as made:
            x = np.array([rank + 1.0])
            made.allreduce(x)
            return float(x[0])

    return together(one, len(groups))


def test_members_of_other_nodes_find_the_rendezvous_whoever_met_first() -> None:
    """The first group, all on the driver's node, meets at the loopback address; a later one, of two nodes,
    where the other node can reach it; and those who still come to the first are not forgotten."""
    with closing(Coordinator("c", 10.0, HERE)) as coordinator:
        near = coordinator.issue([HERE, HERE])
        assert _hosts(near) == {LOOPBACK}
        far = coordinator.issue([HERE, HERE, ELSEWHERE])
        assert _hosts(far) == {HERE.address}
        assert _sums(far) == [6.0] * 3
        assert _sums(near) == [3.0] * 2
        coordinator.lose(near[1])
        again = coordinator.issue([HERE, HERE])
        assert again[0].store == near[0].store
        assert _sums(again) == [3.0] * 2


def test_a_lost_member_is_told_where_its_group_meets() -> None:
    with closing(Coordinator("c", 10.0, HERE)) as coordinator:
        coordinator.issue([HERE])
        far = coordinator.issue([HERE, ELSEWHERE])
        coordinator.lose(far[1])
        with pytest.raises(PeerLost, match="rank 1"):
            _sums(far[:1])


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
