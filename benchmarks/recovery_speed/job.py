"""The job that kills one of several processes in the midst of a training, and d5ray's agents as contenders"""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import final

from benchmarks.recovery_speed.marks import Kill, Marks, noted, outcome
from d5ray.checks import check_count, check_number
from d5ray.distributed.group.policies import FaultPolicy
from d5ray.errors import AgentError
from d5ray.experiment import Experiment
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment
from d5ray.training.optimizers.gradient_descent import Momentum
from d5ray.training.recording import Recording

RATE, MOMENTUM = 0.01, 0.9
MANY = 10**6  # steps: the end comes by an event


@final
@dataclass(frozen=True, kw_only=True)
class Recoveries(SideBySide):
    """Trainings of which one process is killed. Wrong values raise `ConfigurationError`.

    batch_size  samples a process and step
    steps       of every process before the kill
    seconds     for a training, at most
    """

    model: str
    dataset: str
    batch_size: int = 16
    steps: int = 100
    seconds: float = 240.0

    def check(self) -> None:
        check_count("batch_size", self.batch_size, 1)
        check_count("steps", self.steps, 1)
        check_number("seconds", self.seconds, low=0.0, low_included=False)

    def kill(self, processes: int, again: int) -> Kill:
        """A kill in a training of that many processes, after which `again` train."""
        return Kill(processes, self.steps, again, self.seconds)


@final
class Noting(Event):
    """Notes every step of an agent, and ends the training after the step that it is told."""

    stops = True

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._marks: list[Marks] = []  # of this process, where it trains

    def before_run(self, moment: Moment) -> None:
        """Open the file of this process, once."""
        if not self._marks:
            self._marks.append(Marks(self.folder, moment.rank))

    def after_step(self, moment: Moment) -> None:
        """Note the step."""
        if self._marks[0].committed(moment.step):
            moment.stop("everything was seen")

    def after_run(self, moment: Moment) -> None:
        """Note the parameters."""
        self._marks[0].end(moment.executor.numpy_parameters())


@final
@dataclass(frozen=True)
class AgentsAgain(Contender[Recoveries]):
    """d5ray's agents under allreduce, which go on as `on_failure` says."""

    processes: int
    on_failure: str

    @property
    def name(self) -> str:
        return f"d5ray {self.on_failure}[{self.processes}]"

    def measure(self, job: Recoveries, folder: Path) -> list[RankSeries]:
        from d5ray.actors.launch import launch  # noqa: PLC0415 - imports Ray

        again = self.processes - (self.on_failure == "continue")
        experiment = Experiment(
            model=job.model,
            dataset=job.dataset,
            optimizer=Momentum(RATE, MOMENTUM),
            agents=self.processes,
            batch_size=job.batch_size,
            seed=job.seed,
            evaluate=False,
            faults=FaultPolicy(self.on_failure),
            events=Noting(str(folder)),
            recording=Recording(monitor_seconds=0),
        )
        found: list[tuple[int, int]] = []
        failed: list[AgentError] = []

        with launch(experiment, quiet=True, root=folder) as group:

            def strike() -> None:
                try:
                    found.append(job.kill(self.processes, again).strike(folder))
                except AgentError as error:
                    failed.append(error)

            striking = threading.Thread(target=strike, daemon=True)
            striking.start()
            group.train(MANY, progress=False)
            striking.join(job.seconds)
        if failed or not found:
            raise failed[0] if failed else AgentError("the training ended before the kill")
        return outcome(noted(folder), *found[0])
