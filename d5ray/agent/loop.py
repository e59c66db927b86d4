"""The loop of an agent: draw a batch, let the rule step, record the step, call the events"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, isfinite, nan
from typing import Any, final

import numpy as np

from d5ray.agent.between_steps import BetweenSteps
from d5ray.agent.connections import Connections
from d5ray.agent.data import AgentData
from d5ray.agent.events import AgentEvents
from d5ray.agent.moves import MovesCheck
from d5ray.agent.outcome import Outcome
from d5ray.agent.records import AgentRecords
from d5ray.agent.step_meter import StepMeter
from d5ray.agent.user_errors import outcome_of
from d5ray.checks import check_nothing_left
from d5ray.distributed.checkpoints.checkpoint import Saved
from d5ray.distributed.checkpoints.equality import Divergence
from d5ray.distributed.scheduler import Scheduler
from d5ray.experiment import Experiment
from d5ray.training.batches.batch import Batch
from d5ray.training.batches.epochs import Position
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.samplers.shards import Sharing

NS = 1e-9
Piece = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]  # inputs and labels
IDLE_SECONDS = 1e-4  # of a round without gradients, at least


@dataclass(slots=True)
class Progress:
    """The step and state of an agent, for people who watch; the agent changes its own in place."""

    step: int
    epoch: int
    loss: float
    accuracy: float | None


@final
class TrainingLoop:
    """The steps of one agent, and where it stands between two calls of `train`.

    progress     where it is
    over         the event that no agent trains any more
    pieces       how many pieces of test data it has evaluated so far
    between      what other threads ask of the model
    """

    def __init__(
        self,
        experiment: Experiment,
        scheduler: Scheduler,
        connections: Connections,
        data: AgentData,
        events: AgentEvents,
        records: AgentRecords,
    ) -> None:
        self.progress = Progress(step=0, epoch=0, loss=nan, accuracy=None)
        self.over = scheduler.event()
        self.pieces = 0
        self.between = BetweenSteps()
        self._experiment, self._scheduler, self._now = experiment, scheduler, scheduler.now
        self._connections, self._data, self._events, self._records = connections, data, events, records
        self._evaluates = experiment.evaluate and len(data.dataset.held_out) > 0
        self._tests_at_end = (
            experiment.evaluate and data.dataset.tests_at_end and not experiment.evaluate_test
        )
        self._warmup_ends = experiment.recording.warmup_steps
        self._between_epochs = True
        self._stop_at = inf  # the step before which it ends
        self._stop_asked = False
        self._stop_reason = ""  # why the run is complete then, if an event of another agent ends it
        self._step_seconds = 0.0  # of the last training, on average

    def begin_at(self, step: int, agents: int, index: int) -> None:
        """Go on with this step's share of the data, as the index-th of that many agents."""
        self._data.begin_at(step, agents, index)
        self.stand_at(step)

    def stand_at(self, step: int) -> None:
        """Go on with this step; the data does already."""
        self._stop_at = inf
        self.progress.step = step
        self._between_epochs = self._data.epochs.position(step)[1] == 0

    def resume(self, saved: Saved, index: int) -> None:
        """Go on from a checkpoint; the steps that warm up are counted from there."""
        agents = self._data.shards.agents
        if saved.place is None:
            self.begin_at(saved.step, agents, index)
        else:
            self._data.share_from(Position(*saved.place), Sharing(agents, index))
            self.stand_at(saved.step)
        self.progress.epoch = saved.epoch
        self._warmup_ends = saved.step + self._experiment.recording.warmup_steps

    def stop(self, reason: str) -> None:
        """Let `train` end after its step, complete if there is a reason; called from another thread."""
        if reason and self._connections.within:  # those that compute a network end after the same step
            self._events.moment.stop_reason = reason
            return
        self._stop_reason = reason
        self._stop_asked, self._stop_at = True, 0

    def pause(self, step: int) -> bool:
        """Let `train` end before this step; False if it may have begun already. From another thread.

        One that was told too late does not end before a later step either, where others hold its network
        with it and go on.
        """
        before = self._stop_at
        self._stop_at = min(before, step)
        in_time = self.progress.step < step
        if not in_time and self._connections.within:
            self._stop_at = before
        return in_time

    def train(self, steps: int, until: Position | None = None) -> Outcome:
        """Do that many steps, between the events of a run. Never raises.

        until: the place in the data that they lead to, where epochs are trained: as many steps as it takes.
        """
        events, begin = self._events, self._now()
        self.over = self._scheduler.event()
        if self._stop_reason:  # an event has ended the training before, not this one
            self._stop_reason, self._stop_asked, self._stop_at = "", False, inf
        events.moment.begin()
        self.between.begin()
        try:
            events.happen(events.hooks.before_run)
            outcome = self._run(steps, until)
            if not self._connections.optimizer.asynchronous and outcome.status != "paused":
                events.moment.completed = outcome.completed
                events.happen(events.hooks.after_run)
        except (Exception, SystemExit) as error:  # Ray would take the latter for the actor's wish to end
            outcome = outcome_of(error, self.progress.step, stopped=self._stop_asked)
        finally:
            self.between.end()
        events.moment.end()
        self._step_seconds = (self._now() - begin) * NS / max(1, steps)
        return outcome

    def _run(self, steps: int, until: Position | None) -> Outcome:
        """Steps, fewer than that many where a stop, an event or a loss that is not finite ends them."""
        now, data, events, recorder = self._now, self._data, self._events, self._records.recorder
        connections, progress = self._connections, self.progress
        executor, optimizer, committed = connections.executor, connections.optimizer, connections.committed
        equality = connections.equality
        assert equality is not None
        hooks, moment, stops, happen = events.hooks, events.moment, events.stops, events.happen
        before_sampling, after_sampling = hooks.before_sampling, hooks.after_sampling
        before_step, after_step = hooks.before_step, hooks.after_step
        last = progress.step + steps
        self._resume()
        if optimizer.meets_after(progress.step):
            connections.commit(progress.step)  # what events did since the last step
        between = self.between
        began, record_ns = now(), 0  # a step lasts from the end of the one before to its own end
        meter = StepMeter(self._records, connections, began)
        moves = MovesCheck(optimizer)
        take: Callable[[Batch], object] = optimizer.step  # which returns nothing, if its writer knows
        while progress.step < last:
            step = progress.step
            if step >= self._stop_at:
                return self._stopped(step)
            if between.wanted:
                between.serve()
            moment.step = step
            if self._between_epochs:
                self._between_epochs = False
                events.happen(hooks.before_epoch)

            happen(before_sampling)
            drawing = now()
            batch = data.draw(step)
            data_ns = now() - drawing
            moment.batch, moment.epoch = batch, batch.epoch
            happen(after_sampling)
            batch = moment.batch
            happen(before_step)

            connections.follow_model(step)
            connections.sync_buffers(step)
            meter.begin()
            if (returned := take(batch)) is not None:
                check_nothing_left(repr(optimizer), returned)
            if moves.looks:
                moves.look(executor.gradients)
            ended = now()

            phase = "warmup" if step < self._warmup_ends else "train"
            meter.end(step, batch, phase, ended, ended - began, data_ns, record_ns)
            loss = optimizer.loss
            progress.step, progress.epoch, progress.loss = step + 1, batch.epoch, loss
            if committed is not None and optimizer.meets_after(step + 1):
                committed.keep(step + 1, optimizer, executor)
            recorder.poll(ended)
            if not isfinite(loss) and len(batch.labels):  # without samples there is no loss
                reason = f"the loss became {loss} at step {step} on TrainingAgent(rank={moment.rank})"
                return Outcome("nan_loss", step + 1, reason)
            if step + 1 >= equality.due and (differ := equality.compare(step + 1)):
                return self._diverged(differ)
            began, record_ns = ended, now() - ended

            moment.step, moment.loss = step + 1, loss
            happen(after_step)
            if batch.ends_epoch:
                if data.share_anew(batch.epoch + 1, step + 1):
                    connections.shared_anew()
                    last = data.epochs.reached(until) if until is not None else last
                self._end_epoch(progress.step == last)
            moment.batch = None
            if stops and events.agree_to_stop(batch.ends_epoch):
                break
            if events.aside:  # an evaluation or a checkpoint, which belongs to no step
                if progress.step < last:
                    self._resume()
                began, record_ns, events.aside = now(), 0, False
        if differ := equality.compare(progress.step):
            return self._diverged(differ)
        moves.end(executor.gradients)
        if not optimizer.asynchronous:
            if not events.finalized:
                self._finalize()
            self._test_at_end()
        return Outcome("completed", progress.step, moment.stop_reason if progress.step < last else "")

    def _stopped(self, step: int) -> Outcome:
        if self._stop_reason:
            return Outcome("completed", step, self._stop_reason)
        if not self._stop_asked:
            self._stop_at = inf
            self._connections.pause(step)
            return Outcome("paused", step)
        return Outcome("stopped", step, "stopped on request")

    def _diverged(self, found: Divergence) -> Outcome:
        """End the training of agents that differ; the first of them tells of it in an event."""
        if self._events.moment.rank == min(found.checksums):
            told = self._records.recorder
            told.event(
                "diverged", step=found.step, since=found.since, differ=found.differ, checksums=found.checksums
            )
        return Outcome("failed", found.step, str(found))

    def _end_epoch(self, ends_run: bool) -> None:
        """Do what follows an epoch's last step."""
        if self._evaluates and not (ends_run and self._connections.optimizer.asynchronous):
            self._finalize()
        self._events.happen(self._events.hooks.after_epoch)
        self._between_epochs = True

    def conclude(self) -> None:
        """End an asynchronous training, when all agents have ended: evaluate what they made together."""
        self._finalize()
        self._test_at_end()
        self._records.operations(self._connections, self.progress.step - 1)
        self._events.moment.completed = True
        self._events.happen(self._events.hooks.after_run)

    def _finalize(self) -> None:
        """Bring into the executor what is to be evaluated, and evaluate it where that is wanted."""
        self._connections.executor.adopt()
        self._connections.sync_buffers(self.progress.step)
        self._connections.optimizer.settle()
        self._events.finalized = self._events.aside = True
        if self._experiment.evaluate_test and self._data.dataset.tests_at_end and self._evaluates:
            self._evaluate("test")
        if self._evaluates:
            self._evaluate(self._data.dataset.held_out_name)

    def _test_at_end(self) -> None:
        """Look at the test split, where all evaluations before were on another one."""
        if self._tests_at_end:
            self._evaluate("test")

    def _resume(self) -> None:
        """Bring back what a step goes on with, before it."""
        if self._events.finalized:
            self._connections.optimizer.go_on()
            self._events.finalized = False

    def _evaluate(self, split: str) -> None:
        events, progress, loss = self._events, self.progress, self._experiment.loss
        events.moment.split = split
        events.happen(events.hooks.before_test)
        begin = self._now()
        pieces = pieces_to_test(events.moment.evaluated, self._experiment.pipeline)
        with events.busy("evaluates"):
            result = self._connections.executor.evaluate_pieces(self._counted(pieces))
        seconds = (self._now() - begin) * NS
        accuracy = result.accuracy if loss.classifies else None
        self._records.evaluated(progress.step - 1, progress.epoch, (result.loss, accuracy, seconds), split)
        self._records.recorder.poll()
        progress.accuracy = accuracy
        events.moment.evaluation = result
        events.happen(events.hooks.after_test)

    def _counted(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """The pieces, counted as they are asked for."""
        for piece in pieces:
            yield piece
            self.pieces += 1

    def idle(self, rounds: int | None) -> int:
        """Do idle rounds, without gradients, until `over`, or that many; gives their number."""
        done, seconds = 0, max(IDLE_SECONDS, self._step_seconds)
        while done < rounds if rounds is not None else not self.over.wait(seconds):
            self._connections.optimizer.idle_round(self.progress.step + done)
            done += 1
        return done
