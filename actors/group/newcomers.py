"""Newcomers: agents that start while the others train, and that nobody waits for until they are ready"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

import ray
from ray.exceptions import RayError, RayTaskError

from d5ray.actors.calls import DEATHS, cause_of
from d5ray.actors.group.roster import AgentRoster
from d5ray.errors import AgentError, first_line


@final
@dataclass
class _Starting:
    """An agent that starts: its calls in their order, and the seconds that those took which are done."""

    calls: dict[str, Any]
    begun: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)


@final
class Newcomers:
    """Starts agents without waiting; where a cluster has no room for one, it comes when there is."""

    def __init__(self, members: AgentRoster) -> None:
        self._members = members
        self._starting: dict[int, _Starting] = {}
        self._prepared: dict[int, dict[str, float]] = {}  # seconds by what they were for, by rank

    @property
    def coming(self) -> set[int]:
        """The ranks of those that start or are ready."""
        return self._starting.keys() | self._prepared.keys()

    @property
    def ready(self) -> list[int]:
        """The ranks of those that have their model and data, as all have that are of the same replica."""
        replicas, prepared = self._members.replicas, self._prepared.keys()
        return [rank for rank in sorted(prepared) if prepared >= set(replicas.members([rank]))]

    def begin(self, rank: int) -> None:
        """Start an agent, which is not there until it is taken in."""
        self._prepared.pop(rank, None)
        self._starting[rank] = _Starting(self._members.begin(rank))

    def cancel(self, rank: int) -> None:
        """Let one that comes not come."""
        self._starting.pop(rank, None)
        self._prepared.pop(rank, None)
        ray.kill(self._members.agents[rank])

    def look(self) -> dict[int, str]:
        """Take notice of those that are ready; those that died as they started, with the reasons."""
        died = {}
        for rank, starting in list(self._starting.items()):
            try:
                self._look_at(rank, starting)
            except DEATHS as error:
                died[rank] = first_line(error)
                del self._starting[rank]
            except RayTaskError as error:
                raise cause_of(error) from None
            except RayError as error:
                raise AgentError(f"TrainingAgent(rank={rank}) did not start: {first_line(error)}") from error
        return died

    def take(self) -> dict[int, dict[str, float]]:
        """Give the newcomers that are ready, which are none any longer: what they spent seconds on."""
        return {rank: self._prepared.pop(rank) for rank in self.ready}

    def give_back(self, taken: Mapping[int, dict[str, float]]) -> None:
        """Keep newcomers that were not taken in."""
        self._prepared |= taken

    def _look_at(self, rank: int, starting: _Starting) -> None:
        for name, call in list(starting.calls.items()):
            if not ray.wait([call], timeout=0)[0]:
                if name == "import":
                    attempt, passed = self._members.attempts[rank], time.monotonic() - starting.begun
                    self._members.room.look(rank, attempt, passed)
                return
            answer = ray.get(call)
            del starting.calls[name]
            passed = time.monotonic() - starting.begun - sum(starting.seconds.values())
            if name == "import":
                starting.seconds["start of the actor"] = max(0.0, passed - answer)
                passed = answer
            starting.seconds[name] = passed
            if name == "place":
                self._members.places[rank] = answer
        del self._starting[rank]
        self._prepared[rank] = starting.seconds
