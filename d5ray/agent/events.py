"""An agent's events: calls their hooks, does what they ask for, and knows when they end the training"""

import copy
from collections.abc import Callable
from typing import Any, Protocol, final

from d5ray.distributed.checkpoints.checkpoint import (
    Checkpoints,
    Saved,
    agents_that,
    comparable,
    restore,
    save,
)
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.metrics.record.recorder import Recorder
from d5ray.networks.executors.executor import Executor
from d5ray.training.datasets import Dataset
from d5ray.training.events.event import Hook, Hooks
from d5ray.training.events.moment import Moment

NS = 1e-9
AGREE_STEPS = 10  # between two times that the agents agree whether an event ends the training


class Files(Protocol):
    """The place where the files of events go."""

    def file(self, name: str, data: bytes) -> None:
        """Keep these bytes in the run's folder under this name."""


@final
class AgentEvents:
    """The experiment's events on one agent, which remember what is their own.

    hooks      what to call, by hook point
    moment     what the hooks see
    settled    whether the parameters are those to be evaluated; the agent says so
    aside      whether time has passed that belongs to no step: in an evaluation or a checkpoint
    within     with the agents that compute the rest of this one's network: all of them stop together
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        rank: int,
        steps_per_epoch: int,
        executor: Executor,
        dataset: Dataset,
        recorder: Recorder,
        files: Files,
        now: Callable[[], int],
        run_id: str,
        folder: str | None,
    ) -> None:
        assert isinstance(experiment.events, tuple)
        self._experiment = experiment
        self._events = copy.deepcopy(experiment.events)
        self._executor = executor
        self._recorder, self._files, self._now = recorder, files, now
        self._run_id, self._folder = run_id, folder
        self._optimizer: DistributedOptimizer | None = None
        self.within: tuple[Communicator, ...] = ()
        self.stops = any(event.stops for event in self._events)
        self.settled = self.aside = False
        self.hooks = Hooks(self._events)
        self.moment = Moment(
            rank=rank,
            agents=experiment.replicas,
            seed=experiment.seed,
            steps_per_epoch=steps_per_epoch,
            executor=executor,
            dataset=dataset,
            transformations=experiment.pipeline,
            keeper=self,
            now=now,
            stops=self.stops,
        )

    def bind(self, optimizer: DistributedOptimizer) -> None:
        """The agent's optimizer, whose state is saved, and whose communicator joins the agents."""
        self._optimizer = optimizer

    def happen(self, hooks: tuple[Hook, ...]) -> None:
        """Call these hooks, one after the other."""
        for hook in hooks:
            hook(self.moment)

    def agree_to_stop(self, ends_epoch: bool) -> bool:
        """True if the training ends after this step, because an event of any agent asks for it."""
        asked = bool(self.moment.stop_reason)
        assert self._optimizer is not None
        others = None if self._optimizer.asynchronous else self._optimizer.communication
        together = [each for each in (*self.within, others) if each is not None and each.size > 1]
        if not together:
            return asked
        if self.moment.step % AGREE_STEPS and not ends_epoch:
            return False
        for communication in together:
            asked = agents_that(asked, communication, self._executor.parameters) > 0
        return asked

    def resume(self, path: str, step: int) -> Saved:
        """Bring the executor, the optimizer and the events to where they were."""
        assert self._optimizer is not None
        found = Checkpoints(path, step)
        saved = restore(found, self._optimizer, self._executor, self._events)
        self.settled = saved.settled
        self.moment.step, self.moment.epoch = saved.step, saved.epoch
        self.moment.continued(saved.elapsed_seconds)
        self._recorder.event("resumed", step=saved.step, checkpoint=str(found))
        return saved

    # -- what events ask for: see `Keeper` -------------------------------------------------------------

    def record(self, metric: str, value: float | None, unit: str, step: int, epoch: int, phase: str) -> None:
        """Record a value of a metric, which is declared with its unit where it is new."""
        self._recorder.declare(metric, unit)
        self._recorder.record(metric, value, step=step, epoch=epoch, phase=phase)

    def note(self, name: str, moment: Moment, detail: dict[str, Any]) -> None:
        """Record an event by name at the moment's step and epoch, with its details."""
        self._recorder.event(name, step=moment.step, epoch=moment.epoch, **detail)

    def keep(self, name: str, data: bytes) -> None:
        """Keep these bytes in the run's folder under this name."""
        self._files.file(name, data)

    def checkpoint(self, path: str | None, keep: int) -> None:
        """Write a checkpoint into this folder, by default the run's own, and keep only the last few.

        Raises ConfigurationError where neither is there. The time it takes belongs to no step.
        """
        assert self._optimizer is not None
        if path is None and self._folder is None:
            raise ConfigurationError("the run has no folder: give Checkpoint a path")
        self.aside = True
        place = path or f"{self._folder}/checkpoints"
        moment, begin = self.moment, self._now()
        here = Saved(moment.step, moment.epoch, self.settled, moment.elapsed_seconds)
        facts = {"run_id": self._run_id, "experiment": comparable(self._experiment.describe())}
        saved = save(place, keep, self._optimizer, self._executor, self._events, here, facts)
        self._recorder.event(
            "checkpoint",
            step=here.step,
            epoch=here.epoch,
            duration=(self._now() - begin) * NS,
            path=place,
            bytes=saved,
        )
