"""Weighted sums with neighbours on the same node, by chunks: only neighbours wait for each other"""

from collections.abc import Mapping, Sequence
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import Signature, packed
from d5ray.distributed.communicators.shared_memory.arena import Arena
from d5ray.distributed.communicators.shared_memory.channels import Channels
from d5ray.distributed.communicators.shared_memory.doorbell import Doorbells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, ReduceKernels, take_over

TAG = 0


@final
class Neighbors:
    """A member sends the chunks of its array to its targets, one ahead of those that it waits for.

    It needs nothing of members that are not its neighbours; but those who wait for others send no further.
    Every target gets a copy: memory that one core writes and many read is slower than many copies.
    """

    def __init__(
        self, arena: Arena, channels: Channels, doorbells: Doorbells, kernels: ReduceKernels
    ) -> None:
        self._arena, self._channels, self._doorbells, self._kernels = arena, channels, doorbells, kernels

    def combine(
        self, flat: Flat, own: float, sources: Mapping[int, float], targets: Sequence[int], call: Signature
    ) -> None:
        """flat ← own · flat + Σ weight · the source's flat, summed in the order of the ranks."""
        weights = dict(sorted({**sources, self._arena.rank: own}.items()))
        step = self._channels.chunk_bytes // flat.itemsize
        parts = [flat[low : low + step] for low in range(0, max(1, flat.size), step)]
        self._send(parts[0], targets, flat.nbytes, call)
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            if following is not None:
                self._send(following, targets, flat.nbytes, call)
            received = {source: self._receive(source, flat, call) for source in sources}
            arrays = [received.get(rank, part) for rank in weights]
            self._kernels.reduce(arrays, part, weights=list(weights.values()))
            for source, array in received.items():
                take_over(array)
                self._channels.drop(source, TAG)

    def _send(self, part: Flat, targets: Sequence[int], total: int, call: Signature) -> None:
        for target in targets:
            self._make_room(target, call)
            self._channels.post(target, part, TAG, total, packed(call))

    def _make_room(self, target: int, call: Signature) -> None:
        if not self._channels.room(target):
            self._doorbells.wait(lambda: self._channels.room(target), lambda: [target], call)

    def _receive(self, source: int, flat: Flat, call: Signature) -> Flat:
        channels = self._channels
        if (chunk := channels.head(source, TAG)) is None:
            self._doorbells.wait(lambda: channels.head(source, TAG) is not None, lambda: [source], call)
            chunk = channels.head(source, TAG)
        assert chunk is not None
        channels.check(source, chunk, call, flat)
        return chunk.payload.view(flat.dtype)
