"""Claims about groups over two hosts with addresses of their own: namespaces joined by a virtual cable"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import PeerLost
from tests.distributed.forming import read, written
from tests.hosts import Host, hosts
from tests.links import Link, link, without_offloads
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


def finished(processes: list[Any]) -> list[list[dict[str, Any]]]:
    """What each said, line by line."""
    said = []
    for process in processes:
        out, err = process.communicate(timeout=patience(60))
        assert process.returncode == 0, err
        said.append([json.loads(line) for line in out.splitlines()])
    return said


@contextmanager
def running(nodes: str, backend: str, ends: str) -> Iterator[tuple[list[Host], list[Any], Link | None]]:
    """Three members on these nodes, which reduce with this backend: hosts, members, the link to the last."""
    with ExitStack() as stack:
        places, way = stack.enter_context(hosts(3)), None
        rendezvous = stack.enter_context(closing(Rendezvous("10.213.77.254", seconds=SECONDS)))
        by_node = dict(zip("abc", places, strict=True))
        if ends == "after few steps":
            way = stack.enter_context(link(places[2]))
            for place in places:
                without_offloads(place)
        at = [by_node[node] for node in nodes.split(",")]
        store = written(rendezvous.address)
        processes: list[Any] = [
            place.start(__file__, str(rank), store, place.address, nodes, ends)
            for rank, place in enumerate(at)
        ]
        try:
            first = json.loads(processes[0].stdout.readline())
            assert (first["backend"], first["last"]) == (backend, 999.0 * 6) and first["sent"] > 0
            yield at, processes, way
        finally:
            for process in processes:
                process.kill()
                process.communicate()


@pytest.mark.slow
def test_a_host_that_is_unplugged_is_named() -> None:
    """No FIN comes from a host whose cable is pulled; the others know by the time-out who it was."""
    with running("a,b,c", "socket", "lost") as (places, processes, _):
        time.sleep(0.5)
        pulled = time.time()
        places[1].unplug()
        for lines in finished([processes[0], processes[2]]):
            assert lines[-1]["lost"] == 1
            assert lines[-1]["at"] - pulled < SECONDS + patience(NOTICED_SECONDS)


@pytest.mark.full
@pytest.mark.parametrize(("nodes", "backend"), [("a,b,c", "socket"), ("a,a,b", "hierarchical")])
def test_a_partition_shorter_than_the_time_out_is_survived(nodes: str, backend: str) -> None:
    """8 s without a cable, under a time-out of 20 s: all steps are done, with the result of a run without."""
    found = []
    for apart in (True, False):
        with running(nodes, backend, "after steps") as (places, processes, _):
            if apart:
                time.sleep(0.5)
                places[2].unplug()
                time.sleep(APART_SECONDS)
                places[2].plug()
            found.append([lines[-1]["sha256"] for lines in finished(processes)])
    assert found[0] == found[1]


@pytest.mark.slow
def test_a_link_that_is_slow_and_loses_frames_changes_no_bit() -> None:
    """Each frame takes 50 ms, and 5 % are lost: all steps are done, with the result of a good link."""
    found, seconds = [], []
    for delay, share in ((0.0, 0.0), (0.05, 0.05)):
        with running("a,b,c", "socket", "after few steps") as (_, processes, way):
            assert way is not None
            way.worsen(delay, share)
            begun = time.monotonic()
            found.append([lines[-1]["sha256"] for lines in finished(processes)])
            seconds.append(time.monotonic() - begun)
    assert found[0] == found[1]
    assert seconds[1] > FEW * 0.1  # there and back


if __name__ == "__main__":
    member(int(sys.argv[1]), *sys.argv[2:6])
