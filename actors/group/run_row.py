"""A run as plain data: its plan, before anything of it is started, and its row of the table `runs`"""

import json
import os
import platform
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, final

from d5ray.archive.experiments import ArchiveFiles
from d5ray.distributed.faults.plan import Faults
from d5ray.distributed.model_parallelism import NetworkShares
from d5ray.experiment import Experiment
from d5ray.metrics.probes.environment import d5ray_version
from d5ray.metrics.record.liveness import start_of
from d5ray.metrics.record.run_clock import RunClock


@dataclass(frozen=True)
class RunOrigin:
    """The recipe that a run comes from, for the `runs` table and the dashboard."""

    recipe: str = ""
    recipe_hash: str = ""
    fixed: str = "{}"
    mutable: str = "{}"
    series: str = ""  # of runs that are judged together
    criteria: str = ""  # what it is to reach, as JSON


@final
@dataclass(frozen=True)
class RunPlan:
    """A run before anything of it is started.

    root: the folder in which the run's own is made. kept: the experiment as the run's folder keeps it.
    shares: of its network that the agents of a mesh get. faults: what happens to it by plan. clock: by which
    all its times are.
    """

    experiment: Experiment
    run_id: str
    root: Path
    origin: RunOrigin
    kept: ArchiveFiles
    shares: NetworkShares | None = None
    faults: Faults = field(default_factory=Faults)
    clock: RunClock = field(default_factory=RunClock)

    @property
    def folder(self) -> Path:
        """The run's own folder."""
        return self.root / self.run_id


def run_row(
    *,
    run_id: str,
    origin: RunOrigin,
    job: Mapping[str, Any],
    seed: int,
    status: str,
    started: datetime,
    ray_address: str | None = None,
    dashboard: str | None = None,
    agents: int,
    environment: Mapping[str, str],
    graph: str | None = None,
    experiment_sha256: str | None = None,
) -> dict[str, Any]:
    """The columns that are known when a run begins.

    job: what it runs, as JSON data; environment: of the driver's node; graph: see `topologies.drawn`;
    experiment_sha256: of the file that keeps the experiment, see `d5ray.archive.experiments`.
    """
    return {
        "run_id": run_id,
        "recipe": origin.recipe,
        "recipe_hash": origin.recipe_hash,
        "fixed": origin.fixed,
        "mutable": origin.mutable,
        "series": origin.series or None,
        "criteria": origin.criteria or None,
        "experiment": json.dumps(job, sort_keys=True),
        "seed": seed,
        "status": status,
        "started": started,
        "host": platform.node(),
        "driver_pid": os.getpid(),
        "driver_start": start_of(os.getpid()),
        "ray_address": ray_address,
        "dashboard": dashboard,
        "agents": agents,
        "graph": graph,
        "experiment_sha256": experiment_sha256,
        "d5ray_version": d5ray_version(),
        "git": environment["git_commit"] + ("-dirty" if environment["git_dirty"] == "yes" else ""),
    }


def new_run_id(name: str) -> str:
    """A name that sorts by time and is unique: digits_lenet-20261120-193654-7f3a91c2."""
    word = "".join(c if c.isalnum() or c in "_-" else "_" for c in name) or "run"
    return f"{word}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(4)}"
