"""A link from a group's shard to the root's: takes up what was pushed, brings down what came of it"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

import numpy as np

from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.parameter_server.requests import Array
from d5ray.distributed.rpc.service import Address
from d5ray.errors import PeerLost


@final
class Relay:
    """Brings rounds to the root one after the other.

    connect(): the root's shard. x: the parameters (n,) it begins with. install(x, version, order): takes what
    came of a round. lost(): the root is gone for good.
    """

    def __init__(
        self,
        connect: Callable[[], RemoteServer],
        x: Array,
        install: Callable[[Array, int, int], None],
        lost: Callable[[], None],
    ) -> None:
        self._connect, self._x, self._install, self._lost = connect, x, install, lost
        self._rounds: SimpleQueue[tuple[Array, float, int] | None] = SimpleQueue()
        self._root: RemoteServer | None = None
        threading.Thread(target=self._run, name="d5ray-relay", daemon=True).start()

    def send(self, mean: Array, counts: float, number: int) -> None:
        """Take the mean (n,) of a round to the root; the shard's lock is held."""
        self._rounds.put((mean.copy(), counts, number))

    def reroute(self, above: Address) -> int:
        """Look for the root there from now on; the number of the last round that it has answered."""
        if self._root is None:
            return 0
        self._root.reroute(0, above)
        return self._root.acknowledged[0]

    def close(self) -> None:
        """Leave the root: it does not wait for this group any more."""
        self._rounds.put(None)
        if self._root is not None:
            self._root.close()

    def _run(self) -> None:
        while (taken := self._rounds.get()) is not None:
            mean, counts, number = taken
            into = np.empty_like(mean)
            try:
                if self._root is None:
                    self._root = self._connect()
                    self._root.begin(self._x)
                self._root.counts = counts
                self._root.go_on(number - 1)
                self._root.push_pull(mean, into=into)
            except PeerLost:
                self._lost()  # so that the agents do not wait
                return
            self._install(into, self._root.version[0], self._root.operations.pop().replies[0].order)
