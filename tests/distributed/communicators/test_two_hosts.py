"""Claims about groups over two hosts with addresses of their own: namespaces joined by a virtual cable"""

import json
import sys
import time
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost
from tests.distributed.stores import read, written
from tests.hosts import Host, hosts
from tests.links import link, without_offloads
from tests.patience import patience

SECONDS = 20.0  # the time-out, after which a host that does not answer is noticed at the latest
NOTICED_SECONDS = 6.0  # later than that, with the time in which the members agree on who it was
APART_SECONDS = 8.0  # of a partition
STEPS, STEP_SECONDS = 400, 0.01
FEW = 40  # steps over a slow link


def member(rank: int, hosted_at: str, address: str, nodes: str, ends: str) -> None:
    """What runs on a host: reduces once, and then, if the group is to end so, until a peer is lost."""
    group = Group(
        "hosts",
        0,
        rank,
        3,
        read(hosted_at),
        host=address,
        timeout_seconds=SECONDS,
        nodes=tuple(nodes.split(",")),
    )
    communicator = backends.join("auto", group, Complete(3))
    array = np.arange(1000, dtype=np.float64) * (rank + 1)
    communicator.allreduce(array)
    say(backend=communicator.backend, last=array[-1], sent=communicator.traffic.bytes_sent)
    if ends == "lost":
        try:
            while True:
                communicator.allreduce(array, "mean")
                time.sleep(0.01)
        except PeerLost as error:
            say(lost=error.rank, at=time.time())
    if ends.endswith("steps"):
        for step in range(FEW if ends == "after few steps" else STEPS):
            communicator.allreduce(array, "mean")
            array += np.random.default_rng([step, rank]).standard_normal(len(array))
            time.sleep(STEP_SECONDS)
        say(sha256=sha256(array.tobytes()).hexdigest())
    communicator.close()


def say(**facts: Any) -> None:
    """A line for the test that reads it."""
    print(json.dumps(facts), flush=True)  # noqa: T201 - a program's output


def started(places: list[Host], nodes: str, ends: str, store: Store) -> list[Any]:
    """Rank r on places[r]."""
    return [
        place.start(__file__, str(rank), written(store), place.address, nodes, ends)
        for rank, place in enumerate(places)
    ]


def finished(processes: list[Any]) -> list[list[dict[str, Any]]]:
    """What each said, line by line."""
    said = []
    for process in processes:
        out, err = process.communicate(timeout=patience(60))
        assert process.returncode == 0, err
        said.append([json.loads(line) for line in out.splitlines()])
    return said


@pytest.mark.full
def test_a_group_over_two_hosts_reduces_and_uses_memory_within_a_host() -> None:
    """Ranks 0 and 1 on one host, 2 on another: hierarchical; with three hosts named it is sockets."""
    with hosts(2) as (first, second):
        rendezvous = Rendezvous("10.213.77.254")
        try:
            for nodes, backend in (("a,a,b", "hierarchical"), ("a,b,c", "socket")):
                said = finished(started([first, first, second], nodes, "at once", rendezvous.address))
                assert [lines[0]["backend"] for lines in said] == [backend] * 3
                assert [lines[0]["last"] for lines in said] == [999.0 * 6] * 3
                assert all(lines[0]["sent"] > 0 for lines in said)
        finally:
            rendezvous.close()


@pytest.mark.slow
def test_a_host_that_is_unplugged_is_named() -> None:
    """No FIN comes from a host whose cable is pulled; the others know by the time-out who it was."""
    with hosts(3) as places:
        rendezvous = Rendezvous("10.213.77.254", seconds=SECONDS)
        processes = started(places, "a,b,c", "lost", rendezvous.address)
        try:
            assert processes[0].stdout is not None
            assert json.loads(processes[0].stdout.readline())["backend"] == "socket"
            time.sleep(0.5)
            pulled = time.time()
            places[1].unplug()
            said = finished([processes[0], processes[2]])
            for lines in said:
                assert lines[-1]["lost"] == 1
                assert lines[-1]["at"] - pulled < SECONDS + patience(NOTICED_SECONDS)
        finally:
            for process in processes:
                process.kill()
                process.communicate()
            rendezvous.close()


@pytest.mark.full
@pytest.mark.parametrize(("nodes", "backend"), [("a,b,c", "socket"), ("a,a,b", "hierarchical")])
def test_a_partition_shorter_than_the_time_out_is_survived(nodes: str, backend: str) -> None:
    """8 s without a cable, under a time-out of 20 s: all steps are done, with the result of a run without."""
    found = []
    for apart in (True, False):
        with hosts(3) as places:
            rendezvous = Rendezvous("10.213.77.254", seconds=SECONDS)
            by_node = dict(zip("abc", places, strict=True))
            at = [by_node[node] for node in nodes.split(",")]
            processes = started(at, nodes, "after steps", rendezvous.address)
            try:
                assert processes[0].stdout is not None
                assert json.loads(processes[0].stdout.readline())["backend"] == backend
                if apart:
                    time.sleep(0.5)
                    at[2].unplug()
                    time.sleep(APART_SECONDS)
                    at[2].plug()
                found.append([lines[-1]["sha256"] for lines in finished(processes)])
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()
                rendezvous.close()
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_link_that_is_slow_and_loses_frames_changes_no_bit() -> None:
    """Each frame takes 50 ms, and 5 % are lost: all steps are done, with the result of a good link."""
    found, seconds = [], []
    for delay, share in ((0.0, 0.0), (0.05, 0.05)):
        with hosts(3) as places, link(places[2]) as way:
            for place in places:
                without_offloads(place)
            rendezvous = Rendezvous("10.213.77.254", seconds=SECONDS)
            processes = started(places, "a,b,c", "after few steps", rendezvous.address)
            try:
                assert processes[0].stdout is not None
                assert json.loads(processes[0].stdout.readline())["backend"] == "socket"
                way.worsen(delay, share)
                begun = time.monotonic()
                found.append([lines[-1]["sha256"] for lines in finished(processes)])
                seconds.append(time.monotonic() - begun)
            finally:
                for process in processes:
                    process.kill()
                    process.communicate()
                rendezvous.close()
    assert found[0] == found[1]
    assert seconds[1] > FEW * 0.1  # there and back


if __name__ == "__main__":
    member(int(sys.argv[1]), *sys.argv[2:6])
