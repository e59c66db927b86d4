"""An agent's events: calls their hooks, does what they ask for, and knows when they end the training"""

import copy
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, final

from d5ray.agent.connections import Connections
from d5ray.agent.data import AgentData
from d5ray.agent.model_facts import described
from d5ray.agent.records import AgentRecords
from d5ray.checks import check_nothing_left
from d5ray.distributed.checkpoints.checkpoint import (
    Checkpoints,
    Saved,
    comparable,
    restore,
    save,
)
from d5ray.distributed.checkpoints.savers import Savers, any_of
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.training.batches.epochs import START
from d5ray.training.events.event import Hook, Hooks
from d5ray.training.events.moment import Moment
from d5ray.training.events.user_records import check_note, check_record, kept_bytes, number

NS = 1e-9
AGREE_STEPS = 10  # between two times that the agents agree whether an event ends the training


@final
class AgentEvents:
    """The experiment's events on one agent, which remember what is their own.

    hooks      what to call, by hook point
    moment     what the hooks see
    finalized  whether the parameters are those to be evaluated; the agent says so
    aside      whether time has passed that belongs to no step: in an evaluation or a checkpoint
    doing      what takes that time now; empty while the agent trains
    """

    def __init__(
        self,
        experiment: Experiment,
        rank: int,
        connections: Connections,
        data: AgentData,
        records: AgentRecords,
        run_id: str,
        folder: str | None,
    ) -> None:
        assert isinstance(experiment.events, tuple)
        self._experiment = experiment
        self._events = copy.deepcopy(experiment.events)
        self._connections, self._data, self._executor = connections, data, connections.executor
        self._recorder, self._files, self._now = records.recorder, records.sink, records.now
        self._run_id, self._folder = run_id, folder
        self.stops = any(event.stops for event in self._events)
        self.finalized = self.aside = False
        self.doing = ""
        self.hooks = Hooks(self._events)
        self.moment = Moment(
            rank=rank,
            agents=experiment.replicas,
            seed=experiment.seed,
            steps_per_epoch=data.shards.steps_per_epoch,
            executor=self._executor,
            dataset=data.dataset,
            transformations=experiment.pipeline,
            keeper=weakref.proxy(self),  # no cycle, by which an agent that died would stay in memory
            now=records.now,
            stops=self.stops,
            precision=experiment.precision,
        )

    def happen(self, hooks: tuple[Hook, ...]) -> None:
        """Call these hooks, one after the other."""
        for hook in hooks:
            if (found := hook(self.moment)) is not None:
                check_nothing_left(repr(hook), found)

    @contextmanager
    def busy(self, doing: str) -> Iterator[None]:
        """A context in which the agent does this."""
        self.doing = doing
        try:
            yield
        finally:
            self.doing = ""

    def agree_to_stop(self, ends_epoch: bool) -> bool:
        """True if the training ends after this step, because an event of any agent asks for it."""
        asked = bool(self.moment.stop_reason)
        optimizer = self._connections.optimizer
        others = () if optimizer.asynchronous else (optimizer.communication,)
        together = [each for each in (*self._connections.within, *others) if each.size > 1]
        if not together:
            return asked
        if self.moment.step % AGREE_STEPS and not ends_epoch:
            return False
        return any_of(asked, together, self._executor.parameters)

    def resume(self, path: str, step: int) -> Saved:
        """Bring the executor, the optimizer and the events to where they were."""
        found = Checkpoints(path, step)
        if not self._connections.within:
            self._connections.release([name for name, *_ in found.manifest["tensors"]], step)
        saved = restore(found, self._savers, self._connections.optimizer, self._executor, self._events)
        self.finalized = saved.settled
        self.moment.step, self.moment.epoch = saved.step, saved.epoch
        self.moment.continued(saved.elapsed_seconds)
        self._recorder.event("resumed", step=saved.step, checkpoint=str(found))
        return saved

    # -- what events ask for: see `RunStorage` -------------------------------------------------------------

    def record(self, metric: str, value: float | None, unit: str, step: int, epoch: int, phase: str) -> None:
        """Record a value of a metric, which is declared with its unit where it is new."""
        check_record(metric, unit, phase, step)
        found = number(metric, value)
        self._recorder.declare(metric, unit)
        self._recorder.record(metric, found, step=step, epoch=epoch, phase=phase)

    def note(self, name: str, moment: Moment, detail: dict[str, Any]) -> None:
        """Record an event by name at the moment's step and epoch, with its details."""
        check_note(name, detail)
        self._recorder.event(name, step=moment.step, epoch=moment.epoch, **detail)

    def keep(self, name: str, data: bytes) -> None:
        """Keep these bytes in the run's folder under this name."""
        self._files.file(name, kept_bytes(name, data))

    def checkpoint(self, path: str | None, keep: int) -> None:
        """Write a checkpoint into this folder, by default the run's own, and keep only the last few.

        Raises ConfigurationError where neither is there. The time it takes belongs to no step.
        """
        if path is None and self._folder is None:
            raise ConfigurationError("the run has no folder: give Checkpoint a path")
        self.aside = True
        place = path or f"{self._folder}/checkpoints"
        moment, begin = self.moment, self._now()
        epochs = self._data.epochs
        stands = None if epochs.since == START else astuple(epochs.at(moment.step))
        here = Saved(moment.step, moment.epoch, self.finalized, moment.elapsed_seconds, stands)
        facts = {"run_id": self._run_id, "experiment": comparable(self._experiment.describe())}
        facts |= {} if stands is None else {"place": stands}
        optimizer, executor = self._connections.optimizer, self._executor
        model = described(
            {}, self._experiment, self._data.dataset, executor, moment.step, f"agent {moment.rank}"
        ).facts
        with self.busy("writes a checkpoint"):
            saved = save(place, keep, self._savers, optimizer, executor, self._events, here, facts, model)
        self._recorder.event(
            "checkpoint",
            step=here.step,
            epoch=here.epoch,
            duration=(self._now() - begin) * NS,
            path=place,
            bytes=saved,
        )

    @property
    def _savers(self) -> Savers:
        connections = self._connections
        communication = connections.optimizer.communication
        return Savers(communication, self._experiment.mesh, connections.place, connections.within)
