"""Announcements of a stage's complete gradients while the last backward passes go on"""

from collections.abc import Callable
from typing import final

from d5ray.distributed.pipeline.messages import Route
from d5ray.networks.executors.gradient_buckets import Announcer
from d5ray.networks.executors.slots import Slot


@final
class Announced:
    """Tells which gradients are complete, in the last backward passes of the chunks."""

    def __init__(self, announcer: Announcer, route: Route, now: Callable[[], int]) -> None:
        self._announcer, self._route, self._now = announcer, route, now
        self._left = set(range(len(route.pieces)))  # chunks
        self.nanoseconds = 0

    def chunk(self, chunk: int, slots: tuple[Slot, ...]) -> None:
        """Announce what is complete with this chunk's last backward pass: nothing else adds to it."""
        self._left.discard(chunk)
        begin, pieces = self._now(), self._route.pieces
        waiting = {name for each in self._left for name in pieces[each].network.parameters}
        for place, slot in enumerate(slots):
            own = slot.name in pieces[chunk].network.parameters
            if own and slot.name not in waiting and slot.name not in self._route.tied:
                self._announcer.arrived(place)
        self.nanoseconds += self._now() - begin

    def rest(self) -> None:
        """Announce what is left: the pass is over."""
        begin = self._now()
        self._announcer.finish()
        self.nanoseconds += self._now() - begin
