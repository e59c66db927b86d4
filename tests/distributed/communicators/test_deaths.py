"""Claims about members killed or stopped in processes of their own: who is named, and what is left"""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Ring
from d5ray.errors import PeerLost
from tests.distributed.elsewhere import Elsewhere, elsewhere
from tests.patience import patience
from tests.together import noticed

BACKENDS = ["shared_memory", "socket"]
STOPPED_SECONDS = 3.0  # the time-out; more on a busy machine, on which members take longer to join
MEMBERS = 4


def train(pipe: Any, backend: str, elements: int) -> None:
    """Join every group that comes, and exchange in it until a member is lost; say which, and why."""
    import_module("d5ray.distributed.communicators.socket.communicator")
    pipe.send("imported")
    while (group := pipe.recv()) is not None:
        communicator = backends.join(backend, group, Ring(group.size))
        array = communicator.allocate(elements, "float32")
        array[:] = group.rank
        communicator.allreduce(array)
        pipe.send(float(array[-1]))
        small = np.full(10, float(group.rank))
        try:
            while True:
                communicator.allreduce(array, "mean")
                communicator.neighbor_average(small)
                communicator.all_gather(array)
        except PeerLost as lost:
            pipe.send((lost.rank, lost.detail))
        communicator.close()


@contextmanager
def members(backend: str, elements: int) -> Iterator[list[Elsewhere]]:
    """Processes that train."""
    with ExitStack() as stack:
        made = [stack.enter_context(elsewhere(train, backend, elements)) for _ in range(MEMBERS)]
        assert [member.said(patience(60)) for member in made] == ["imported"] * MEMBERS
        yield made


def form(members: list[Elsewhere], rendezvous: Rendezvous, epoch: int, seconds: float = 60.0) -> None:
    """They form a group, and exchange."""
    for rank, member in enumerate(members):
        member.tell(Group("deaths", epoch, rank, len(members), rendezvous.address, timeout_seconds=seconds))
    assert [member.said(patience(60)) for member in members] == [sum(range(len(members)))] * len(members)


@pytest.mark.parametrize("elements", [10, pytest.param(10_000_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_killed_member_is_named_and_the_group_formed_again(backend: str, elements: int) -> None:
    """SIGKILL amid exchanges, and while all others wait for it: they know within 5 s, and go on without.

    Here the survivors in `ray.util.collective` cannot form a group again. Nothing is left in shared memory.
    """
    rendezvous = Rendezvous()
    with members(backend, elements) as alive:
        pids = [member.pid for member in alive]
        for epoch, stopped in enumerate((False, True)):
            form(alive, rendezvous, epoch)
            if stopped:
                os.kill(alive[1].pid, signal.SIGSTOP)
                time.sleep(0.3)
            alive.pop(1).kill()
            with noticed():
                assert [member.said(20)[0] for member in alive] == [1] * len(alive)
        form(alive, rendezvous, 2)
        for member in alive:
            member.kill()
    rendezvous.close()
    assert [path for pid in pids for path in Path("/dev/shm").glob(f"d5ray-{pid}-*")] == []


@pytest.mark.full
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_member_that_is_stopped_is_named_by_all_that_wait_for_it_or_for_each_other(backend: str) -> None:
    """SIGSTOP at a seeded instant of an exchange: three name it, though most wait for another."""
    rng = np.random.default_rng(5)
    rendezvous, seconds = Rendezvous(), patience(STOPPED_SECONDS)
    with members(backend, 40_000) as all_of_them:
        for epoch in range(2):
            form(all_of_them, rendezvous, epoch, seconds)
            time.sleep(float(rng.uniform(0.05, 0.2)))
            os.kill(all_of_them[2].pid, signal.SIGSTOP)
            said = [member.said(seconds + patience(15)) for member in (*all_of_them[:2], all_of_them[3])]
            os.kill(all_of_them[2].pid, signal.SIGCONT)
            assert said == [(2, f"no sign of life for {seconds:g} s")] * (MEMBERS - 1)
            all_of_them[2].said(patience(20))
        for member in all_of_them:
            member.tell(None)
    rendezvous.close()
