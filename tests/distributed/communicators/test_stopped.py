"""Claims about members that stop and do not die: who is named when a time-out ends the waits for them"""

import os
import signal
import time
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Ring
from d5ray.errors import PeerLost
from tests.distributed.elsewhere import elsewhere
from tests.patience import patience

TRIALS = 2
SECONDS = 3.0  # the time-out; more on a busy machine, on which members take longer to join
MEMBERS = 4


def train(pipe: Any, backend: str) -> None:
    """Join every group that comes, and exchange in it until a member is lost; say which, and why."""
    import_module("d5ray.distributed.communicators.socket.communicator")
    pipe.send("imported")
    while (group := pipe.recv()) is not None:
        communicator = backends.join(backend, group, Ring(group.size))
        array, small = np.full(40_000, float(group.rank)), np.full(10, float(group.rank))
        pipe.send("ready")
        try:
            while True:
                communicator.allreduce(array, "mean")
                communicator.neighbor_average(small)
                communicator.all_gather(array)
        except PeerLost as lost:
            pipe.send((lost.rank, lost.detail))
        communicator.close()


@pytest.mark.full
@pytest.mark.parametrize("backend", ["shared_memory", "socket"])
def test_a_member_that_is_stopped_is_named_by_all_that_wait_for_it_or_for_each_other(backend: str) -> None:
    """SIGSTOP at a seeded instant of an exchange, six times: three name it, though most wait for another."""
    rng = np.random.default_rng(5)
    rendezvous, seconds = Rendezvous(), patience(SECONDS)
    with ExitStack() as stack:
        stack.callback(rendezvous.close)
        members = [stack.enter_context(elsewhere(train, backend)) for _ in range(MEMBERS)]
        assert [member.said(patience(60)) for member in members] == ["imported"] * MEMBERS
        for trial in range(TRIALS):
            for rank, member in enumerate(members):
                store = rendezvous.address
                member.tell(Group("stopped", trial, rank, MEMBERS, store, timeout_seconds=seconds))
            assert [member.said(patience(60)) for member in members] == ["ready"] * MEMBERS
            stopped = 2 if trial < 3 else int(rng.integers(MEMBERS))
            time.sleep(float(rng.uniform(0.05, 0.2)))
            os.kill(members[stopped].pid, signal.SIGSTOP)
            others = [member for rank, member in enumerate(members) if rank != stopped]
            said = [member.said(seconds + patience(15)) for member in others]
            os.kill(members[stopped].pid, signal.SIGCONT)
            assert said == [(stopped, f"no sign of life for {seconds:g} s")] * (MEMBERS - 1)
            members[stopped].said(patience(20))
        for member in members:
            member.tell(None)
