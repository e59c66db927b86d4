"""The agents' calls of `train` up to one step: which are under way, and how the others ended"""

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, final

import ray
from ray.exceptions import RayError, RayTaskError

from d5ray.actors.calls import DEATHS, cause_of
from d5ray.actors.group.progress_watch import ProgressWatch
from d5ray.actors.group.roster import AgentRoster
from d5ray.actors.group.run_row import RunPlan
from d5ray.actors.session import session
from d5ray.agent.outcome import Outcome
from d5ray.errors import AgentError, first_line
from d5ray.training.batches.epochs import Position

DEATH_SECONDS: Final = 10.0  # for Ray to tell of a death that others have noticed
STOP_SECONDS: Final = 2.0  # for an agent to end its step after it was told to


@final
class TrainCalls:
    """One training of all agents, which go on up to the step `last`.

    until: the place in the data that `last` stands for, where epochs are to be trained and not steps.
    pending: ranks by reference. outcomes: of those that came back, by rank. idle: references to the rounds
    without gradients of those that have done their steps while others have not, by rank.
    """

    def __init__(
        self,
        plan: RunPlan,
        members: AgentRoster,
        last: int,
        watch: ProgressWatch,
        kill: Callable[[int], None],
        note: Callable[..., None],
    ) -> None:
        """kill: ends the process of the agent with this rank. note: keeps an event."""
        self._members, self.last = members, last
        self.until: Position | None = None
        self._watch, self._kill, self._note = watch, kill, note
        self._patience = plan.experiment.faults.stuck_seconds or plan.experiment.timeout_seconds
        self._stuck: dict[int, str] = {}  # why agents were killed, by rank
        self._has_idle_rounds = plan.experiment.distributed_optimizer.has_idle_rounds
        several = plan.experiment.agents_per_replica > 1  # then some wait for others in any case
        self._forms_again = several or not plan.experiment.distributed_optimizer.one_sided
        self.parting = False  # whether some left their group so that all come back
        self._death_by = 0.0  # when Ray has told of a death that was noticed
        self._after_death = ""  # for who reads of it
        if plan.experiment.faults.on_failure == "stop":
            self._forms_again = False
            self._after_death = (
                ", so the others were stopped; what was measured until then is kept: "
                f"d5ray show {plan.run_id}"
            )
        self.pending: dict[Any, int] = {}
        self.outcomes: dict[int, Outcome] = {}
        self._idle: dict[int, Any] = {}

    @property
    def failed(self) -> bool:
        """True if an agent did not complete its training, so that nobody is to go on.

        Where a group is formed again, one that lost a peer did not fail as long as Ray may tell of a death.
        """
        waits = self.pending and time.monotonic() < self._death_by
        return any(
            not outcome.completed
            and outcome.status != "paused"
            and not (outcome.status == "peer_lost" and (waits or self.parting))
            for outcome in self.outcomes.values()
        )

    @property
    def parted(self) -> bool:
        """True if all are back, since some lost a peer, and nobody has died: a connection broke alone."""
        back = {outcome.status for outcome in self.outcomes.values()}
        alone = "peer_lost" in back and back.issubset(("peer_lost", "completed"))
        return alone and self._forms_again and not (self.pending or self.parting)

    def go_on(self, rank: int, step: int) -> None:
        """Let an agent go on from this step, with all others."""
        self.resume(rank, step)
        self._from = time.monotonic(), step

    def resume(self, rank: int, step: int) -> None:
        """Let an agent go on from this step, whose others go on already."""
        self._watch.begin([rank])
        self.pending[self._members.agents[rank].train.remote(self.last - step, self.until)] = rank

    def rate(self, step: int) -> float:
        """Steps a second until this step, since agents went on last."""
        then, first = self._from
        return (step - first) / max(time.monotonic() - then, 1e-3)

    def take(self, reference: Any) -> tuple[int, Outcome]:
        """The rank and the outcome of a call that came back."""
        rank = self.pending.pop(reference)
        outcome = _outcome(reference, rank)
        stuck = self._stuck.pop(rank, "")
        if outcome.status == "died":
            outcome = replace(outcome, reason=(stuck or outcome.reason) + self._after_death)
        return rank, outcome

    def keep(self, rank: int, outcome: Outcome) -> None:
        """Keep how an agent ended; where it completed its steps, the others do not wait for it."""
        self.outcomes[rank] = outcome
        if outcome.status == "peer_lost" and self._forms_again:
            self._death_by = self._death_by or time.monotonic() + DEATH_SECONDS
        if outcome.completed:
            self._members.steps[rank] = outcome.step
            self._members.servers.pause(rank)
            if self._has_idle_rounds:
                self._idle[rank] = self._members.agents[rank].idle.remote()

    def over(self) -> dict[int, Any]:
        """Tell all that nobody trains any more; gives references, by rank, to the ends of idle rounds."""
        idle, self._idle = self._idle, {}
        for rank in idle.keys() - self._members.gone:
            self._members.tell(rank, "over")
        return idle

    def ask_to_stop(self, reason: str = "") -> None:
        """Let all end after their step; reason: why the run is complete then, if it is. Waits for nobody."""
        for rank in self.pending.values():
            with suppress(*DEATHS):
                self._members.control(rank, "stop").remote(reason)

    def stop(self) -> None:
        """Stop the agents that still train; one that does not end its step in time is given up."""
        self.ask_to_stop()
        self.over()
        for reference in self._back(STOP_SECONDS):
            rank, outcome = self.take(reference)
            self.outcomes[rank] = outcome
        for rank in self.pending.values():
            self.outcomes[rank] = Outcome("stopped", 0, f"TrainingAgent(rank={rank}) did not end its step")
        self.pending.clear()

    def end_stuck(self, wanted: Collection[int] = ()) -> None:
        """Kill an agent or a server that is stuck: it is dead then. wanted: ranks that the run waits for.

        Who has come back from its training does nothing until this process takes notice, and is not stuck.
        """
        lost = any(outcome.status == "peer_lost" for outcome in self.outcomes.values())
        back = set(self._back(0.0))
        training = [rank for reference, rank in self.pending.items() if reference not in back]
        stuck = self._watch.look(training, [rank for rank in wanted if rank in training], lost=lost)
        if stuck is None:
            return
        if isinstance(stuck.who, tuple):
            self._members.servers.end(stuck.who, stuck.seconds, stuck.reason, stuck.waits)
            return
        self._stuck[stuck.who] = stuck.reason
        self._note("agent_stuck", stuck.who, seconds=stuck.seconds, reason=stuck.reason, waits=stuck.waits)
        self._kill(stuck.who)

    def interrupted(self, lost: int) -> dict[int, Outcome]:
        """Wait for all, which notice that they have lost this agent; how they ended, by rank."""
        found = self.outcomes | self._noticed(lost, list(self.pending.values()))
        self.forget()
        return found

    def forget(self) -> None:
        """All are to go on: how they came back does not count any more."""
        self.outcomes.clear()
        self._death_by = 0.0

    def left_alone(self, lost: int, members: Collection[int]) -> dict[int, Outcome]:
        """Wait for the agents that hold a network with this one, which has died; how they ended, by rank."""
        found = self._noticed(lost, members)
        for rank in members:
            self._idle.pop(rank, None)
            if (outcome := self.outcomes.pop(rank, None)) is not None:
                found[rank] = outcome
        if not any(outcome.status == "peer_lost" for outcome in self.outcomes.values()):
            self._death_by = 0.0
        return found

    def _noticed(self, lost: int, members: Collection[int]) -> dict[int, Outcome]:
        """How the agents ended that train among these, which notice that they have lost another one.

        Who is busy with an evaluation, a checkpoint or a batch notices it later, and is waited for as long as
        it makes progress.
        """
        found: dict[int, Outcome] = {}
        while calls := [reference for reference, rank in self.pending.items() if rank in members]:
            back, _ = ray.wait(calls, num_returns=len(calls), timeout=self._watch.interval)
            session.check_alive()
            found |= dict(self.take(reference) for reference in back)
            waited = [rank for rank in self.pending.values() if rank in members]
            self.end_stuck(waited)
            for rank in waited:
                if self._watch.idle_seconds(rank) > self._patience + DEATH_SECONDS:
                    raise AgentError(
                        f"TrainingAgent(rank={rank}) made no progress for {self._patience:g} s, and did not "
                        f"notice that TrainingAgent(rank={lost}) died"
                    )
        return found

    def _back(self, seconds: float) -> list[Any]:
        """References to the calls that come back within this time."""
        calls = list(self.pending)
        return ray.wait(calls, num_returns=len(calls), timeout=seconds)[0] if calls else []


def _outcome(reference: Any, rank: int) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except DEATHS as error:
        return died(rank, error)
    except RayTaskError as error:
        return Outcome("failed", 0, f"TrainingAgent(rank={rank}) failed: {cause_of(error)}")
    if outcome.status == "failed":
        reason = f"TrainingAgent(rank={rank}) failed at step {outcome.step}: {outcome.reason}"
        return Outcome("failed", outcome.step, reason)
    return outcome


def died(rank: int, error: RayError) -> Outcome:
    """The outcome of an agent of which Ray says that it died."""
    return Outcome("died", 0, f"TrainingAgent(rank={rank}) died ({first_line(error)})")
