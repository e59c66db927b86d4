"""Claims about the coordinator: where the members of a group meet, epoch after epoch"""

from contextlib import closing

import numpy as np
import pytest

from d5ray.actors.cluster.placement import Place
from d5ray.actors.group.coordinator import LOOPBACK, Coordinator
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
