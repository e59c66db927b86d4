"""Newcomers of a simulation: agents that start in virtual time while the others train"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Final, final

from d5ray.simulated.members import Members

START_SECONDS: Final = 2.0  # virtual: about what a process takes that imports PyTorch and builds a model


@final
class SimulatedNewcomers:
    """Starts agents that nobody waits for; ready: the ranks of those that have started.

    on_ready: called when one has.
    """

    def __init__(self, members: Members, on_ready: Callable[[], None]) -> None:
        self._members, self._on_ready = members, on_ready
        self._starting: dict[int, int] = {}  # the number on the clock under which it will be ready, by rank
        self.ready: set[int] = set()

    @property
    def coming(self) -> set[int]:
        """The ranks of those that start or are ready."""
        return self._starting.keys() | self.ready

    def begin(self, ranks: Collection[int]) -> None:
        """Start agents in the place of those of these ranks that are gone."""
        clock = self._members.simulation.clock
        for rank in sorted(self._members.gone.intersection(ranks) - self.coming):
            due = clock.seconds + START_SECONDS
            self._starting[rank] = clock.at(due, partial(self._started, rank))

    def cancel(self, rank: int) -> None:
        """Let one that comes not come."""
        if rank in self._starting:
            self._members.simulation.clock.cancel(self._starting.pop(rank))
        self.ready.discard(rank)

    def take(self) -> set[int]:
        """Let those be there that are ready; their ranks."""
        taken, self.ready = self.ready, set()
        for rank in sorted(taken):
            self._members.start(rank)
        self._members.gone -= taken
        return taken

    def _started(self, rank: int) -> None:
        del self._starting[rank]
        self.ready.add(rank)
        self._on_ready()
