"""Agents that die in a simulation, by plan"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final

from d5ray.checks import MOST_RANKS, check_count, check_items
from d5ray.distributed.simulation.links import check_positive
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class Failure:
    """This agent dies when that much virtual time has passed, wherever it is in its step."""

    agent: int
    seconds: float

    def __post_init__(self) -> None:
        check_count("agent", self.agent, 0, MOST_RANKS - 1)
        check_positive("seconds", self.seconds, zero=True)


def check_failures(failures: Iterable[Failure], agents: int) -> tuple[Failure, ...]:
    """The failures as a tuple; raises `ConfigurationError` for a stranger, or an agent that is not there."""
    listed = check_items("failures", failures, "a tuple such as (Failure(agent=3, seconds=0.5),)")
    for failure in listed:
        if not isinstance(failure, Failure):
            raise ConfigurationError(
                f"failures has {failure!r}: it must be a Failure(agent=3, seconds=0.5) or several"
            )
        if failure.agent not in range(agents):
            raise ConfigurationError(
                f"{failure!r} names an agent that is not there: the experiment's agents are 0 to {agents - 1}"
            )
    return listed
