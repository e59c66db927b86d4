"""The agents that write one checkpoint together: how they agree, and the names of their files"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.model_parallelism import ModelParallelism
from d5ray.training.arrays import zeros_like


@final
@dataclass(frozen=True)
class Savers:
    """All agents that save at one step, as one of them sees them; in a mesh each has its share of a network.

    replicas  the communicator of those that hold the same parameters
    mesh      None: each agent is a replica
    place     its own in the mesh
    within    those of the agents that hold the rest of its network
    """

    replicas: Communicator
    mesh: ModelParallelism | None = None
    place: int = 0
    within: Sequence[Communicator] = ()

    @property
    def rank(self) -> int:
        """The agent's number among those that save, without gaps where replicas are gone."""
        return self.replicas.rank * self._places + self.place

    @property
    def agents(self) -> int:
        """The number of agents that save."""
        return self.replicas.size * self._places

    @property
    def file(self) -> str:
        """The name of the agent's own file."""
        return _file(self.rank)

    @property
    def first(self) -> str:
        """The name of the first agent's file, which has the whole model."""
        return _file(0)

    def files(self, shards: int) -> list[str]:
        """The names of all files; shards: the parameter servers of each place."""
        servers = [self._shard(at, place) for place in range(self._places) for at in range(shards)]
        return sorted([_file(rank) for rank in range(self.agents)] + servers)

    def shard(self, number: int) -> str:
        """The name of the file of one of its parameter servers."""
        return self._shard(number, self.place)

    def any(self, agree: bool, like: Any) -> bool:
        """True if one of them says so; all call it. like: an array that they can exchange."""
        return any_of(agree, (*self.within, self.replicas), like)

    @property
    def _places(self) -> int:
        return 1 if self.mesh is None else self.mesh.agents_per_replica

    def _shard(self, number: int, place: int) -> str:
        of = ""
        if self.mesh is not None and self.mesh.shares_networks:
            of = f"-{self.mesh.name_of(place)}".replace(" ", "-")
        return f"shard-{number}{of}.safetensors"


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
