"""Outcome of a training, for one agent and for all of them"""

from collections.abc import Mapping
from dataclasses import dataclass

RUN_STATUS = {"died": "failed", "peer_lost": "failed"}  # in the `runs` table, where an outcome has another
FAILURES = ("failed", "nan_loss", "died")  # of one agent; they end the run for all


@dataclass(frozen=True)
class Outcome:
    """The end of a call of `train`: completed, stopped, paused, nan_loss, peer_lost, failed or died.

    One that is paused goes on in a group with others; one that is completed has a reason where an event
    ended it.
    """

    status: str
    step: int  # steps done since the start of the run
    reason: str = ""

    @property
    def completed(self) -> bool:
        """True if the training ended as it should, or because an event ended it."""
        return self.status == "completed"


def worst(outcomes: Mapping[int, Outcome]) -> Outcome:
    """The outcome that ended the run: an agent's own failure rather than that its peers lost it."""
    for status in (*FAILURES, "peer_lost", "stopped"):
        for outcome in outcomes.values():
            if outcome.status == status:
                step = max(other.step for other in outcomes.values())
                return Outcome(status, outcome.step or step, outcome.reason)
    stopped = [outcome for outcome in outcomes.values() if outcome.reason]  # by an event, as it was meant
    return stopped[0] if stopped else outcomes[min(outcomes)]
