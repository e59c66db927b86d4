"""The oracle of the communicators: members are threads of one process, every operation a line of NumPy"""

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any, final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature, disagreement
from d5ray.distributed.communicators.backend_hooks import Pairs
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import D5Error, PeerLost

Array = np.ndarray[Any, Any]
REDUCE: dict[str, Callable[[Array], Array]] = {
    "sum": lambda stacked: stacked.sum(axis=0, dtype=stacked.dtype),
    "min": lambda stacked: stacked.min(axis=0),
    "max": lambda stacked: stacked.max(axis=0),
}


class _Table:
    """The table where members of one group put their arrays: copies, in the order of ranks."""

    def __init__(self, size: int) -> None:
        self.changed = threading.Condition()
        self.size = size
        self.present: set[int] = set()
        self.given: dict[int, dict[int, tuple[Signature, Array]]] = defaultdict(
            dict
        )  # by the operation's number
        self.messages: dict[tuple[int, int, int], list[tuple[Signature, Array]]] = defaultdict(list)
        self.failure: D5Error | None = None


_TABLES: dict[str, _Table] = {}
_LOCK = threading.Lock()


@final
class Reference(Communicator):
    """Plain and slow. Traffic is that of a table in the middle: an array there and one back, an operation."""

    backend = "reference"

    def __init__(self, group: Group, topology: Topology) -> None:
        super().__init__(group, topology)
        with _LOCK:
            self._table = _TABLES.setdefault(group.label, _Table(group.size))
        self._number = 0  # of this member's next collective
        with self._table.changed:
            self._table.present.add(self.rank)
            self._table.changed.notify_all()
            self._wait(lambda: len(self._table.present) == self.size, "join")
        with _LOCK:
            _TABLES.pop(group.label, None)

    def _close(self) -> None:
        with self._table.changed:
            failure = PeerLost(self.rank, "it left the group")
            self._table.failure = self._table.failure or failure
            self._table.changed.notify_all()

    def _allreduce(self, flat: Any, operation: str, call: Signature) -> None:
        flat[...] = REDUCE[operation](self._gather(flat, call))

    def _reduce_scatter(self, flat: Any, operation: str, call: Signature) -> None:
        own = self.bounds(flat.size)[self.rank]
        flat[own] = REDUCE[operation](self._gather(flat, call))[own]

    def _all_gather(self, flat: Any, call: Signature) -> None:
        everyone = self._gather(flat, call)
        for rank, part in enumerate(self.bounds(flat.size)):
            flat[part] = everyone[rank, part]

    def _all_to_all(self, flat: Any, call: Signature) -> None:
        everyone = self._gather(flat, call).reshape(self.size, self.size, -1)  # (from, to, part)
        flat[...] = everyone[:, self.rank].reshape(-1)

    def _broadcast(self, flat: Any, root: int, call: Signature) -> None:
        flat[...] = self._gather(flat, call)[root]

    def _barrier(self, call: Signature) -> None:
        self._gather(np.empty(0), call)

    def _exchange(self, outgoing: Pairs, incoming: Pairs, call: Signature, tag: int) -> None:
        table = self._table
        with table.changed:
            for flat, to in outgoing:
                table.messages[self.rank, to, tag].append((call, flat.copy()))
            table.changed.notify_all()
            for flat, source in incoming:
                box = table.messages[source, self.rank, tag]
                self._wait(lambda box=box: bool(box), call.operation)  # type: ignore[misc]
                theirs, message = box.pop(0)
                if theirs.pack() != call.pack():
                    self._fail(disagreement({self.rank: call, source: theirs}))
                flat[...] = message
        self._moved_pairs(outgoing, incoming, rounds=1)

    def _gather(self, flat: Array, call: Signature) -> Array:
        """Everyone's array (members, n)."""
        table, number = self._table, self._number
        self._number += 1
        with table.changed:
            given = table.given[number]
            given[self.rank] = (call, flat.copy())
            table.changed.notify_all()
            self._wait(lambda: len(given) == self.size, call.operation)
            calls = {rank: theirs for rank, (theirs, _) in given.items()}
            if len(set(calls.values())) > 1:
                self._fail(disagreement(calls))
            table.given.pop(number - 1, None)  # everyone has begun the next one
        self._moved(sent=flat.nbytes, received=flat.nbytes, messages=1, rounds=1)
        return np.stack([given[rank][1] for rank in range(self.size)])

    def _wait(self, happened: Callable[[], bool], what: str) -> None:
        """Wait on the table, which is locked, until it happened or the group failed."""
        table = self._table
        seconds = self.group.timeout_seconds
        table.changed.wait_for(lambda: happened() or table.failure is not None, timeout=seconds)
        if happened():
            return
        if table.failure is not None:
            raise table.failure.with_traceback(None)
        raise PeerLost(None, f"nobody answered {what} within {seconds:g} s")

    def _fail(self, error: D5Error) -> None:
        self._table.failure = self._table.failure or error
        self._table.changed.notify_all()
        raise error
