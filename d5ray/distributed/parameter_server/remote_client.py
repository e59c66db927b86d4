"""The agent's side of parameter servers in other processes: frames over sockets, arrays in shared memory"""

import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.compression.compressor import Compressor
from d5ray.distributed.compression.plain_data import described
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.parameter_server.client import Answer, Ask, Server
from d5ray.distributed.parameter_server.requests import (
    BEGIN,
    COMPRESS,
    FETCH,
    KEEP,
    KEPT,
    LEAVE,
    NOTHING,
    OPERATE,
    PURPOSE,
    Array,
    Reply,
    counts_as_bits,
    kept_bytes,
)
from d5ray.distributed.rpc import frames
from d5ray.distributed.rpc.connection import Channel
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.rpc.frames import Unexpected
from d5ray.distributed.rpc.service import Address, Caller
from d5ray.distributed.rpc.shared_region import SharedRegion, pages
from d5ray.distributed.scheduler import THREADS
from d5ray.distributed.traffic import Traffic
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import PeerLost


@final
class RemoteServer(Server):
    """Speaks to one `ShardServer` for each address.

    On a server's own node arrays do not go through the socket: the server reads pushed ones where they lie,
    and writes pulled ones where they are wanted, if they come from `allocate`; others are copied once.
    A server whose connection breaks is looked for again, at its old address or at one that `reroute` gave,
    until the time-out, and gets the request once more: it knows by its number whether it had it already.
    """

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        rank: int,
        elements: int,
        dtype: str,
        node: str,
        secret: Secret,
        seconds: float,
        traffic: Traffic | None = None,
        encrypted: bool = True,
    ) -> None:
        super().__init__(
            rank=rank,
            elements=elements,
            dtype=numpy_dtype(dtype),
            shards=len(addresses),
            scheduler=THREADS,
            traffic=traffic or Traffic(),
            seconds=seconds,
        )
        self._dtype = numpy_dtype(dtype)
        size = pages(elements * self._dtype.itemsize)
        self._near = all(address.near(node) for address in addresses)
        # parameters, gradients, and what is copied on its way to the servers and back
        self._region = SharedRegion(4 * size) if self._near else None
        self._staged = [
            (self._region.carve(elements * self._dtype.itemsize).view(self._dtype) if self._region else None)
            for _ in range(2)
        ]
        caller = Caller(secret, PURPOSE, rank, node, encrypted)
        self._channels = [
            Channel(
                address,
                caller,
                {"dtype": dtype, "elements": part.stop - part.start},
                self._region,
                seconds,
                seconds,
            )
            for address, part in zip(addresses, self._bounds, strict=True)
        ]
        self._asked: dict[int, Channel] = {}  # by shard, while an answer is due

    def allocate(self, elements: int, dtype: str) -> Array:
        wanted = np.dtype(numpy_dtype(dtype))
        if self._region is None or self._region.left() < elements * wanted.itemsize:
            return super().allocate(elements, dtype)
        carved: Array = self._region.carve(elements * wanted.itemsize).view(wanted)
        return carved

    def begin(self, x: Any) -> None:
        """Bring the servers their first parameters (n,), unless they have some."""
        flat = self._flat(x, "begin with")
        for channel, part in zip(self._channels, self._bounds, strict=True):
            place, payload = self._placed(flat[part], part)
            channel.call(BEGIN, (0, place, flat[part].nbytes), payload)

    def reroute(self, shard: int, address: Address) -> None:
        """Send a shard's requests to this address from now on."""
        self._channels[shard].address = address

    def close(self) -> None:
        for channel in self._channels:
            channel.leave(LEAVE)
        if self._start is not None:
            self._start._queue.put(None)  # its thread ends
        if self._region is not None:
            self._region.close_descriptor()

    def waits(self) -> list[PresentWait]:
        if self._start is not None and self._start.unawaited():
            return []
        return [PresentWait("an operation", servers=(shard,)) for shard in list(self._asked)]

    def kept(self) -> list[Packed]:
        found = []
        for channel, part in zip(self._channels, self._bounds, strict=True):
            size = channel.call(KEPT).numbers[0]
            if not 0 < size <= kept_bytes((part.stop - part.start) * self._dtype.itemsize):
                raise Unexpected(f"a shard says that it keeps {size:,} bytes, more than a state can have")
            packed = np.empty(size, np.uint8)
            channel.call(FETCH, into=packed)
            found.append(Packed.read(packed, "what a shard holds"))
        return found

    def keep(self, kept: Sequence[Packed]) -> None:
        for channel, own in zip(self._channels, kept, strict=True):
            channel.call(KEEP, (), own.bytes)

    def _announce(self, compressor: Compressor) -> None:
        words = np.frombuffer(json.dumps(described(compressor)).encode(), np.uint8)
        for channel in self._channels:
            channel.call(COMPRESS, (), words, again=True)

    def _ask(self, shard: int, ask: Ask) -> Answer:
        channel, part = self._channels[shard], self._bounds[shard]
        channel.lock.acquire()
        self._asked[shard] = channel
        try:
            place, size, payload = NOTHING, 0, frames.EMPTY
            if ask.message is not None:
                payload = ask.message
            elif ask.vector is not None:
                size = ask.vector.nbytes
                place, payload = self._placed(ask.vector, part)
            target, wanted, back = self._wanted(ask.into, part)
            compressed, counts = int(ask.message is not None), counts_as_bits(self.counts)
            numbers = (ask.sequence, place, size, target, wanted, compressed, counts)
            channel.send(OPERATE, numbers, payload, back if target == NOTHING else None)
        except BaseException:
            self._give_up()
            raise

        def answer() -> Reply:
            try:
                frame = channel.answer()
                if back is not None and ask.into is not None and back is not ask.into:
                    ask.into[...] = back
            except PeerLost as lost:
                self._give_up()
                raise PeerLost(None, f"shard {shard} of the parameter servers at {lost.detail}") from None
            except BaseException:
                self._give_up()
                raise
            del self._asked[shard]
            channel.lock.release()
            self.acknowledged[shard] = ask.sequence
            order, version, staleness, applied, *rest = frame.numbers[: len(Reply._fields)]
            return Reply(order, version, staleness, bool(applied), *rest)

        return answer

    def _give_up(self) -> None:
        """An operation failed: what is still to be answered would be taken for the answer to the next one."""
        while self._asked:
            _, channel = self._asked.popitem()
            channel.drop()
            channel.lock.release()

    def _placed(self, vector: Array, part: slice) -> tuple[int, frames.Bytes]:
        """The place where the server finds a vector (n,): in shared memory, or the bytes to send."""
        if self._region is None:
            return NOTHING, vector.view(np.uint8)
        place = self._region.offset(vector)
        if place is None:
            staged = self._staged[0]
            assert staged is not None
            staged[part] = vector
            place = self._region.offset(staged[part])
            assert place is not None
        return place, frames.EMPTY

    def _wanted(self, into: Array | None, part: slice) -> tuple[int, int, Array | None]:
        """The place that the server is to write to, its bytes, and the array that has it afterwards."""
        if into is None:
            return NOTHING, 0, None
        if self._region is None:
            return NOTHING, into.nbytes, into
        place, back = self._region.offset(into), into
        if place is None:
            staged = self._staged[1]
            assert staged is not None
            back = staged[part]
            place = self._region.offset(back)
            assert place is not None
        return place, into.nbytes, back
