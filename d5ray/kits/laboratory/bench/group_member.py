"""GroupMember: one of the agents that sum arrays together and are timed

A plain class, launched as an actor.
"""

from typing import Final, final

import numpy as np

from d5ray.actors.executors.call_timer import CallTimer, ProblemTiming
from d5ray.actors.metrics.exporter import MetricsExporter
from d5ray.distributed.communicators import backends
from d5ray.distributed.group.group import Group
from d5ray.distributed.topologies.topology import Complete
from d5ray.errors import first_line
from d5ray.kits.laboratory.jobs.worlds import D5rayWorld, timed_sum
from d5ray.ops.counting.measurable import Measurable

ITEM_BYTES: Final = 4  # of float32


@final
class GroupMember:
    """A member of one group. contender: the name of the group in rows; attempt: the number of the round."""

    def __init__(
        self,
        contender: str,
        rank: int,
        run_id: str,
        attempt: int,
        exporter: MetricsExporter | None = None,
    ) -> None:
        self._contender, self._rank = contender, rank
        self._timer = CallTimer(repr(self), contender, run_id, attempt, rank, exporter)

    def __repr__(self) -> str:
        return f"GroupMember({self._contender}, rank={self._rank})"

    def meet(self, group: Group, backend: str) -> None:
        """Join the group's others; all are to be called."""
        self._world = D5rayWorld(backends.join(backend, group, Complete(group.size)))

    def prepare(self) -> dict[str, str]:
        """The facts of the environment that this group adds: the communicator that it has."""
        kind = type(self._world.communicator).__name__
        return {f"{self._contender}_communicator": kind} if self._rank == 0 else {}

    def measure(
        self, problem: Measurable, seconds: float, most_seconds: float, _keep: bool = False
    ) -> ProblemTiming:
        """Time allreduces of the problem's size together with the others, for about `seconds`.

        The sum is compared with the right one first. How often they repeat it the members decide together;
        those calls are not counted. What they take at most (`most_seconds`) they cannot keep to.
        """
        try:
            size, elements = self._world.communicator.size, problem.moved_bytes // ITEM_BYTES
            found = timed_sum(self._world, self._rank, size, elements, seconds)
        except Exception as error:  # whatever a communicator raises: the memory, a peer that is gone
            reason = f"{type(error).__name__}: {first_line(error)}"
            self._timer.skip(problem, reason)
            return ProblemTiming(self._timer.sent(), reason=reason)
        self._timer.values(problem, found.seconds, found.loops)
        median = float(np.median(found.seconds))
        return ProblemTiming(self._timer.sent(), median, median)
