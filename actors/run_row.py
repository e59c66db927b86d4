"""The row of the table `runs`: what a run is, from where, on what."""

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from d5ray.actors.session import Session


@dataclass(frozen=True)
class RunOrigin:
    """Which recipe a run comes from, for the `runs` table and the dashboard."""

    recipe: str = ""
    recipe_hash: str = ""
    fixed: str = "{}"
    mutable: str = "{}"


def run_row(
    *,
    run_id: str,
    origin: RunOrigin,
    job: Mapping[str, Any],
    seed: int,
    status: str,
    started: datetime,
    session: Session,
    agents: int,
    environment: Mapping[str, str],
) -> dict[str, Any]:
    """The columns that are known when a run begins.

    job: what it runs, as JSON data; environment: of the driver's node.
    """
    return {
        "run_id": run_id,
        "recipe": origin.recipe,
        "recipe_hash": origin.recipe_hash,
        "fixed": origin.fixed,
        "mutable": origin.mutable,
        "experiment": json.dumps(job, sort_keys=True),
        "seed": seed,
        "status": status,
        "started": started,
        "host": platform.node(),
        "driver_pid": os.getpid(),
        "ray_address": session.address,
        "dashboard": session.dashboard,
        "agents": agents,
        "d5ray_version": _version(),
        "git": environment["git_commit"] + ("-dirty" if environment["git_dirty"] == "yes" else ""),
    }


def _version() -> str:
    try:
        return version("d5ray")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "0+checkout"
