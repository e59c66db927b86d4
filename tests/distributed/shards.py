"""Shards of parameter servers, their clients, and the proof that both did what one local shard would have"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.parameter_server.client import KINDS
from d5ray.distributed.parameter_server.consistency import Asynchronous, Consistency
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.parameter_server.requests import Reply, Request
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import Descend, ServerRule
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.rpc.service import Address
from d5ray.distributed.wire.secret import Secret
from d5ray.training.optimizers.gradient_descent import SGD
from d5ray.training.optimizers.optimizer import Optimizer
from tests.patience import patience

Array = np.ndarray[Any, Any]
SECRET = Secret.parse("5e" * 32)
HERE, THERE = "this node", "another node"
SECONDS = patience(30.0)  # the bound of waits that end much earlier


def resolved(
    consistency: Consistency | None = None,
    rule: ServerRule | None = None,
    base: Optimizer | None = None,
    servers: Servers | None = None,
) -> ResolvedServers:
    """Asynchronous SGD, unless said otherwise."""
    return ResolvedServers(
        servers or Servers(), consistency or Asynchronous(), rule or Descend(), base or SGD(0.1)
    )


def shard_server(how: ResolvedServers, members: Sequence[int], **more: Any) -> ShardServer:
    """On the node `HERE`."""
    return ShardServer(how, members, secret=SECRET, node=HERE, host="127.0.0.1", seconds=SECONDS, **more)


@contextmanager
def shards(how: ResolvedServers, members: int, count: int = 1) -> Iterator[list[ShardServer]]:
    """All shards of a server, in threads of this process."""
    made = [shard_server(how, range(members)) for _ in range(count)]
    try:
        yield made
    finally:
        for server in made:
            server.close()


@dataclass(frozen=True)
class Done:
    """One operation of a client: what it pushed (n,), what it read (n,), and what each shard said."""

    rank: int
    number: int
    sequence: int
    vector: Array | None
    read: Array | None
    replies: tuple[Reply, ...]


class Client:
    """A `RemoteServer` that keeps what it does."""

    def __init__(
        self,
        where: Sequence[Address],
        rank: int,
        x: Array,
        *,
        node: str = HERE,
        seconds: float = SECONDS,
    ) -> None:
        self.rank = rank
        self.size = len(x)
        self.server = RemoteServer(
            where, rank=rank, elements=len(x), dtype=x.dtype.name, node=node, secret=SECRET, seconds=seconds
        )
        self.done: list[Done] = []
        self.fast = [self.server.allocate(len(x), x.dtype.name) for _ in range(2)]
        self.slow = [np.zeros_like(x) for _ in range(2)]
        self._pushes = 0

    def begin(self, x: Array) -> None:
        self.server.begin(x.copy())

    def do(self, kind: str, vector: Array | None = None, *, fast: bool = False) -> Done:
        """One operation, with arrays that were allocated or others."""
        pushed, into = self.fast if fast else self.slow
        arguments: list[Array] = []
        if "push" in kind:
            assert vector is not None
            pushed[...] = vector
            arguments.append(pushed)
        if "pull" in kind:
            into[...] = np.nan
            arguments.append(into)
        getattr(self.server, kind)(*arguments)
        return self.keep(kind, vector, into)

    def keep(self, kind: str, vector: Array | None, into: Array | None) -> Done:
        """Write down the oldest operation that was not yet."""
        operation = self.server.operations.popleft()
        assert operation.kind == kind and operation.number == len(self.done)
        self._pushes += "push" in kind
        self.done.append(
            Done(
                self.rank,
                operation.number,
                self._pushes,
                None if "push" not in kind or vector is None else vector.copy(),
                None if "pull" not in kind or into is None else into.copy(),
                operation.replies,
            )
        )
        return self.done[-1]

    def push(self, vector: Array) -> Done:
        return self.do("push", vector)

    def pull(self) -> Array:
        read = self.do("pull").read
        assert read is not None
        return read

    def push_pull(self, vector: Array) -> Array:
        read = self.do("push_pull", vector).read
        assert read is not None
        return read


@contextmanager
def clients(
    where: Sequence[Address], count: int, x: Array, *, node: str = HERE, seconds: float = SECONDS
) -> Iterator[list[Client]]:
    """That many agents' clients; the servers begin with x (n,)."""
    made = [Client(where, rank, x, node=node, seconds=seconds) for rank in range(count)]
    try:
        made[0].begin(x)
        yield made
    finally:
        for client in made:
            client.server.close()


def random_work(client: Client, pushes: int, kinds: tuple[str, ...] = KINDS) -> None:
    """A pull, then operations of drawn kinds on arrays of drawn kinds, with that many pushes."""
    rng = np.random.default_rng([client.rank, 5])
    client.pull()  # some rules know what an agent has read
    left = pushes
    while left:
        kind = str(rng.choice(kinds))
        left -= "push" in kind
        vector = rng.standard_normal(client.size).astype(client.fast[0].dtype)
        client.do(kind, vector, fast=bool(rng.integers(2)))


def check_against_local_shards(
    everything: Sequence[Done], how: ResolvedServers, x: Array, members: Sequence[int], count: int = 1
) -> list[Shard]:
    """Feed local shards in the order that the replies name: each reply and each value read must be equal, to
    the last bit, and no request may have come that nobody made. Returns the shards."""
    made = []
    for number, part in enumerate(parts(len(x), count)):
        ordered = sorted(everything, key=lambda done, shard=number: done.replies[shard].order)  # type: ignore[misc]
        assert [done.replies[number].order for done in ordered] == list(range(len(ordered)))
        local = Shard(x[part].copy(), how.base, how.rule, how.consistency, members)
        requests = [_request(done, part) for done in ordered]
        for request in requests:
            local.submit(request)
        made.append(local)
        for done, request in zip(ordered, requests, strict=True):
            assert request.reply == done.replies[number]._replace(waited=0)
            if done.read is not None:
                np.testing.assert_array_equal(request.into, done.read[part])
    return made


def _request(done: Done, part: slice) -> Request:
    vector = None if done.vector is None else done.vector[part].copy()
    into = None if done.read is None else np.full_like(done.read[part], np.nan)
    return Request(done.rank, done.sequence, vector, into, lambda _: None)
