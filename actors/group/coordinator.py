"""Coordinator of a group's members and where they meet: issues (name, epoch, ordered members) in turn

A plain class, held by the driver.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from d5ray.actors.cluster.placement import Place
from d5ray.actors.metrics.exporter import MetricsExporter, silent
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.wire.secret import Secret
from d5ray.metrics.exports.exported_metrics import AGENTS, EPOCH, FAILURES
from d5ray.metrics.exports.exported_rows import Readings

LOOPBACK = "127.0.0.1"


class Coordinator:
    """Makes the members' descriptions of a group; an epoch is used once.

    It draws the run's secret, which members get with their group, and show nobody else.
    here: the driver's own place. A rendezvous opens with the first group that needs it: one at the loopback
        address for those on the driver's node, one at the node's own as soon as members are on others.
    exporter: what Ray's metrics show of the run as a whole. encrypted: as in `Group`.
    """

    def __init__(
        self,
        name: str,
        timeout_seconds: float,
        here: Place,
        exporter: MetricsExporter | None = None,
        *,
        encrypted: bool = True,
    ) -> None:
        self.name = name
        self.timeout_seconds = timeout_seconds
        self.here = here
        self.epoch = -1
        self._secret = Secret.new()
        self._encrypted = encrypted
        self._rendezvous: dict[str, Rendezvous] = {}  # by the host at which it listens
        self._present: Callable[[], int] | None = None
        self._failures: Counter[str] = Counter()
        self._exporter = exporter or silent()
        self._exporter.start(self.readings)

    def issue(self, places: list[Place], agents: Sequence[int] = ()) -> list[Group]:
        """The next epoch's group, one description a member, in the order of their ranks.

        agents: their ranks among all agents; by default the same.

        Members are reached at the loopback address where all share a node, and so is the rendezvous where
        they share the driver's.
        """
        self.epoch += 1
        nodes = tuple(place.node for place in places)
        together = len(set(nodes)) == 1
        host = LOOPBACK if set(nodes) == {self.here.node} else self.here.address
        if host not in self._rendezvous:
            self._rendezvous[host] = Rendezvous(host, self._secret, self.timeout_seconds)
        return [
            Group(
                name=self.name,
                epoch=self.epoch,
                rank=rank,
                size=len(places),
                store=self._rendezvous[host].address,
                host=LOOPBACK if together else place.address,
                timeout_seconds=self.timeout_seconds,
                nodes=nodes,
                encrypted=self._encrypted,
                agents=tuple(agents),
            )
            for rank, place in enumerate(places)
        ]

    def lose(self, group: Group) -> None:
        """Take notice that this member's actor is gone: the others shall not wait for it."""
        for rendezvous in self._rendezvous.values():
            if rendezvous.address == group.store:
                rendezvous.lose(group.label, group.rank, group.size)

    def count(self, present: Callable[[], int]) -> None:
        """Let the exporter ask this function how many agents take part, from now on."""
        self._present = present

    def failed(self, kind: str) -> None:
        """An agent or a server has failed: died, server_died, nan_loss, failed or peer_lost."""
        self._failures[kind] += 1

    def readings(self) -> Readings:
        """The readings of the coordinator and of the run as a whole, for Ray's metrics."""
        failures = {(FAILURES, kind): float(count) for kind, count in self._failures.copy().items()}
        if self._present is None:
            return failures
        return failures | {(AGENTS, ""): self._present(), (EPOCH, ""): self.epoch}

    def close(self) -> None:
        """End the rendezvous: members that still wait for others get `PeerLost`."""
        self._exporter.close()
        while self._rendezvous:
            self._rendezvous.popitem()[1].close()
