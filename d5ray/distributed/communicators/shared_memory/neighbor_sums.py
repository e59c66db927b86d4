"""Weighted sums with neighbours on the same node, by chunks: only neighbours wait for each other"""

from collections.abc import Mapping, Sequence
from typing import final

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.shared_memory.arena import Arena
from d5ray.distributed.communicators.shared_memory.barrier import packed
from d5ray.distributed.communicators.shared_memory.channels import Lanes
from d5ray.distributed.communicators.shared_memory.doorbell import Bells
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, Folding, take_over

TAG = 0


@final
class Neighbors:
    """A member sends the chunks of its array to its targets, one ahead of those that it waits for.

    It needs nothing of members that are not its neighbours; but those who wait for others send no further.
    Every target gets a copy: memory that one core writes and many read is slower than many copies.
    """

    def __init__(self, arena: Arena, lanes: Lanes, bells: Bells, folding: Folding) -> None:
        self._arena, self._lanes, self._bells, self._folding = arena, lanes, bells, folding

    def combine(
        self, flat: Flat, own: float, sources: Mapping[int, float], targets: Sequence[int], call: Signature
    ) -> None:
        """flat ← own · flat + Σ weight · the source's flat, summed in the order of the ranks."""
        weights = dict(sorted({**sources, self._arena.rank: own}.items()))
        step = self._lanes.chunk_bytes // flat.itemsize
        parts = [flat[low : low + step] for low in range(0, max(1, flat.size), step)]
        self._send(parts[0], targets, flat.nbytes, call)
        for part, following in zip(parts, [*parts[1:], None], strict=True):
            if following is not None:
                self._send(following, targets, flat.nbytes, call)
            received = {source: self._receive(source, flat, call) for source in sources}
            arrays = [received.get(rank, part) for rank in weights]
            self._folding.fold(arrays, part, weights=list(weights.values()))
            for source, array in received.items():
                take_over(array)
                self._lanes.drop(source, TAG)

    def _send(self, part: Flat, targets: Sequence[int], total: int, call: Signature) -> None:
        for target in targets:
            self._make_room(target, call)
            self._lanes.post(target, part, TAG, total, packed(call))

    def _make_room(self, target: int, call: Signature) -> None:
        if not self._lanes.room(target):
            self._bells.wait(lambda: self._lanes.room(target), lambda: [target], call)

    def _receive(self, source: int, flat: Flat, call: Signature) -> Flat:
        lanes = self._lanes
        if (chunk := lanes.head(source, TAG)) is None:
            self._bells.wait(lambda: lanes.head(source, TAG) is not None, lambda: [source], call)
            chunk = lanes.head(source, TAG)
        assert chunk is not None
        lanes.check(source, chunk, call, flat)
        return chunk.payload.view(flat.dtype)
