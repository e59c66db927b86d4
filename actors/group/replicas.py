"""The agents of a run by the network they hold together: which of them can go on without which others"""

from collections.abc import Collection, Iterable
from typing import Any, final

from d5ray.agent.mesh import groups_of, left, seat_of
from d5ray.distributed.group.group import Group
from d5ray.experiment import Experiment


@final
class Replicas:
    """The replicas of a mesh; without one each agent is a replica of its own, by its rank."""

    def __init__(self, experiment: Experiment) -> None:
        self._mesh, count = experiment.mesh, experiment.agents or 1
        self._seats = [seat_of(experiment, rank) for rank in range(count)]

    @property
    def several(self) -> bool:
        """True if several agents hold one network."""
        return self._mesh is not None and self._mesh.shares_networks

    def of(self, rank: int) -> int:
        """The replica of an agent."""
        return self._seats[rank].replica

    def numbers(self, ranks: Iterable[int]) -> set[int]:
        """The replicas of these agents."""
        return {self.of(rank) for rank in ranks}

    def agents_of(self, replica: int) -> list[int]:
        """The agents of a replica, by rank."""
        return [rank for rank, seat in enumerate(self._seats) if seat.replica == replica]

    def members(self, ranks: Iterable[int]) -> list[int]:
        """All agents of the replicas of these."""
        wanted = self.numbers(ranks)
        return [rank for rank, seat in enumerate(self._seats) if seat.replica in wanted]

    def alike(self, ranks: Collection[int]) -> list[list[int]]:
        """The agents of these ranks by the share of the network that they hold."""
        found: dict[Any, list[int]] = {}
        for rank in sorted(ranks):
            found.setdefault((self._seats[rank].stage, self._seats[rank].part), []).append(rank)
        return list(found.values())

    def groups(self, group: Group) -> tuple[Group, ...]:
        """All groups in which an agent meets others; group: of all agents that are there."""
        return (group,) if self._mesh is None else groups_of(left(self._mesh, group), group)
