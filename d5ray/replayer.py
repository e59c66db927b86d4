"""Replays the schedule of a real run in the simulation, to prove that the run followed its algorithm"""

import json
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.archive import experiments
from d5ray.checks import check_path
from d5ray.distributed.simulation.arrival_order import Recorded, RecordedSchedule
from d5ray.errors import AgentError, ConfigurationError, PeerLost
from d5ray.experiment import Experiment
from d5ray.failures.program_state import as_before
from d5ray.metrics.probes.environment import d5ray_version
from d5ray.metrics.record.artifacts import kept_parameters
from d5ray.metrics.record.reader import Run
from d5ray.simulated.group import SimulatedGroup
from d5ray.simulator import simulate

CHANGES = {  # events after which nobody knows what an agent or server went on with
    "agent_died": "an agent died in it", "server_died": "a parameter server died in it",
    "joined": "an agent joined it late",
}  # fmt: skip
TOLERANCE = 1e-5  # relative, for float32; float64 takes its square


@dataclass(frozen=True)
class Replay:
    """The result of a replay. difference: ‖x − x_run‖ / ‖x_run‖, of the agent that differs most."""

    run_id: str
    operations: int
    steps: int
    difference: float
    tolerance: float

    @property
    def agrees(self) -> bool:
        """True if the replay reached the run's parameters."""
        return self.difference <= self.tolerance


@as_before()
def replay(run: Run | str | Path, *, trust: bool = False) -> Replay:
    """Repeat in the simulation, in the recorded order, exactly what the agents of an asynchronous run did.

    trust: execute user code in the run's folder, even if no run of this user made it. Otherwise raises
    `ConfigurationError` for a folder with such code; also for a run without a schedule or with an impossible
    one, a run that was not completed, in which agents joined or left, or of another version of d5ray.
    """
    found = run if isinstance(run, Run) else Run.find(check_path("run", run))
    experiment, expected = _kept(found, trust)
    row = found.row
    agents = experiment.agents or 1
    events = found.tables()["events"].to_pylist()
    _check_membership(found, events)
    try:
        schedule, calls = RecordedSchedule.of(events, experiment.resolved_servers, agents), _calls(events)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"the run {found.name} cannot be replayed: its events are none that d5ray writes ({error!r})"
        ) from error
    order = Recorded(schedule)
    with tempfile.TemporaryDirectory(prefix="d5ray-replay-") as folder:
        try:
            with simulate(experiment, order=order, root=Path(folder)) as group:
                for steps in calls:
                    group.train(steps, progress=False)
                difference = _difference(group, expected)
        except (AgentError, PeerLost) as error:
            raise ConfigurationError(
                f"the run {found.name} cannot be replayed: in its order an operation comes before "
                f"one that it waits for ({error})"
            ) from error
        order.check()
    wide = next(iter(expected.values())).dtype.itemsize > 4
    return Replay(
        run_id=found.name,
        operations=schedule.operations,
        steps=row["steps"],
        difference=difference,
        tolerance=TOLERANCE**2 if wide else TOLERANCE,
    )


def _kept(run: Run, trust: bool) -> tuple[Experiment, dict[int, np.ndarray[Any, Any]]]:
    row, here = run.row, d5ray_version()
    if row["d5ray_version"] != here:
        raise ConfigurationError(
            f"the run {run.name} was made by d5ray {row['d5ray_version']}, this is {here}: replay it with "
            "that version"
        )
    if row["status"] != "completed":
        raise ConfigurationError(
            f"the run {run.name} is {row['status']}: only a completed run can be replayed"
        )
    expected = kept_parameters(run.folder)
    archived = experiments.read(run, trust=trust) if expected else None
    if archived is None:
        raise ConfigurationError(
            f"the run {run.name} kept no schedule, since it was synchronous or simulated: only runs of "
            "asynchronous optimizers, such as ASGD(), are replayed"
        )
    experiment = archived.experiment
    if not experiment.distributed_optimizer.replayable:
        raise ConfigurationError(
            f"the run {run.name} cannot be replayed: the updates of {experiment.distributed!r} have no order"
        )
    return experiment, expected


def _check_membership(run: Run, events: Iterable[Mapping[str, Any]]) -> None:
    """Raise `ConfigurationError` where agents or servers came and went: what they began with is not kept."""
    for event in events:
        if event["name"] in CHANGES:
            raise ConfigurationError(
                f"the run {run.name} cannot be replayed: {CHANGES[event['name']]}, and with which values "
                "others went on is not kept; only a run in which all were there all the time is replayed"
            )


def _calls(events: Iterable[Mapping[str, Any]]) -> list[int]:
    """The number of steps in each call of `train`."""
    calls = [event for event in events if event["name"] == "train" and event["rank"] == 0]
    return [json.loads(event["detail"])["steps"] for event in calls]


def _difference(group: SimulatedGroup, expected: dict[int, np.ndarray[Any, Any]]) -> float:
    """The largest difference of any agent; raises `ConfigurationError` for parameters none can have."""
    differences = [0.0]
    for rank, kept in expected.items():
        found = group.agents[rank].flat_parameters() if rank < len(group.agents) else None
        if found is None or found.shape != kept.shape:
            raise ConfigurationError(
                f"the run kept parameters {kept.shape} of an agent {rank}, which its experiment does not "
                "have: take the run as it was made"
            )
        wanted = kept.astype(np.float64)
        away = float(np.linalg.norm(found - wanted))
        size = float(np.linalg.norm(wanted))
        differences.append(away / size if size else away)
    return max(differences)
