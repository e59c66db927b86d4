"""The one place that touches torch.distributed: a gloo process group of its own, no global default group."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed
from torch import Tensor

from d5ray.errors import ConfigurationError, PeerLost

dist: Any = torch.distributed  # its type stubs lack most of what a process group has
T = TypeVar("T")
OPERATIONS = {"sum": dist.ReduceOp.SUM, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}
COMBINE: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
}
PAIR_TAG = 2**31 - 1  # of messages within an allreduce; those of callers are smaller


class Store:
    """A key-value store on a free port of `host`, by which the members of a group find each other."""

    def __init__(self, host: str, timeout_seconds: float) -> None:
        self._store = dist.TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_seconds)
        )
        self.address = (host, int(self._store.port))


class GlooGroup:
    """`ProcessGroupGloo` on a prefix of the store: any subset of processes, in any order of ranks.

    The class is semi-public in PyTorch, which is why it is wrapped here and the version pinned.
    Every wait ends: a peer that closed its connection, or is silent for `timeout_seconds`, raises `PeerLost`.
    """

    def __init__(
        self, name: str, rank: int, size: int, store: tuple[str, int], host: str, timeout_seconds: float
    ) -> None:
        self.rank = rank
        self.size = size
        timeout = timedelta(seconds=timeout_seconds)
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname=host)]
        options._timeout = timeout
        options._threads = 2
        client = self._bounded(
            lambda: dist.TCPStore(*store, is_master=False, wait_for_workers=False, timeout=timeout)
        )
        prefixed = dist.PrefixStore(name, client)
        self._theirs: Tensor | None = None  # what the other of two members sent, kept between calls
        self._group: Any = self._bounded(lambda: dist.ProcessGroupGloo(prefixed, rank, size, options))

    def allreduce(self, array: Any, operation: str) -> None:
        """In place: the sum, min or max over all members, bit for bit the same on each of them.

        Two members send each other their arrays: the bytes are those of gloo's ring, in one message each
        instead of two, and without the hand-over to gloo's worker threads, which costs more than the rest.
        """
        if self.size == 2:
            self._allreduce_pair(tensor(array), operation)
            return
        options = dist.AllreduceOptions()
        options.reduceOp = OPERATIONS[operation]
        self._wait(lambda group: group.allreduce([tensor(array)], options))

    def _allreduce_pair(self, mine: Tensor, operation: str) -> None:
        theirs = self._theirs
        if theirs is None or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
            theirs = self._theirs = torch.empty_like(mine)
        other = 1 - self.rank
        self.exchange([(mine, other)], [(theirs, other)], PAIR_TAG)
        COMBINE[operation](mine, theirs, out=mine)

    def broadcast(self, array: Any, root: int) -> None:
        """In place: the root's array on all members."""
        options = dist.BroadcastOptions()
        options.rootRank = root
        options.rootTensor = 0
        self._wait(lambda group: group.broadcast([tensor(array)], options))

    def barrier(self) -> None:
        """Wait for all members."""
        self._wait(lambda group: group.barrier(dist.BarrierOptions()))

    def exchange(self, outgoing: list[tuple[Any, int]], incoming: list[tuple[Any, int]], tag: int) -> None:
        """Send arrays to, and receive arrays from, members (array, rank), all at once."""
        group = self._open()
        works = self._bounded(
            lambda: (
                [group.recv([tensor(array)], rank, tag) for array, rank in incoming]
                + [group.send([tensor(array)], rank, tag) for array, rank in outgoing]
            )
        )
        for work in works:
            self._bounded(work.wait)

    def close(self) -> None:
        """Close the connections: a peer that waits for this member gets `PeerLost` at once."""
        self._group = None

    def _open(self) -> Any:
        if self._group is None:
            raise PeerLost(self.rank, "this member has left the group")
        return self._group

    def _wait(self, start: Callable[[Any], Any]) -> None:
        group = self._open()
        self._bounded(lambda: start(group).wait())

    def _bounded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except RuntimeError as error:  # torch has no narrower type for a lost connection or a time-out
            other = 1 - self.rank if self.size == 2 else None
            # gloo's advice to read the logs and its greetings are left out
            raise PeerLost(other, str(error).splitlines()[0].partition(". ")[0]) from error


def tensor(array: Any) -> Tensor:
    """The PyTorch tensor that shares the memory of a contiguous array."""
    if isinstance(array, np.ndarray) and not array.flags.writeable:  # PyTorch knows no such tensor
        raise ConfigurationError("an array is read-only, but gloo exchanges in place: give it a copy of it")
    made = (
        array
        if isinstance(array, Tensor)
        else torch.from_numpy(array)
        if isinstance(array, np.ndarray)
        else None
    )
    if made is None:
        raise ConfigurationError(
            f"gloo exchanges arrays of NumPy and PyTorch in host memory, found a {type(array).__name__}"
        )
    if not made.is_contiguous():
        raise ConfigurationError(
            f"an array of shape {tuple(made.shape)} and strides {made.stride()} is not contiguous: "
            "exchange a contiguous copy and write it back"
        )
    return made
