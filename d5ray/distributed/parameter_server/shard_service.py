"""A shard that other processes reach: requests come in by threads, one after the other into the shard"""

import json
import math
import threading
from collections.abc import Collection, Sequence
from time import perf_counter_ns
from typing import Any, final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.distributed.compression.compressor import Compressor, computed_in
from d5ray.distributed.compression.plain_data import found
from d5ray.distributed.parameter_server.relay import Relay
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.parameter_server.replication import (
    Record,
    Replicator,
    request_record,
    state_record,
)
from d5ray.distributed.parameter_server.requests import (
    ANSWER,
    BEGIN,
    COMPRESS,
    ENTERED,
    FETCH,
    INSTALLED,
    KEEP,
    KEPT,
    LEAVE,
    LEFT,
    NOTHING,
    OPERATE,
    PURPOSE,
    Array,
    Request,
    Restored,
    counts_of_bits,
    kept_bytes,
    memory_bytes,
)
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.shard import Shard
from d5ray.distributed.rpc.dtypes import plain_dtype
from d5ray.distributed.rpc.frames import FrameHeader, Unexpected
from d5ray.distributed.rpc.service import Address, Connection, Service
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import ConfigurationError

DESCRIPTION_BYTES = 2**16  # of a compressor, at most
LOOK_SECONDS = 1.0  # between two looks whether the client of a request that waits is still there


@final
class ClientSlice:
    """The subject of a connection's requests: an agent's slice of a model, and memory for it."""

    def __init__(self, elements: int, dtype: Any, *, near: bool) -> None:
        self.elements, self.dtype = elements, dtype
        self.size = elements * dtype.itemsize
        # The length of some compressors' messages depends on the vector.
        self.most_compressed_bytes = 2**16 + 16 * elements
        self.most_bytes = max(kept_bytes(self.size), self.most_compressed_bytes)
        self._inbox = np.empty(0 if near else self.size, np.uint8)
        self.outbox = np.empty(0 if near else self.size, np.uint8)

    @classmethod
    def of(cls, client: Connection) -> "ClientSlice":
        """The slot of a client as it introduced itself; raises `Unexpected` for an impossible model."""
        elements, dtype = client.hello.get("elements"), plain_dtype(client.hello.get("dtype"))
        if type(elements) is not int or not 0 < elements <= memory_bytes() // dtype.itemsize:
            raise Unexpected(f"an agent has {elements!r} parameters: from 1 to what this machine can hold")
        return cls(elements, dtype, near=client.region is not None)

    def payload(self, client: Connection, frame: FrameHeader, most_bytes: int) -> Array:
        """The bytes (payload,) after a frame; `Unexpected` if there are more than that many."""
        if frame.payload_bytes > most_bytes:
            raise Unexpected(f"{frame.payload_bytes:,} bytes come where {most_bytes:,} are the most")
        if frame.payload_bytes > len(self._inbox):
            self._inbox = np.empty(frame.payload_bytes, np.uint8)
        client.fill(self._inbox[: frame.payload_bytes])
        arrived: Array = self._inbox[: frame.payload_bytes]
        return arrived


@final
class ShardServer:
    """Holds one shard, from the moment an agent brings its first parameters.

    above: the root's shard, if this is the server of a group: see `Relay`. node, host: where it runs.
    """

    def __init__(
        self,
        resolved: ResolvedServers,
        members: Sequence[int],
        *,
        secret: Secret,
        node: str,
        host: str,
        group: int | None = None,
        seconds: float = 120.0,
        encrypted: bool = True,
    ) -> None:
        """members: the ranks that take part."""
        self._resolved, self._members = resolved, tuple(members)
        self._group, self._seconds = group, seconds
        self._secret, self._node, self._encrypted = secret, node, encrypted
        self._lock = threading.Lock()
        self._begun = threading.Event()
        self._shard: Shard | None = None
        self._above: Address | None = None
        self._relay: Relay | None = None
        self._copy: Replicator | None = None
        self.service_ns = 0  # spent in the shard
        self.requests = 0
        self._service = Service(
            self._serve,
            node=node,
            host=host,
            secret=secret,
            purpose=PURPOSE,
            ranks=frozenset(members),
            encrypted=encrypted,
            seconds=seconds,
        )

    @property
    def address(self) -> Address:
        """The address at which agents reach the server."""
        return self._service.address

    def relay_to(self, above: Address) -> int:
        """Send pushes on to the root's shard at this address: this is the server of a group.

        Gives the number of the last one that the root has answered.
        """
        self._above = above
        return 0 if self._relay is None else self._relay.reroute(above)

    def copy_to(self, address: Address) -> None:
        """Let the `ShardCopy` there have all that happens here, before it is answered."""
        if self._copy is None:
            self._copy = Replicator(
                self._start_copy, self._secret, self._node, self._seconds / 2, encrypted=self._encrypted
            )
        self._copy.copy_to(address)

    def begin(self, x: Array) -> None:
        """The first parameters (n,); later ones are ignored."""
        with self._lock:
            if self._shard is None:
                self._shard = self._make(x)
                self._log_state()
                self._begun.set()

    def state(self) -> dict[str, Any] | None:
        """The state that `restore` needs; None before the first parameters came."""
        with self._lock:
            return None if self._shard is None else self._shard.state()

    def restore(
        self, state: dict[str, Any], anew: Collection[int] = (), away: Collection[int] = ()
    ) -> Restored:
        """Go on where a shard was when its `state` was taken.

        anew: ranks that other agents have since, which number their pushes from 1. away: those that do not
        take part.
        """
        with self._lock:
            if self._shard is None:
                self._shard = self._make(np.zeros_like(state["x"]))
            self._shard.restore(state)
            for rank in anew:
                self._shard.leave(rank)
                self._shard.enter(rank)
            for rank in away:
                self._shard.leave(rank)
            self._log_state()
            self._begun.set()
            return self._shard.restored

    def parameters(self) -> tuple[Array, int] | None:
        """A copy of the parameters (n,), and their version; None before the first ones came."""
        with self._lock:
            return None if self._shard is None else (self._shard.x.copy(), self._shard.version)

    def refresh(self, x: Array, version: int) -> None:
        """The root's parameters (n,), for the server of a group when its agents have ended."""
        with self._lock:
            if self._shard is not None:
                self._shard.refresh(x, version)
                self._log_state()

    def enter(self, rank: int, *, again: bool = False) -> None:
        """An agent takes part from now on; `again`: it did before, and numbers its pushes on."""
        with self._lock:
            if self._shard is not None:
                self._log(Record(ENTERED, (rank, int(again))))
                self._shard.enter(rank, again=again)

    def leave(self, rank: int) -> None:
        """An agent is gone: nobody waits for it."""
        with self._lock:
            self._members = tuple(member for member in self._members if member != rank)
            if self._shard is not None:
                self._log(Record(LEFT, (rank,)))
                self._shard.leave(rank)

    def load(self) -> dict[str, float]:
        """The requests so far, and the seconds that the shard worked on them."""
        return {"requests": self.requests, "seconds": self.service_ns * 1e-9}

    def standing(self) -> tuple[int, int]:
        """The requests that wait, and the version; it is not held up for the answer."""
        shard = self._shard
        return (0, 0) if shard is None else (shard.waiting, shard.version)

    def close(self) -> None:
        """End the server: agents get `PeerLost`."""
        self._service.close()
        if self._relay is not None:
            self._relay.close()
        if self._copy is not None:
            self._copy.close()

    # --------------------------------------------------------------------------------------------------

    def _make(self, x: Array) -> Shard:
        if self._group is not None:
            self._relay = Relay(lambda: self._root(x), x, self.install, self.close)
        upstream = None if self._relay is None else self._relay.send
        return self._resolved.shard(x, self._group, self._members, upstream)

    def _root(self, x: Array) -> RemoteServer:
        """The root's shard, which has parameters: those of the first group that comes."""
        assert self._above is not None and self._group is not None
        return RemoteServer(
            [self._above],
            rank=self._group,
            elements=len(x),
            dtype=x.dtype.name,
            node=self._node,
            secret=self._secret,
            seconds=self._seconds,
            encrypted=self._encrypted,
        )

    def _serve(self, client: Connection) -> None:
        slot = ClientSlice.of(client)
        self._check(client.rank, slot)
        compressor: Compressor | None = None
        kept = np.empty(0, np.uint8)
        while (frame := client.receive(slot.most_bytes)) is not None:
            if frame.kind == BEGIN:
                self.begin(self._arrived(client, frame, slot).copy())
                client.reply(ANSWER, ())
            elif frame.kind == LEAVE:
                self.leave(client.rank)
                client.reply(ANSWER, ())
            elif frame.kind == COMPRESS:
                words = slot.payload(client, frame, DESCRIPTION_BYTES).tobytes()
                compressor = found(json.loads(words), self._resolved.compressors)
                client.reply(ANSWER, ())
            elif frame.kind == KEPT:
                kept = self._kept()
                client.reply(ANSWER, (len(kept),))
            elif frame.kind == FETCH:
                client.reply(ANSWER, (), kept)
            elif frame.kind == KEEP:
                self._keep(slot.payload(client, frame, kept_bytes(slot.size)))
                client.reply(ANSWER, ())
            elif frame.kind == OPERATE:
                self._operate(client, frame, slot, compressor)
            else:
                raise Unexpected(f"an agent asks a parameter server for something of kind {frame.kind}")

    def _kept(self) -> Array:
        with self._lock:
            packed = pack(self._begun_shard.kept(), "shard")
        return packed.bytes

    def _keep(self, content: Array) -> None:
        packed = Packed.read(content, "what an agent brings for a shard")
        with self._lock:
            kept = self._begun_shard.kept()
            unpack_into(kept, packed, np.empty(0), "shard")
            self._begun_shard.keep(kept)
            self._log_state()

    @property
    def _begun_shard(self) -> Shard:
        if self._shard is None:
            raise Unexpected("an agent asks for what a shard holds before one has brought parameters")
        return self._shard

    def _arrived(self, client: Connection, frame: FrameHeader, slot: ClientSlice) -> Array:
        """The array (n,) that a frame brings: in shared memory, or after it."""
        _, place, size, *_ = frame.numbers
        if size != slot.size:
            raise Unexpected(f"an agent pushes {size:,} bytes to a shard of {slot.size:,}")
        if place != NOTHING:
            frame.expect(0, "a push through shared memory")
            return client.shared(place, size, slot.dtype.itemsize).view(slot.dtype)
        frame.expect(size, "a push")
        return slot.payload(client, frame, size).view(slot.dtype)

    def _operate(
        self, client: Connection, frame: FrameHeader, slot: ClientSlice, compressor: Compressor | None
    ) -> None:
        sequence, _, size, target, wanted, compressed, bits, *_ = frame.numbers
        counts = counts_of_bits(bits)
        if sequence < 0 or not 0 <= counts < math.inf or wanted not in (0, slot.size):
            raise Unexpected(
                f"an agent makes push {sequence} for {counts}, and wants {wanted:,} bytes of {slot.size:,}"
            )
        vector = into = None
        if compressed:
            vector = self._decompressed(client, frame, slot, compressor)
        elif size:
            vector = self._arrived(client, frame, slot)
        else:
            frame.expect(0, "a pull")
        if wanted:
            memory = slot.outbox
            if target != NOTHING:
                memory = client.shared(target, wanted, slot.dtype.itemsize)
            into = memory.view(slot.dtype)
        while not self._begun.wait(LOOK_SECONDS):
            if client.gone():
                return
        self._check(client.rank, slot)
        answered, copy, position = threading.Event(), self._copy, 0

        def done(_: Request) -> None:
            nonlocal position
            position = 0 if copy is None else copy.position
            answered.set()

        request = Request(client.rank, sequence, vector, into, done, counts=counts)
        came, own = perf_counter_ns(), self._submit(request)
        while not answered.wait(LOOK_SECONDS):
            if client.gone():
                return
        if copy is not None:
            copy.wait(position)
        request.waited = max(0, perf_counter_ns() - came - own)
        inline = wanted and target == NOTHING
        back = slot.outbox if inline else slot.outbox[:0]
        client.reply(ANSWER, tuple(map(int, request.reply)), back)

    def _decompressed(
        self, client: Connection, frame: FrameHeader, slot: ClientSlice, compressor: Compressor | None
    ) -> Array:
        """The vector (n,) of a compressed push."""
        if compressor is None:
            raise Unexpected("an agent pushes compressed, and has not said with which compressor")
        wide = computed_in(slot.dtype)
        length = compressor.message_bytes(slot.elements, wide)
        if length is not None:
            frame.expect(length, f"a push compressed with {compressor!r}")
        message = slot.payload(client, frame, slot.most_compressed_bytes)
        vector = compressor.decompress(message, slot.elements, wide)
        if vector.shape != (slot.elements,):
            raise ConfigurationError(
                f"{compressor!r} makes an array of shape {vector.shape} of a push to a shard of "
                f"{slot.elements:,} parameters: decompress must give as many as were compressed"
            )
        return vector.astype(slot.dtype, copy=False)

    def _check(self, rank: int, slot: ClientSlice) -> None:
        """Raise `ConfigurationError` where an agent has another model than the shard that there is."""
        x = None if self._shard is None else self._shard.x
        if x is not None and (len(x), x.dtype) != (slot.elements, slot.dtype):
            raise ConfigurationError(
                f"this shard of the parameter server holds {len(x):,} × {x.dtype}, and the agent with rank "
                f"{rank} has {slot.elements:,} × {slot.dtype}: build the same model on all agents"
            )

    def _log(self, record: Record) -> None:
        if self._copy is not None:
            self._copy.log(record)

    def _log_state(self) -> None:
        if self._copy is not None and self._shard is not None:
            self._copy.log(state_record(self._shard))

    def _start_copy(self, copy: Replicator) -> None:
        """Begin a copy anew: with the state, and what it does not have."""
        with self._lock:
            shard = self._shard
            copy.start([] if shard is None else [state_record(shard), *map(request_record, shard.pending())])

    def install(self, x: Array, version: int, order: int) -> None:
        """Take what came of a round at the root; the server of a group."""
        with self._lock:
            assert self._shard is not None
            self._log(Record(INSTALLED, (version, order), x.view(np.uint8)))
            self._shard.install(x, version, order)

    def _submit(self, request: Request) -> int:
        """Let it into the shard; gives the ns that the shard worked."""
        with self._lock:
            assert self._shard is not None
            if self._copy is not None:
                self._copy.log(request_record(request))
            begin = perf_counter_ns()
            self._shard.submit(request)
            own = perf_counter_ns() - begin
            self.service_ns += own
            self.requests += 1
        return own
