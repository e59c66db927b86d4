"""Agents that join a running training, by plan"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from d5ray.checks import MOST_RANKS, KnownKeywords, check_count, check_items, check_kind, check_number
from d5ray.distributed.optimizers.exchange import ExchangeVia
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError


@final
@dataclass(frozen=True)
class Late(KnownKeywords):
    """An agent that joins when the others have trained for these seconds, virtual ones in a simulation.

    It takes the parameters of the servers or of another agent, and continues at the step of the most advanced
    agent. Its process is started then; its resources are reserved from the beginning.
    """

    agent: int
    seconds: float

    def __post_init__(self) -> None:
        check_count("agent", self.agent, 0, MOST_RANKS - 1)
        check_number("seconds", self.seconds, low=0.0, low_included=True)


def check_late(given: object, agents: int = MOST_RANKS) -> tuple[Late, ...]:
    """The late agents; raises `ConfigurationError` for a stranger, or an agent that is not there."""
    listed = (given,) if isinstance(given, Late) else given
    listed = check_items("late", listed, "a tuple such as (Late(agent=3, seconds=5),)")
    for late in listed:
        check_kind("late", late, Late, "a Late(agent=3, seconds=5), or several")
        if late.agent not in range(agents):
            raise ConfigurationError(
                f"{late!r} names the agent {late.agent!r}: the experiment's agents are 0 to {agents - 1}"
            )
    if len({late.agent for late in listed}) < len(listed):
        raise ConfigurationError(f"late is {given!r}: an agent joins once")
    return listed


def check_joining(
    late: Mapping[int, Late], distributed: DistributedOptimizer, agents: int, groups: int
) -> None:
    """Raise `ConfigurationError` unless the others can train without them; groups: of parameter servers."""
    if late and (not distributed.one_sided or ExchangeVia.SHARED_MEMORY in distributed.exchange):
        raise ConfigurationError(
            f"late is {tuple(late.values())!r}, but the agents of {distributed!r} wait for each other or "
            "share memory: take an optimizer such as ASGD() or ADPSGD()"
        )
    for group in range(groups):
        if (first := agents * group // groups) in late:
            raise ConfigurationError(
                f"{late[first]!r} is the first agent{f' of group {group}' if groups > 1 else ''}, "
                "which brings the first parameters: let another one be late"
            )
