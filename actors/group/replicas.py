"""The agents of a run by the network they hold together: which of them can go on without which others"""

from collections.abc import Collection, Iterable
from typing import final

from d5ray.distributed.group.group import Group
from d5ray.experiment import Experiment


@final
class Replicas:
    """The replicas of a mesh; without one each agent is a replica of its own, by its rank."""

    def __init__(self, experiment: Experiment) -> None:
        self._mesh, self._size = experiment.mesh, experiment.agents_per_replica

    @property
    def several(self) -> bool:
        """True if several agents hold one network."""
        return self._size > 1

    def of(self, rank: int) -> int:
        """The replica of an agent."""
        return rank // self._size

    def numbers(self, ranks: Iterable[int]) -> set[int]:
        """The replicas of these agents."""
        return {self.of(rank) for rank in ranks}

    def agents_of(self, replica: int) -> list[int]:
        """The agents of a replica, by rank."""
        return list(range(replica * self._size, (replica + 1) * self._size))

    def members(self, ranks: Iterable[int]) -> list[int]:
        """All agents of the replicas of these."""
        return [rank for replica in sorted(self.numbers(ranks)) for rank in self.agents_of(replica)]

    def alike(self, ranks: Collection[int]) -> list[list[int]]:
        """The agents of these ranks by the share of the network that they hold."""
        found: dict[int, list[int]] = {}
        for rank in sorted(ranks):
            found.setdefault(rank % self._size, []).append(rank)
        return list(found.values())

    def groups(self, group: Group) -> tuple[Group, ...]:
        """All groups in which an agent meets others; group: of all agents that are there."""
        return (group,) if self._mesh is None else self._mesh.groups(group)
