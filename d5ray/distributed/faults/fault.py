"""One fault of a plan as data: its kind, its target, its time and its duration; and why one did not happen"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

from d5ray.checks import (
    MOST_RANKS,
    check_choice,
    check_count,
    check_items,
    check_kind,
    check_number,
    check_share,
)
from d5ray.errors import ConfigurationError

SIGNALS: Final = ("kill", "stop", "terminate")  # kinds that a process gets as a signal
OF_LINKS: Final = ("partition", "delay", "lose")
FILLS: Final = ("fill_disk", "fill_shared_memory")
KINDS: Final = (*SIGNALS, *OF_LINKS, *FILLS)
NUMBERED: Final = ("agent", "server")
ALONE: Final = ("aggregator", "driver", "raylet", "gcs", "head")
OF_AGENTS: Final = ("evaluation", "checkpoint", "collective")
OF_RUN: Final = ("recovery", "closing")
AMOUNTS: Final = {"delay": "by_seconds", "lose": "share"}
MISSED: Final = "fault_missed"  # the event of one
OVER: Final = "the run was over by then"


@final
@dataclass(frozen=True)
class Fault:
    """A fault as `Faults` holds it: made by `Faults().kill(agent=1, at_step=3)` and the like.

    kind        'kill', 'stop', 'terminate', 'partition', 'delay', 'lose', 'fill_disk' or 'fill_shared_memory'
    victim      'agent', 'server', 'aggregator', 'driver', 'raylet', 'gcs' or 'head', if it has one
    numbers     of the agent or the server; for a partition those agents that are cut off together
    at_step     just before this step of the agent, from 0
    at_seconds  seconds after the beginning of the training
    during      the first moment of this name, at `at_step` or later
    seconds     its duration; None: for ever
    amount      the seconds of a delay, or the share of lost messages
    """

    kind: str
    victim: str = ""
    numbers: tuple[int, ...] = ()
    at_step: int | None = None
    at_seconds: float | None = None
    during: str | None = None
    seconds: float | None = None
    amount: float | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, KINDS)
        if self.victim:
            check_choice("victim", self.victim, (*NUMBERED, *ALONE))
        for number in self.numbers:
            check_count(self.victim or "agents", number, 0, MOST_RANKS - 1)
        if self.seconds is not None:
            check_number("seconds", self.seconds, low=0.0, low_included=False)
        if self.kind == "delay":
            check_number("by_seconds", self.amount, low=0.0, low_included=False)
        if self.kind == "lose":
            check_share("share", self.amount)
        self._check_instant()

    def _check_instant(self) -> None:
        if self.at_step is not None:
            check_count("at_step", self.at_step, 0)
        if self.at_seconds is not None:
            check_number("at_seconds", self.at_seconds, low=0.0, low_included=True)
        if self.during is not None:
            check_choice("during", self.during, (*OF_AGENTS, *OF_RUN))
        given = {"at_step": self.at_step, "at_seconds": self.at_seconds, "during": self.during}
        named = [name for name, value in given.items() if value is not None]
        if not named or (self.at_seconds is not None and len(named) > 1):
            raise ConfigurationError(
                f"{self} has {' and '.join(named) or 'no instant'}: give at_step=3, at_seconds=2.5, "
                "during='collective', or at_step with during"
            )
        if self.at_step is not None and self.victim != "agent":
            raise ConfigurationError(f"{self} has at_step, but agents alone have steps: give at_seconds=2")
        if self.during in OF_AGENTS and self.victim != "agent":
            raise ConfigurationError(
                f"{self} has during={self.during!r}, a moment of agents: give agent=…, at_seconds=2, or "
                f"during={OF_RUN[0]!r}"
            )
        if self.during in OF_RUN and self.at_step is not None:
            raise ConfigurationError(f"{self} has at_step and during={self.during!r}: give one of them")

    def __str__(self) -> str:
        """The call of `Faults` that gives it.

        >>> str(Fault("kill", "agent", (1,), at_step=3))
        'kill(agent=1, at_step=3)'
        """
        words: list[str] = []
        if self.victim in NUMBERED:
            words.append(f"{self.victim}={self.numbers[0]}")
        elif self.victim:
            words.append(repr(self.victim))
        elif self.numbers:
            words.append(f"agents={self.numbers!r}")
        if self.kind in AMOUNTS:
            words.append(f"{AMOUNTS[self.kind]}={self.amount!r}")
        for name in ("at_step", "at_seconds", "during", "seconds"):
            if (value := getattr(self, name)) is not None:
                words.append(f"{name}={value!r}")
        return f"{self.kind}({', '.join(words)})"

    @property
    def described(self) -> dict[str, Any]:
        """The fault for an event's details: kind, victim, and the planned time."""
        whom = self.victim or ("agents" if self.numbers else "all")
        if self.numbers:
            whom += " " + ", ".join(map(str, self.numbers))
        return {"kind": self.kind, "victim": whom, "planned": str(self)}

    @property
    def is_fatal(self) -> bool:
        """True if the process does not recover from it by itself."""
        return self.kind in ("kill", "terminate") or (self.kind == "stop" and self.seconds is None)


def missed(
    planned: Iterable[Fault], told: Iterable[str], why: Mapping[Fault, str], whole: Collection[str] = ()
) -> dict[Fault, str]:
    """The faults that did not happen, or met nobody, with the reasons.

    told: the texts of those that events tell of. why: what is known of some that did not happen; one of these
    that was told of was announced, and its moment did not come. whole: agents and servers that never died
    before they had told all that the run asked of them, such as "agent 1": what ended one of them came later,
    and nobody had to survive it.

    >>> plan = [Fault("kill", "agent", (1,), at_step=step) for step in (3, 9)]
    >>> list(missed(plan, ["kill(agent=1, at_step=3)"], {}).values())
    ['agent 1 did not get to it at step 9']
    >>> list(missed(plan[:1], ["kill(agent=1, at_step=3)"], {}, whole=["agent 1"]).values())
    ['agent 1 had told everything by then']
    """
    left, found = Counter(told), {}
    for fault in planned:
        if fault not in why and left[str(fault)] > 0:
            left[str(fault)] -= 1
            if fault.is_fatal and (victim := fault.described["victim"]) in whole:
                found[fault] = f"{victim} had told everything by then"
        else:
            found[fault] = why.get(fault, _usual(fault))
    return found


def unseen(fault: Fault) -> str:
    """Why a fault in a moment of an agent did not happen that waited for it."""
    return f"no {fault.during} of it was seen from step {fault.at_step or 0} on"


def _usual(fault: Fault) -> str:
    """Why a fault did not happen of which nothing else is known."""
    if fault.at_step is not None:
        return f"agent {fault.numbers[0]} did not get to it at step {fault.at_step}"
    if fault.at_seconds is not None:
        return OVER
    return f"there was no {fault.during}"


@final
@dataclass(frozen=True)
class Failure:
    """This agent dies when that much virtual time has passed, wherever it is in its step."""

    agent: int
    seconds: float

    def __post_init__(self) -> None:
        check_count("agent", self.agent, 0, MOST_RANKS - 1)
        check_number("seconds", self.seconds, low=0.0, low_included=True)


def check_failures(failures: Iterable[Failure], agents: int) -> tuple[Failure, ...]:
    """The failures as a tuple; raises `ConfigurationError` for a stranger, or an agent that is not there."""
    listed = check_items("failures", failures, "a tuple such as (Failure(agent=3, seconds=0.5),)")
    for failure in listed:
        check_kind("failures", failure, Failure, "a Failure(agent=3, seconds=0.5), or several")
        if failure.agent not in range(agents):
            raise ConfigurationError(
                f"{failure!r} names an agent that is not there: the experiment's agents are 0 to {agents - 1}"
            )
    return listed
