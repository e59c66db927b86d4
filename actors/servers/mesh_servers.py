"""The parameter servers of a mesh: every stage and part has its own, since it has parameters of its own"""

from collections.abc import Callable, Sequence
from typing import Any, final

from d5ray.actors.group.coordinator import Place
from d5ray.actors.servers.server_actors import ServerActors
from d5ray.distributed.group.group import Group
from d5ray.distributed.mesh.mesh import Mesh
from d5ray.distributed.world import Directory

Of = tuple[int, int]  # a stage and a part


@final
class MeshServers:
    """The parameter servers of all stages and parts, by their places; they go on only together.

    What is asked of a run's servers while it trains is asked of this.
    """

    def __init__(self, mesh: Mesh, made: Callable[[str], ServerActors]) -> None:
        """made: starts the servers of a place that is called so."""
        self._mesh = mesh
        self._names = {
            (stage, part): f"stage {stage}" + (f" part {part}" if mesh.parts > 1 else "")
            for stage in range(mesh.stages)
            for part in range(mesh.parts)
        }
        self._servers = {of: made(name) for of, name in self._names.items()}

    def open(self, groups: Sequence[Group], place_of: Callable[[object], Place]) -> dict[Of, Directory]:
        """Let all servers serve; gives where they are."""
        return {of: servers.open(groups, place_of) for of, servers in self._servers.items()}

    @property
    def watching(self) -> dict[Any, int]:
        """References that fail when an actor dies, with its number."""
        return {
            reference: first + number
            for first, servers in zip(self._firsts, self._servers.values(), strict=True)
            for reference, number in servers.watching.items()
        }

    def name(self, number: int) -> str:
        """The name of the number-th server."""
        for first, (of, servers) in zip(reversed(self._firsts), reversed(self._servers.items()), strict=True):
            if number >= first:
                return f"{servers.name(number - first)} of {self._names[of]}"
        raise IndexError(number)

    def leave(self, rank: int) -> None:
        """See `ServerActors.leave`; rank: among all agents."""
        seat = self._mesh.seat(rank)
        self._servers[seat.stage, seat.part].leave(seat.replica)

    def enter(self, rank: int, *, again: bool = False) -> None:
        """Let an agent enter at the servers of its stage and part; see `ServerActors.enter`."""
        seat = self._mesh.seat(rank)
        self._servers[seat.stage, seat.part].enter(seat.replica, again=again)

    def loads(self) -> dict[str, dict[str, float]]:
        """The load of each server so far, by name."""
        return {
            f"{name} of {self._names[of]}": load
            for of, servers in self._servers.items()
            for name, load in servers.loads().items()
        }

    def refresh(self) -> None:
        """Bring every group what others have made; see `ServerActors.refresh`."""
        for servers in self._servers.values():
            servers.refresh()

    @property
    def _firsts(self) -> list[int]:
        """The number of the first actor of every place."""
        counts = [len(servers.watching) for servers in self._servers.values()]
        return [sum(counts[:at]) for at in range(len(counts))]
