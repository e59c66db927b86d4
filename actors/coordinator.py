"""Who belongs to a group and where its members meet: issues (name, epoch, ordered members), epoch after epoch

A plain class, held by the driver.
"""

from dataclasses import dataclass

from d5ray.distributed.communicator import Group
from d5ray.distributed.rendezvous import Rendezvous

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """Where an actor runs."""

    node: str  # Ray's identifier
    address: str  # of the node
    hostname: str
    pid: int


class Coordinator:
    """Makes the members' descriptions of a group; an epoch is used once.

    here: the driver's own place. The rendezvous of the groups opens with the first of them.
    """

    def __init__(self, name: str, timeout_seconds: float, here: Place) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.here = here
        self.epoch = -1
        self._rendezvous: Rendezvous | None = None

    def issue(self, places: list[Place]) -> list[Group]:
        """The next epoch's group, one description a member, in the order of their ranks.

        Members are reached at the loopback address where all share a node, and so is the rendezvous where
        they share the driver's.
        """
        self.epoch += 1
        nodes = tuple(place.node for place in places)
        together = len(set(nodes)) == 1
        if self._rendezvous is None and len(places) > 1:
            near = set(nodes) == {self.here.node}
            self._rendezvous = Rendezvous(LOOPBACK if near else self.here.address)
        return [
            Group(
                name=self.name,
                epoch=self.epoch,
                rank=rank,
                size=len(places),
                store=self._rendezvous.address if self._rendezvous else None,
                host=LOOPBACK if together else place.address,
                timeout_seconds=self.timeout_seconds,
                nodes=nodes,
            )
            for rank, place in enumerate(places)
        ]

    def lose(self, group: Group) -> None:
        """The actor of this member is gone: the others shall not wait for it."""
        if self._rendezvous is not None:
            self._rendezvous.lose(group.label, group.rank, group.size)

    def close(self) -> None:
        """End the rendezvous: members that still wait for others get `PeerLost`."""
        if self._rendezvous is not None:
            self._rendezvous.close()
            self._rendezvous = None
