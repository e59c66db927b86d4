"""Agents that join a training when it is under way, by plan"""

from dataclasses import dataclass
from typing import final

from d5ray.checks import MOST_RANKS, check_count, check_number
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class Late:
    """An agent that joins when the others have trained for these seconds; virtual ones in a simulation.

    It takes the servers' parameters, or another agent's, and goes on at the step where the furthest agent is.
    Its process is started then; what it needs is reserved from the beginning.
    """

    agent: int
    seconds: float

    def __post_init__(self) -> None:
        check_count("agent", self.agent, 0, MOST_RANKS - 1)
        check_number("seconds", self.seconds, low=0.0, low_included=True)


def check_late(given: object, agents: int) -> tuple[Late, ...]:
    """The late agents; raises `ConfigurationError` for a stranger, or an agent that is not there."""
    listed = (given,) if isinstance(given, Late) else given
    if not isinstance(listed, (tuple, list)):
        raise ConfigurationError(f"late is {given!r}: it must be a tuple such as (Late(agent=3, seconds=5),)")
    for late in listed:
        if not isinstance(late, Late):
            raise ConfigurationError(f"late has {late!r}: it must be a Late(agent=3, seconds=5)")
        if isinstance(late.agent, bool) or late.agent not in range(agents):
            raise ConfigurationError(
                f"{late!r} names the agent {late.agent!r}: the experiment's agents are 0 to {agents - 1}"
            )
    if len({late.agent for late in listed}) < len(listed):
        raise ConfigurationError(f"late is {given!r}: an agent joins once")
    return tuple(listed)
