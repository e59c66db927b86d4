"""Faults of a plan that did not happen to a run, each with why, as far as that is known"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from d5ray.distributed.faults.fault import Fault

MISSED: Final = "fault_missed"  # the event of one
OVER: Final = "the run was over by then"


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
