"""Several agents on each of several nodes: shared memory within a node, sockets between nodes"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.agreement.watchdog import Watchdog
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.topologies.topology import Complete, Topology
from d5ray.errors import ConfigurationError, D5Error, PeerLost

WITHIN, BETWEEN = "shared_memory", "socket"
PART_RANK = re.compile(r"\brank (\d+):")  # as `disagreement` writes it


@final
class Hierarchical(Communicator):
    """Collectives in three steps: within each node, between nodes, within each node again.

    allreduce, with the same number L of members on each of N nodes: reduce-scatter within the node, an
    allreduce of 1/L of the array between the members of equal position on the N nodes, all-gather within
    the node; a node sends 2(N−1)/N × payload in all, whatever L is. With different numbers of members the
    first member of each node sends for all. reduce_scatter, all_gather, all_to_all and pairs on different
    nodes go over sockets directly, pairs on one node through shared memory.
    (Hierarchical collectives: Karonis et al., doi 10.1109/IPDPS.2000.846009.)
    """

    backend = "hierarchical"

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        if len(group.nodes) != group.size:
            raise ConfigurationError(
                f"a hierarchical group of {group.size} needs the node of each member, found "
                f"{len(group.nodes)}: set Group.nodes"
            )
        self.membership = Membership(group)
        own = group.nodes[self.rank]
        names = tuple(dict.fromkeys(group.nodes))
        self._by_node = [[r for r in range(self.size) if group.nodes[r] == name] for name in names]
        self._node = names.index(own)
        self._here = self._by_node[self._node]
        self._position = self._here.index(self.rank)
        self._equal = len({len(members) for members in self._by_node}) == 1
        self._peers = [members[self._position] for members in self._by_node if self._position < len(members)]
        self._watchdog = Watchdog(self.membership)
        everyone = list(range(self.size))
        try:
            with self._naming(everyone):
                self._local = self._part(WITHIN, f"node-{self._node}", self._here)
                self._across = self._part(BETWEEN, f"position-{self._position}", self._peers)
                self._everyone = self._part(BETWEEN, "everyone", everyone)
        except BaseException:
            self._close()
            raise
        self.membership.on_failure(self._close_parts)  # the parts hear nothing of the whole group's failure

    def allocate(self, elements: int, dtype: str) -> np.ndarray[Any, Any]:
        return self._local.allocate(elements, dtype)

    def _part(self, backend: str, name: str, members: list[int]) -> Communicator:
        group = self.group.among(members, f"{self.group.name}/{name}")
        made = backends.join(backend, group, Complete(len(members)))
        made.traffic, made._whole = self.traffic, self
        return made

    def _waits(self) -> list[PresentWait]:
        return [wait for part in self._parts() for wait in part._waits()]

    def _parts(self) -> list[Communicator]:
        """The parts that there are: an error may come before all are."""
        named = (getattr(self, name, None) for name in ("_local", "_across", "_everyone"))
        return [part for part in named if part is not None]

    def _join(self, group: Group, topology: Topology) -> Communicator:
        return backends.join("auto", group, topology)

    def _close(self) -> None:
        self._watchdog.close()
        self.membership.leave()
        self._close_parts()

    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        with self._watchdog.watching(call):
            own = self._local.bounds(len(flat))[self._position]
            if self._equal:
                with self._naming(self._here):
                    self._local._reduce_scatter(flat, operation, call)
                with self._naming(self._peers):
                    self._across._allreduce(flat[own], operation, call)
                with self._naming(self._here):
                    self._local._all_gather(flat, call)
                return
            with self._naming(self._here):
                self._local._allreduce(flat, operation, call)
            if self._position == 0:
                with self._naming(self._peers):
                    self._across._allreduce(flat, operation, call)
            with self._naming(self._here):
                self._local._broadcast(flat, 0, call)

    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        with self._watchdog.watching(call), self._naming(range(self.size)):
            self._everyone._reduce_scatter(flat, operation, call)

    def _all_gather(self, flat: Any, call: Signature) -> None:
        with self._watchdog.watching(call), self._naming(range(self.size)):
            self._everyone._all_gather(flat, call)

    def _all_to_all(self, flat: Any, call: Signature) -> None:
        with self._watchdog.watching(call), self._naming(range(self.size)):
            self._everyone._all_to_all(flat, call)

    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        with self._watchdog.watching(call):
            node = next(number for number, members in enumerate(self._by_node) if root in members)
            if self._node == node:
                with self._naming(self._here):
                    self._local._broadcast(flat, self._here.index(root), call)
            if self._position == 0:
                with self._naming(self._peers):
                    self._across._broadcast(flat, node, call)
            if self._node != node:
                with self._naming(self._here):
                    self._local._broadcast(flat, 0, call)

    def _barrier(self, call: Signature) -> None:
        with self._watchdog.watching(call):
            with self._naming(self._here):
                self._local._barrier(call)
            if self._position == 0:
                with self._naming(self._peers):
                    self._across._barrier(call)
            with self._naming(self._here):
                self._local._barrier(call)

    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        here = {rank: position for position, rank in enumerate(self._here)}
        near_out, near_in = ([(flat, here[r]) for flat, r in p if r in here] for p in (outgoing, incoming))
        far_out, far_in = ([pair for pair in p if pair[1] not in here] for p in (outgoing, incoming))
        if near_out or near_in:
            with self._naming(self._here):
                self._local._exchange(near_out, near_in, call, tag)
        if far_out or far_in:
            with self._naming(range(self.size)):
                self._everyone._exchange(far_out, far_in, call, tag)

    @contextmanager
    def _naming(self, members: Sequence[int]) -> Iterator[None]:
        """A context in which a part's error is the whole group's: told to all, with the group's own ranks.

        members: the ranks in this group of the part's members, by the part's.
        """
        try:
            yield
        except PeerLost as lost:
            rank = None if lost.rank is None else members[lost.rank]
            error = self.membership.explain(PeerLost(rank, lost.detail))
            self._close_parts()
            raise error from None
        except D5Error as error:
            words = PART_RANK.sub(lambda found: f"rank {members[int(found[1])]}:", str(error))
            cause = ConfigurationError(words)
            self.membership.fail(cause)
            self._close_parts()
            raise cause from None

    def _close_parts(self) -> None:
        """Break the waits of members that wait for this one."""
        for part in self._parts():
            part.close()
