"""Members of a group as threads of this process, for programs that try out what agents exchange"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TypeVar

from d5ray.checks import check_count
from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Complete

T = TypeVar("T")


def in_group(function: Callable[[Communicator], T], size: int = 2) -> list[T]:
    """What `function(communicator)` returns on each of `size` members of a group, in the order of ranks.

    The members are threads that communicate by shared memory, where agents are processes; an error of one of
    them is raised. A member that waits for another one for 30 s raises `PeerLost`.
    """
    check_count("size", size, low=1, high=1024)
    with closing(Rendezvous()) as rendezvous, ThreadPoolExecutor(size) as pool:

        def member(rank: int) -> T:
            group = Group("in_group", 0, rank, size, rendezvous.address, "127.0.0.1", timeout_seconds=30)
            with closing(backends.join("shared_memory", group, Complete(size))) as communicator:
                return function(communicator)

        return list(pool.map(member, range(size)))
