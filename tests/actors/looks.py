"""What tests look at in a run on Ray: what its driver noted, what `check` says, which processes there are"""

import json
from pathlib import Path
from typing import Any

import ray

from d5ray.actors.cluster.placement import place_of
from d5ray.actors.group.group import TrainingGroup
from tests.patience import patience

Victim = tuple[str, int]  # "agent" and its rank, or "server" and its number
KEPT = ("name", "rank", "step", "t_wall", "t_mono")


def noted(group: TrainingGroup, *names: str) -> list[dict[str, Any]]:
    """The driver's events of these names, or all but the servers' loads, in order: each with its details."""
    rows = sorted(group.tables()["events"].to_pylist(), key=lambda row: row["t_mono"])
    return [
        {key: row[key] for key in KEPT} | json.loads(row["detail"] or "{}")
        for row in rows
        if row["agent"] == "driver" and (row["name"] in names if names else row["name"] != "load")
    ]


def processes(group: TrainingGroup) -> list[int]:
    """Those of the group's agents that still run."""
    return [place.pid for place in group.places if Path(f"/proc/{place.pid}").exists()]


def pid_of(group: TrainingGroup, victim: Victim) -> int:
    """The process of an agent or a server."""
    kind, number = victim
    if kind == "agent":
        return group.places[number].pid
    actor = group._servers._servers[0]._shards[number].actor
    return int(ray.get(actor.__ray_call__.remote(place_of), timeout=patience(20)).pid)
