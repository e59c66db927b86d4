"""Group: everything that one member of a group must know to join it"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from d5ray.distributed.wire.secret import Secret


@dataclass(frozen=True)
class Store:
    """The address of a `Rendezvous`, and the secret of the run that everyone proves there."""

    host: str
    port: int
    secret: Secret


@dataclass(frozen=True)
class Group:
    """Everything that one member must know to join: (name, epoch) is unique, members meet at `store`.

    encrypted: whether what leaves a machine travels under TLS. Otherwise both ends prove at the beginning of
    a connection that they belong to the run, and what follows can be read and altered on its way.
    """

    name: str
    epoch: int
    rank: int
    size: int
    store: Store | None = None  # a group of one needs none
    host: str = "127.0.0.1"  # this member's own address
    timeout_seconds: float = 120.0
    nodes: tuple[str, ...] = ()  # the node each member is on, by rank; empty: all on one
    device: str = "cpu"  # of this member's arrays
    encrypted: bool = True
    agents: tuple[int, ...] = ()  # the members' ranks among all agents, by rank here; empty: the same

    def agent(self, rank: int) -> int:
        """The rank among all agents of the member with this rank."""
        return self.agents[rank] if self.agents else rank

    def among(self, ranks: Sequence[int], name: str) -> "Group":
        """The group of some of the members, one of which this is, under another name."""
        return replace(
            self,
            name=name,
            rank=ranks.index(self.rank),
            size=len(ranks),
            nodes=tuple(self.nodes[rank] for rank in ranks) if self.nodes else (),
            agents=tuple(self.agent(rank) for rank in ranks),
        )

    @property
    def label(self) -> str:
        """The name under which the members meet."""
        return f"{self.name}/{self.epoch}"
