"""Group: everything that one member of a group must know to join it"""

from dataclasses import dataclass

from d5ray.distributed.authentication.secret import Secret


@dataclass(frozen=True)
class Store:
    """The address of a `Rendezvous`, and the secret of the run that everyone proves there."""

    host: str
    port: int
    secret: Secret


@dataclass(frozen=True)
class Group:
    """Everything that one member must know to join: (name, epoch) is unique, members meet at `store`.

    encrypted: whether what leaves a machine is hidden from those who see the network. That it comes from a
    member of the run, unaltered, is proved in any case.
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
    encrypted: bool = False

    @property
    def label(self) -> str:
        """The name under which the members meet."""
        return f"{self.name}/{self.epoch}"
