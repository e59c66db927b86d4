"""The agents that write one checkpoint together: how they agree, and the names of their files"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.mesh.mesh import Mesh, Seat
from d5ray.training.arrays import zeros_like

ALONE = Seat(0, 0, 0)


@final
@dataclass(frozen=True)
class Savers:
    """All agents that save at one step, as one of them sees them; in a mesh each has its share of a network.

    replicas  the communicator of those that hold the same parameters
    mesh      None: each agent is a replica
    seat      its own place in the mesh
    within    those of the agents that hold the rest of its network: its parts, then its stages
    """

    replicas: Communicator
    mesh: Mesh | None = None
    seat: Seat = ALONE
    within: Sequence[Communicator] = ()

    @property
    def rank(self) -> int:
        """The agent's number among those that save, without gaps where replicas are gone."""
        return self._rank(self.replicas.rank, self.seat)

    @property
    def agents(self) -> int:
        """The number of agents that save."""
        return self.replicas.size * len(self._seats)

    @property
    def file(self) -> str:
        """The name of the agent's own file."""
        return _file(self.rank)

    @property
    def first(self) -> str:
        """The name of the first agent's file, which has the whole model."""
        return _file(0)

    def files(self, shards: int) -> list[str]:
        """The names of all files; shards: the parameter servers of each stage and part."""
        servers = [_shard(at, self._label(seat)) for seat in self._seats for at in range(shards)]
        return sorted([_file(rank) for rank in range(self.agents)] + servers)

    def shard(self, number: int) -> str:
        """The name of the file of one of its parameter servers."""
        return _shard(number, self._label(self.seat))

    def any(self, agree: bool, like: Any) -> bool:
        """True if one of them says so; all call it. like: an array that they can exchange."""
        return any_of(agree, (*self.within, self.replicas), like)

    @property
    def _seats(self) -> list[Seat]:
        if self.mesh is None:
            return [ALONE]
        return [Seat(0, stage, part) for stage in range(self.mesh.stages) for part in range(self.mesh.parts)]

    def _rank(self, replica: int, seat: Seat) -> int:
        return replica if self.mesh is None else self.mesh.rank(Seat(replica, seat.stage, seat.part))

    def _label(self, seat: Seat) -> str:
        if self.mesh is None or not self.mesh.shares_networks:
            return ""
        return f"-stage-{seat.stage}" + (f"-part-{seat.part}" if self.mesh.parts > 1 else "")


def any_of(agree: bool, together: Iterable[Communicator], like: Any) -> bool:
    """True if one of the members of these groups says so: each has members of the one before it."""
    for communication in together:
        agree = agents_that(agree, communication, like) > 0
    return agree


def agents_that(agree: bool, communication: Communicator, like: Any) -> int:
    """The number of agents that call this with True; all call it. like: an array that they can exchange."""
    if communication.size == 1:
        return int(agree)
    flag = zeros_like(like[:1])
    flag[0] = float(agree)
    communication.allreduce(flag)
    return round(float(flag[0]))


def _file(rank: int) -> str:
    return f"agent-{rank}.safetensors"


def _shard(number: int, label: str) -> str:
    return f"shard-{number}{label}.safetensors"
