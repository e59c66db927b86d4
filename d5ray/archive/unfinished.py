"""The last run of an experiment that did not come to its end, and the checkpoints from which to go on"""

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, final

from d5ray.distributed.checkpoints.checkpoint import Checkpoints, comparable
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.experiment import Experiment
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.training.batches.epochs import Epochs
from d5ray.training.events.checkpoint import Checkpoint

AUTO: Final = "auto"  # for `resume`: go on by itself
UNFINISHED: Final = ("died", "failed", "interrupted")  # statuses; "died": its driver is gone
SILENT_SECONDS: Final = 600.0  # after which a run of another machine, whose process nobody sees, is dead


@final
@dataclass(frozen=True)
class GoingOn:
    """The checkpoints from which a run may go on, the best one first.

    run: the one before, which did not come to its end; empty where the user named the checkpoint, or where
    there is no such run.
    """

    checkpoints: tuple[Checkpoints, ...] = ()
    run: str = ""

    @property
    def step(self) -> int:
        """The step of the best checkpoint; 0: there is none."""
        return self.checkpoints[0].step if self.checkpoints else 0

    def chosen(self, experiment: Experiment, planned: Epochs) -> Checkpoints | None:
        """The best one from which the experiment can go on; the one that the user named in any case.

        Of a run before, none that leaves nothing to do, and none that fewer agents have written. planned: how
        its epochs are cut into steps as long as all agents are there.
        """
        agents, end = experiment.agents or 1, planned.after(0, experiment.epochs)
        for each in self.checkpoints:
            written = CheckpointFolder(each.path).manifest(each.step) if self.run else {}
            place = written.get("place")  # where agents were fewer or more, so that the step does not tell it
            over = each.step == end if place is None else place[0] >= experiment.epochs
            if not self.run or (not over and written.get("agents", agents) == agents):
                return each
        return None

    def told(self, checkpoint: Checkpoints | None) -> str:
        """A line for people on what becomes of the run before."""
        if not self.run:
            return ""
        if checkpoint is None:
            return f"{self.run} did not come to its end, but left no checkpoint to go on from: begun anew"
        return f"goes on from step {checkpoint.step} of {self.run}, which did not come to its end"


def unfinished(experiment: Experiment, root: Path) -> GoingOn:
    """The checkpoint that the last run of this experiment left, if it did not end and its driver is gone.

    Where it left no checkpoint, those of the runs before count that did not come to their end either.
    """
    first = ""
    for run in _of(experiment, root):
        row = run.row
        if _lives(run, row):
            continue
        if row["status"] not in UNFINISHED:
            break
        first = first or run.name
        if found := tuple(reversed(checkpoints_of(run.name, run.folder, experiment))):
            found[0].check(experiment.describe())
            return GoingOn(found, first)
    return GoingOn(run=first)


def checkpoints_of(run_id: str, folder: Path, experiment: Experiment) -> list[Checkpoints]:
    """The complete checkpoints of a run, the last one last: in its folder, and where its events save."""
    events = experiment.events if isinstance(experiment.events, tuple) else ()
    named = {event.path for event in events if isinstance(event, Checkpoint) and event.path}
    paths = sorted(named | {str(folder / "checkpoints")})
    found = [Checkpoints(path, step) for path in paths for step in CheckpointFolder(path).steps_of(run_id)]
    return sorted(found, key=lambda each: each.step)


def _of(experiment: Experiment, root: Path) -> Iterator[Run]:
    """The real runs of this experiment, the newest first."""
    wanted = comparable(experiment.describe())
    for run in list_runs(root):
        row = run.row
        try:
            described: Any = json.loads(row["experiment"] or "null")
        except ValueError:
            continue
        if row["ray_address"] and isinstance(described, dict) and comparable(described) == wanted:
            yield run


def _lives(run: Run, row: dict[str, Any]) -> bool:
    if row["status"] != "running" or row["host"] == platform.node():
        return bool(row["status"] == "running")
    written = [file.stat().st_mtime for file in run.folder.glob("*.arrows")]
    return time.time() - max(written, default=0.0) < SILENT_SECONDS
