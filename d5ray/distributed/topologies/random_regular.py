"""A random graph in which everyone has the same number of neighbours"""

from dataclasses import dataclass
from functools import lru_cache
from typing import final

from d5ray.checks import check_count
from d5ray.distributed.topologies.mixing import Mixing
from d5ray.distributed.topologies.topology import Topology
from d5ray.errors import ConfigurationError

MOST_SEEDS = 1000


@final
@dataclass(frozen=True, repr=False)
class RandomRegular(Topology):
    """A connected graph, drawn among those in which everyone has `degree` neighbours.

    Drawn by networkx (Steger and Wormald, doi 10.1017/S0963548399003867; Kim and Vu,
    doi 10.1145/780542.780576) from `seed`, or, where that graph falls apart, the first following seed whose
    graph does not. Its spectral gap stays when agents are added, with high probability (Friedman,
    arXiv:cs/0405020).
    """

    agents: int
    degree: int
    seed: int = 0
    mixing: Mixing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("degree", self.degree, low=0)
        check_count("seed", self.seed, low=0)
        found = f"RandomRegular has {self.agents} agents of degree {self.degree}"
        if self.degree >= self.agents:
            raise ConfigurationError(f"{found}: nobody has more than {self.agents - 1} others, take less")
        if self.degree < min(2, self.agents - 1):
            least = min(2, self.agents - 1)
            raise ConfigurationError(f"{found}, which cannot be connected: take degree {least} or more")
        if self.agents * self.degree % 2:
            raise ConfigurationError(
                f"{found}, but agents · degree must be even, since an edge has two ends: take degree "
                f"{self.degree - 1} or {self.degree + 1}, or {self.agents + 1} agents"
            )

    def out_neighbors(self, rank: int, round: int = 0) -> tuple[int, ...]:
        return _drawn(self.agents, self.degree, self.seed)[rank]


@lru_cache(maxsize=64)
def _drawn(agents: int, degree: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """The neighbours by rank."""
    import networkx  # noqa: PLC0415 - a quarter of a second, which only those pay who draw a graph

    fewer = min(degree, agents - 1 - degree)  # of dense graphs the edges that are missing are drawn
    for following in range(seed, seed + MOST_SEEDS):
        drawn = networkx.random_regular_graph(fewer, agents, seed=following)
        graph = drawn if fewer == degree else networkx.complement(drawn)
        if networkx.is_connected(graph):
            return tuple(tuple(sorted(graph[rank])) for rank in range(agents))
    raise ConfigurationError(
        f"none of the {MOST_SEEDS} graphs drawn for RandomRegular({agents}, {degree}, seed={seed}) is "
        "connected: take a higher degree"
    )
