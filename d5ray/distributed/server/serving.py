"""A shard that other processes reach: requests come in by threads, one after the other into the shard"""

import json
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, final

import numpy as np

from d5ray.distributed.checkpoints.state import Packed, pack, unpack_into
from d5ray.distributed.checkpoints.tensor_file import parsed, pieces
from d5ray.distributed.communicator import numpy_dtype
from d5ray.distributed.compression.compressor import Compressor, computed_in
from d5ray.distributed.compression.described import found
from d5ray.distributed.remote.frames import Frame
from d5ray.distributed.remote.service import Address, Connection, Service
from d5ray.distributed.server.requests import Array, Request
from d5ray.distributed.server.servers import Settled
from d5ray.distributed.server.shard import Shard
from d5ray.errors import ConfigurationError, PeerLost

if TYPE_CHECKING:
    from d5ray.distributed.server.remote import RemoteServer

BEGIN, OPERATE, LEAVE, COMPRESS, KEPT, FETCH, KEEP = 10, 11, 12, 13, 14, 15, 16  # kinds of requests
ANSWER = 20
NOTHING = -1  # no place in shared memory
LOOK_SECONDS = 1.0  # between two looks whether the client of a request that waits is still there


@final
class ShardServer:
    """Holds one shard, from the moment an agent brings its first parameters.

    above: the root's shard, if this is the server of a group: see `Relay`. node, host: where it runs.
    """

    def __init__(
        self,
        settled: Settled,
        members: Sequence[int],
        *,
        secret: str,
        node: str,
        host: str,
        group: int | None = None,
        seconds: float = 120.0,
    ) -> None:
        self._settled, self._members = settled, tuple(members)
        self._group, self._seconds = group, seconds
        self._secret, self._node = secret, node
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._shard: Shard | None = None
        self._above: Address | None = None
        self._relay: Relay | None = None
        self.service_ns = 0  # spent in the shard
        self.requests = 0
        self._service = Service(self._serve, node=node, host=host, secret=secret)

    @property
    def address(self) -> Address:
        """Where agents reach it."""
        return self._service.address

    def relay_to(self, above: Address) -> None:
        """This is the server of a group; the root's shard is there."""
        self._above = above

    def begin(self, x: Array) -> None:
        """The first parameters (n,); later ones are ignored."""
        with self._lock:
            if self._shard is None:
                self._shard = self._make(x)
                self._begun.set()

    def state(self) -> dict[str, Any] | None:
        """Everything that `restore` needs; None before the first parameters came."""
        with self._lock:
            return None if self._shard is None else self._shard.state()

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where a shard was when its `state` was taken."""
        with self._lock:
            if self._shard is None:
                self._shard = self._make(np.zeros_like(state["x"]))
            self._shard.restore(state)
            self._begun.set()

    def parameters(self) -> tuple[Array, int] | None:
        """A copy of the parameters (n,), and their version; None before the first ones came."""
        with self._lock:
            return None if self._shard is None else (self._shard.x.copy(), self._shard.version)

    def refresh(self, x: Array, version: int) -> None:
        """The root's parameters (n,), for the server of a group when its agents have ended."""
        with self._lock:
            if self._shard is not None:
                self._shard.refresh(x, version)

    def enter(self, rank: int, *, again: bool = False) -> None:
        """An agent takes part from now on; `again`: it did before, and numbers its pushes on."""
        with self._lock:
            if self._shard is not None:
                self._shard.enter(rank, again=again)

    def leave(self, rank: int) -> None:
        """An agent is gone: nobody waits for it."""
        with self._lock:
            self._members = tuple(member for member in self._members if member != rank)
            if self._shard is not None:
                self._shard.leave(rank)

    def load(self) -> dict[str, float]:
        """The requests so far, and the seconds that the shard worked on them."""
        return {"requests": self.requests, "seconds": self.service_ns * 1e-9}

    def standing(self) -> tuple[int, int]:
        """The requests that wait, and the version; it is not held up for the answer."""
        shard = self._shard
        return (0, 0) if shard is None else (shard.waiting, shard.version)

    def close(self) -> None:
        """End it: agents get `PeerLost`."""
        self._service.close()
        if self._relay is not None:
            self._relay.close()

    # --------------------------------------------------------------------------------------------------

    def _make(self, x: Array) -> Shard:
        settled = self._settled
        if self._group is None:
            return Shard(x, settled.base, settled.rule, settled.consistency, self._members)
        self._relay = Relay(self)
        return Shard(x, settled.base, settled.rule, settled.within, self._members, self._relay.send)

    def _serve(self, client: Connection) -> None:
        dtype = numpy_dtype(client.hello["dtype"])
        size = int(client.hello["elements"]) * dtype.itemsize
        inbox, outbox = np.empty(0, np.uint8), np.empty(0, np.uint8)
        if client.region is None:
            inbox, outbox = np.empty(size, np.uint8), np.empty(size, np.uint8)
        rank = int(client.hello["rank"])
        compressor: Compressor | None = None
        kept = b""
        while (frame := client.receive()) is not None:
            if frame.kind == BEGIN:
                self.begin(self._arrived(client, frame, inbox, dtype).copy())
                client.reply(ANSWER, ())
            elif frame.kind == LEAVE:
                self.leave(rank)
                client.reply(ANSWER, ())
            elif frame.kind == COMPRESS:
                words = self._behind(client, frame, inbox).tobytes()
                compressor = found(json.loads(words), self._settled.compressors)
                client.reply(ANSWER, ())
            elif frame.kind == KEPT:
                kept = self._kept()
                client.reply(ANSWER, (len(kept),))
            elif frame.kind == FETCH:
                client.reply(ANSWER, (), np.frombuffer(kept, np.uint8))
            elif frame.kind == KEEP:
                self._keep(self._behind(client, frame, inbox))
                client.reply(ANSWER, ())
            elif frame.kind == OPERATE:
                self._operate(client, frame, rank, inbox, outbox, dtype, compressor)
            else:
                return

    def _kept(self) -> bytes:
        with self._lock:
            assert self._shard is not None  # the agents brought parameters when they joined
            packed = pack(self._shard.kept(), "shard")
        return b"".join(pieces(packed.arrays, json.dumps(packed.data)))

    def _keep(self, packed: Array) -> None:
        arrays, text = parsed(packed, "what an agent brings for a shard")
        with self._lock:
            assert self._shard is not None
            kept = self._shard.kept()
            unpack_into(kept, Packed(json.loads(text), arrays), np.empty(0), "shard")
            self._shard.keep(kept)

    def _arrived(self, client: Connection, frame: Frame, inbox: Any, dtype: Any) -> Array:
        """The array (n,) that a frame brings: in shared memory, or behind it."""
        _, place, size, *_ = frame.numbers
        if place != NOTHING:
            assert client.region is not None
            found: Array = client.region.bytes[place : place + size].view(dtype)
            return found
        behind: Array = self._behind(client, frame, inbox).view(dtype)
        return behind

    def _behind(self, client: Connection, frame: Frame, inbox: Any) -> Array:
        """The bytes (payload,) behind a frame."""
        if frame.payload_bytes > len(inbox):
            inbox = np.empty(frame.payload_bytes, np.uint8)
        client.fill(inbox[: frame.payload_bytes])
        found: Array = inbox[: frame.payload_bytes]
        return found

    def _operate(
        self,
        client: Connection,
        frame: Frame,
        rank: int,
        inbox: Any,
        outbox: Any,
        dtype: Any,
        compressor: Compressor | None,
    ) -> None:
        sequence, _, size, target, wanted, compressed, counts, *_ = frame.numbers
        vector = into = None
        if compressed:
            message = self._behind(client, frame, inbox)
            assert compressor is not None
            elements = int(client.hello["elements"])
            vector = compressor.decompress(message, elements, computed_in(dtype))
            vector = vector.astype(dtype, copy=False)
        elif size:
            vector = self._arrived(client, frame, inbox, dtype)
        if wanted:
            memory = outbox[:wanted]
            if target != NOTHING:
                assert client.region is not None
                memory = client.region.bytes[target : target + wanted]
            into = memory.view(dtype)
        while not self._begun.wait(LOOK_SECONDS):
            if client.gone():
                return
        self._check(client, dtype)
        answered = threading.Event()
        request = Request(rank, sequence, vector, into, lambda _: answered.set(), counts=counts)
        came, own = perf_counter_ns(), self._submit(request)
        while not answered.wait(LOOK_SECONDS):
            if client.gone():
                return
        request.waited = max(0, perf_counter_ns() - came - own)
        inline = wanted and target == NOTHING
        client.reply(ANSWER, tuple(map(int, request.reply)), outbox[:wanted] if inline else outbox[:0])

    def _check(self, client: Connection, dtype: Any) -> None:
        assert self._shard is not None
        x, elements = self._shard.x, int(client.hello["elements"])
        if (len(x), x.dtype) != (elements, dtype):
            raise ConfigurationError(
                f"this shard of the parameter server holds {len(x):,} × {x.dtype}, and the agent with rank "
                f"{client.hello['rank']} has {elements:,} × {dtype}: build the same model on all agents"
            )

    def _submit(self, request: Request) -> int:
        """Let it into the shard; gives the ns that the shard worked."""
        with self._lock:
            assert self._shard is not None
            begin = perf_counter_ns()
            self._shard.submit(request)
            own = perf_counter_ns() - begin
            self.service_ns += own
            self.requests += 1
        return own


@final
class Relay:
    """Between a group's shard and the root's: takes up what was pushed, brings down what came of it."""

    def __init__(self, server: ShardServer) -> None:
        self._server = server
        self._rounds: SimpleQueue[tuple[Array, int] | None] = SimpleQueue()
        self._root: RemoteServer | None = None
        threading.Thread(target=self._run, name="d5ray-relay", daemon=True).start()

    def send(self, mean: Array, pushes: int) -> None:
        """Take the mean (n,) of a round to the root; the shard's lock is held."""
        self._rounds.put((mean.copy(), pushes))

    def close(self) -> None:
        """Leave the root: it does not wait for this group any more."""
        self._rounds.put(None)
        if self._root is not None:
            self._root.close()

    def _run(self) -> None:
        server = self._server
        while (taken := self._rounds.get()) is not None:
            mean, pushes = taken
            into = np.empty_like(mean)
            try:
                above = self._root = self._root or self._begun(len(mean), mean.dtype.name)
                above.counts = pushes
                above.push_pull(mean, into=into)
            except PeerLost:
                server.close()  # so that the agents do not wait
                return
            with server._lock:
                assert server._shard is not None
                server._shard.install(into, above.version[0], above.operations.pop().replies[0].order)

    def _begun(self, elements: int, dtype: str) -> "RemoteServer":
        """The root's shard, which has parameters: those of the first group that comes."""
        from d5ray.distributed.server.remote import RemoteServer  # noqa: PLC0415 - speaks to a server itself

        server = self._server
        assert server._above is not None and server._group is not None and server._shard is not None
        made = RemoteServer(
            [server._above],
            rank=server._group,
            elements=elements,
            dtype=dtype,
            node=server._node,
            secret=server._secret,
            seconds=server._seconds,
        )
        made.begin(server._shard.x)
        return made
