"""One shard of the parameters, on whichever node: agents push to it and pull from it, past Ray

A plain class that works without Ray; `launch` makes actors of it, whose calls carry control alone.
"""

import threading
from collections.abc import Collection
from typing import Any

import numpy as np

from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.distributed.parameter_server.replication import ShardCopy
from d5ray.distributed.parameter_server.requests import Restored
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.wire.secret import Secret
from d5ray.metrics.exports.exported_metrics import BUSY_SECONDS, REQUESTS, VERSION, WAITING
from d5ray.metrics.exports.exported_rows import Readings


class ParameterServer:
    """Serves shard number `shard`, of the root or of a group, until it is closed."""

    def __init__(
        self,
        shard: int,
        resolved: ResolvedServers,
        agents: int,
        group: int | None = None,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self.shard, self.group = shard, group
        self._resolved, self._agents = resolved, agents
        self._server: ShardServer | None = None
        self._copy: ShardCopy | None = None  # of another server's shard
        self._closed = threading.Event()
        (exporter or silent()).start(self.readings)

    def __repr__(self) -> str:
        return self._resolved.shard_name(self.shard, self.group)

    def serve(
        self,
        secret: Secret,
        node: str,
        host: str,
        seconds: float,
        above: Address | None = None,
        encrypted: bool = True,
    ) -> Address:
        """Begin to serve; returns where.

        secret: of the run. above: of the root's shard, if this is the server of a group. encrypted: as in
        `Group`.
        """
        self._server = ShardServer(
            self._resolved,
            self._resolved.members(self.group, self._agents),
            secret=secret,
            node=node,
            host=host,
            group=self.group,
            seconds=seconds,
            encrypted=encrypted,
        )
        if above is not None:
            self._server.relay_to(above)
        return self._server.address

    def state(self) -> dict[str, Any] | None:
        """Everything that `restore` needs; None before an agent brought the first parameters."""
        return None if self._server is None else self._server.state()

    def restore(self, state: dict[str, Any], anew: Collection[int], away: Collection[int]) -> Restored:
        """Go on where a shard was when its `state` was taken; see `ShardServer.restore`."""
        return self._serving().restore(state, anew, away)

    def begin(self, x: Any) -> None:
        """The first parameters (n,); later ones are ignored."""
        self._serving().begin(np.array(x))

    def relay_to(self, above: Address) -> int:
        """Send what a group has made to this address of the root's shard; see `ShardServer.relay_to`."""
        return self._serving().relay_to(above)

    def copy_to(self, address: Address) -> None:
        """Let the `ShardCopy` there have every push before it is acknowledged."""
        self._serving().copy_to(address)

    def hold(
        self, group: int | None, secret: Secret, node: str, host: str, encrypted: bool = True
    ) -> Address:
        """Begin to hold a copy of another server's shard, of the root or of a group; returns where."""
        resolved = self._resolved
        members = resolved.members(group, self._agents)
        self._copy = ShardCopy(
            lambda x: resolved.shard(x, group, members),
            secret=secret,
            node=node,
            host=host,
            encrypted=encrypted,
        )
        return self._copy.address

    def copied(self) -> dict[str, Any] | None:
        """The state of the copy that is held here, when its source has died; None: there is none."""
        return None if self._copy is None else self._copy.state()

    def parameters(self) -> tuple[Any, int] | None:
        """A copy of the parameters (n,), and their version; None before the first ones came."""
        return self._serving().parameters()

    def refresh(self, parameters: tuple[Any, int] | None) -> None:
        """Take the parameters of the root's shard, when the agents of this group have ended."""
        if parameters is not None:
            self._serving().refresh(*parameters)

    def enter(self, rank: int, again: bool = False) -> None:
        """An agent takes part from now on; `again`: it did before, and numbers its pushes on."""
        self._serving().enter(rank, again=again)

    def leave(self, rank: int) -> None:
        """An agent is gone: nobody waits for it any more."""
        self._serving().leave(rank)

    def load(self) -> dict[str, float]:
        """The requests so far, and the seconds that the shard worked on them."""
        return self._serving().load()

    def readings(self) -> Readings:
        """The readings of the server, for Ray's metrics."""
        if self._server is None:
            return {}
        load = self._server.load()
        waiting, version = self._server.standing()
        return {
            (REQUESTS, ""): load["requests"],
            (BUSY_SECONDS, ""): load["seconds"],
            (WAITING, ""): waiting,
            (VERSION, ""): version,
        }

    def alive(self) -> bool:
        """True at any time; a process that stands does not say so."""
        return True

    def watch(self) -> None:
        """Return when the server is closed; who has called it learns from Ray when this process dies."""
        self._closed.wait()

    def close(self) -> None:
        """End the server: agents that ask get `PeerLost`."""
        self._serving().close()
        if self._copy is not None:
            self._copy.close()
        self._closed.set()

    def _serving(self) -> ShardServer:
        assert self._server is not None, "serve first"
        return self._server
