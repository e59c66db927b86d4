"""The parameter servers as one simulated agent reaches them"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.checkpoints.state import pack, unpack_into
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import computed_in
from d5ray.distributed.parameter_server.client import Answer, Ask, Server
from d5ray.distributed.parameter_server.requests import Reply, Request
from d5ray.distributed.simulation.server import HEADER_BYTES, SimulatedServers
from d5ray.errors import PeerLost


@final
class SimulatedServer(Server):
    """The shards near an agent, at the other ends of its wires."""

    def __init__(self, servers: SimulatedServers, elements: int, communication: Communicator) -> None:
        super().__init__(
            rank=communication.rank,
            elements=elements,
            dtype=servers.root[0].shard.x.dtype,
            shards=servers.resolved.servers.shards,
            scheduler=servers.clock,
            traffic=communication.traffic,
            seconds=communication.group.timeout_seconds,
        )
        self._servers = servers
        self._places = servers.near(self.rank)
        self._left = False

    def _ask(self, shard: int, ask: Ask) -> Answer:
        place = self._places[shard]
        vector, sent = ask.vector, 0
        if ask.message is not None:
            assert self._compressor is not None
            sent = ask.message.nbytes
            x = place.shard.x
            vector = self._compressor.decompress(ask.message, x.size, computed_in(x.dtype))
            vector = vector.astype(x.dtype, copy=False)
        elif vector is not None:
            sent = vector.nbytes
        back = 0 if ask.into is None else ask.into.nbytes
        request = Request(
            self.rank, ask.sequence, vector, ask.into, lambda _: None, counts=self.counts, number=ask.number
        )
        bytes_ = HEADER_BYTES + sent, HEADER_BYTES + back
        heard = self._servers.ask(place, self.rank, request, *bytes_, lambda: not self._left)

        def answer() -> Reply:
            if not heard.wait(self.timeout_seconds):
                raise PeerLost(None, f"{place.name} did not answer within {self.timeout_seconds:g} s")
            return request.reply

        return answer

    def kept(self) -> list[Packed]:
        return [pack(place.shard.kept(), place.name) for place in self._places]

    def keep(self, kept: Sequence[Packed]) -> None:
        for place, packed in zip(self._places, kept, strict=True):
            own = place.shard.kept()
            unpack_into(own, packed, np.empty(0), place.name)
            place.shard.keep(own)

    def close(self) -> None:
        self._left = True
        self._servers.leave(self.rank)
