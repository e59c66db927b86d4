"""Who belongs to a group: issues (name, epoch, ordered members), the next epoch after a failure.

A plain class, held by the driver.
"""

from dataclasses import dataclass

from d5ray.distributed.communicator import Group


@dataclass(frozen=True)
class Place:
    """Where an actor runs."""

    node: str  # Ray's identifier
    address: str  # of the node
    hostname: str
    pid: int


class Coordinator:
    """Makes the members' descriptions of a group; an epoch is used once."""

    def __init__(self, name: str, timeout_seconds: float) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.epoch = -1

    def hosts(self, places: list[Place]) -> list[str]:
        """The address each member is reached at: the loopback one where all share a node."""
        if len({place.node for place in places}) == 1:
            return ["127.0.0.1"] * len(places)
        return [place.address for place in places]

    def issue(self, hosts: list[str], store: tuple[str, int] | None) -> list[Group]:
        """The next epoch's group, one description a member, in the order of their ranks."""
        self.epoch += 1
        return [
            Group(
                name=self.name,
                epoch=self.epoch,
                rank=rank,
                size=len(hosts),
                store=store,
                host=host,
                timeout_seconds=self.timeout_seconds,
            )
            for rank, host in enumerate(hosts)
        ]
