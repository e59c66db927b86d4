"""Undirected graphs by rule: torus, star, tree, hypercube, two sides"""

from dataclasses import dataclass, field
from typing import final

from d5ray.checks import check_count
from d5ray.distributed.topologies.layout import Point, columns, cube, grid, hub, tree
from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True, repr=False)
class Torus(Topology):
    """A grid whose edges meet: agent row · columns + column with those above, below, left and right.

    In a dimension of two the neighbours on both sides are one, in a dimension of one there is none.
    """

    rows: int
    columns: int
    agents: int = field(init=False)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        check_count("rows", self.rows)
        check_count("columns", self.columns)
        object.__setattr__(self, "agents", self.rows * self.columns)
        super().__post_init__()

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        row, column = divmod(rank, self.columns)
        beside = {row * self.columns + (column + step) % self.columns for step in (-1, 1)}
        above = {(row + step) % self.rows * self.columns + column for step in (-1, 1)}
        return tuple(sorted((beside | above) - {rank}))

    def positions(self) -> list[Point]:
        return grid(self.rows, self.columns)


@final
@dataclass(frozen=True, repr=False)
class Star(Topology):
    """The center with everyone, everyone else with the center alone."""

    agents: int
    center: int = 0
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("center", self.center, low=0)
        if self.center >= self.agents:
            raise ConfigurationError(
                f"center is {self.center}, the ranks of {self.agents} agents are 0 to {self.agents - 1}: "
                "take one of them"
            )

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        if rank != self.center:
            return (self.center,)
        return (*range(rank), *range(rank + 1, self.agents))

    def positions(self) -> list[Point]:
        return hub(self.agents, self.center)


@final
@dataclass(frozen=True, repr=False)
class Tree(Topology):
    """A complete tree, level by level: the children of i are branching · i + 1 to branching · (i + 1).

    `Tree(n, branching=1)` is a path.
    """

    agents: int
    branching: int = 2
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("branching", self.branching)

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        parent = ((rank - 1) // self.branching,) if rank else ()
        first = self.branching * rank + 1
        return (*parent, *range(first, min(first + self.branching, self.agents)))

    def positions(self) -> list[Point]:
        return tree([(rank - 1) // self.branching for rank in range(self.agents)])


@final
@dataclass(frozen=True, repr=False)
class Hypercube(Topology):
    """A hypercube: neighbours' ranks differ in one bit; the number of agents is a power of two."""

    agents: int
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        below = 2 ** (self.agents.bit_length() - 1)
        if self.agents != below:
            raise ConfigurationError(
                f"agents is {self.agents}: a hypercube needs a power of two, take {below} or {2 * below}"
            )

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return tuple(sorted(rank ^ (1 << bit) for bit in range(self.agents.bit_length() - 1)))

    def positions(self) -> list[Point]:
        return cube(self.agents)


@final
@dataclass(frozen=True, repr=False)
class Bipartite(Topology):
    """The first `left` agents with each of the other `right`, nobody with its own side.

    With one side active and one passive no pair waits for another (AD-PSGD: Lian et al.,
    arXiv:1710.06952); `sides` has the two.
    """

    left: int
    right: int
    agents: int = field(init=False)
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        check_count("left", self.left)
        check_count("right", self.right)
        object.__setattr__(self, "agents", self.left + self.right)
        super().__post_init__()

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return tuple(range(self.left, self.agents) if rank < self.left else range(self.left))

    def positions(self) -> list[Point]:
        return columns(self.left, self.right)
