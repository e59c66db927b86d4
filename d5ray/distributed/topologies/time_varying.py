"""Topologies that take turns"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix
from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from d5ray.distributed.topologies.layout import Point


@final
@dataclass(frozen=True, repr=False)
class TimeVarying(Topology):
    """Topologies in turn: one after the other, round by round, again and again.

    Of m topologies, round k is that of number k mod m, as it is at its own round ⌊k / m⌋. Each has its own
    weights, unless a mixing is given here for all.
    """

    topologies: tuple[Topology, ...]
    agents: int = field(init=False)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        given = tuple(self.topologies) if isinstance(self.topologies, Iterable) else ()
        if not given or not all(isinstance(topology, Topology) for topology in given):
            raise ConfigurationError(
                f"topologies is {self.topologies!r}: it must be a tuple of topologies, such as "
                "(Ring(4), Complete(4))"
            )
        if len({topology.agents for topology in given}) > 1:
            sizes = ", ".join(f"{topology} {topology.agents}" for topology in given)
            raise ConfigurationError(f"topologies that take turns need equally many agents, found: {sizes}")
        object.__setattr__(self, "topologies", given)
        object.__setattr__(self, "agents", given[0].agents)
        super().__post_init__()

    @property
    def directed(self) -> bool:
        return any(topology.directed for topology in self.topologies)

    @property
    def period(self) -> int:
        return len(self.topologies) * math.lcm(*(topology.period for topology in self.topologies))

    @property
    def default_mixing(self) -> Mixing:
        return _TheirOwn(self.topologies)

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        turn, which = divmod(round, len(self.topologies))
        return self.topologies[which].out_neighbors(rank, turn)

    def positions(self) -> "list[Point]":
        return self.topologies[0].positions()


@final
@dataclass(frozen=True)
class _TheirOwn(Mixing):
    topologies: tuple[Topology, ...]

    def matrix(self, topology: CommunicationGraph, round: int) -> Matrix:
        turn, which = divmod(round, len(self.topologies))
        return self.topologies[which].weights(turn)
