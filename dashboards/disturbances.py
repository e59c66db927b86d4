"""Sentences on deaths, losses and changes of the group, for whoever reads the verdict of a run"""

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from d5ray.dashboards.quantities import count
from d5ray.distributed.faults.fault import MISSED

SHOWN: Final = 6  # sentences of a run; more are counted
NAMES: Final = (
    "agent_did_not_come", "agent_died", "agent_died_at_end", "agent_heard", "agent_left", "agent_restarted",
    "agent_waits", "agents_changed", "aggregator_died", "aggregator_restored", "failed", "fault", MISSED,
    "nan_loss", "ray_lost", "replica_lost", "replica_restarted", "server_died", "server_died_at_end",
    "server_restored", "stopped", "waiting",
)  # fmt: skip


def disturbances(events: pa.Table) -> list[str]:
    """A sentence for each thing that disturbed a run, in order; of many the first, and how many more.

    events: with the columns name, rank, step, detail and t_wall, as a run has them. A run that nothing
    disturbed gives none.

    >>> events = pa.table({
    ...     "name": ["agents_changed", "agent_died"], "rank": [-1, 1], "step": [30, None], "t_wall": [2, 1],
    ...     "detail": ['{"agents": 1, "global_batch": 32}', '{"reason": "no memory"}'],
    ... })
    >>> disturbances(events)
    ['agent 1 died: no memory', 'from step 30 on 1 agent, global batch 32']
    """
    named = pc.is_in(events["name"].cast(pa.utf8()), value_set=pa.array(NAMES))
    rows = events.filter(named).sort_by("t_wall").to_pylist()
    missed = {_detail(row)["planned"] for row in rows if row["name"] == MISSED}
    announced = [row for row in rows if row["name"] == "fault" and _detail(row).get("planned") in missed]
    found = [_sentence(row) for row in rows if row not in announced]  # what did not come is told once
    left = len(found) - SHOWN
    return found if left <= 1 else [*found[:SHOWN], f"and {left} more such events"]


def _detail(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(row["detail"] or "{}")
    return found


def _sentence(row: Mapping[str, Any]) -> str:
    """`agent 1 died at step 30: why`."""
    detail = _detail(row)
    if row["name"] == MISSED:
        return f"fault did not happen: {detail['planned']}, as {detail['reason']}"
    step = row["step"] if row["step"] is not None else detail.get("step")
    if row["name"] == "agents_changed":
        agents = count(detail["agents"], "agent")
        return f"from step {step:,} on {agents}, global batch {detail['global_batch']:,}"
    who, _, what = row["name"].replace("_", " ").partition(" ")
    text = f"{who} {row['rank']} {what}" if what and row["rank"] >= 0 else f"{who} {what}"
    when = "" if step is None else f" at step {step:,}"
    reason = detail.get("planned") or detail.get("reason") or detail.get("server")
    last = str(reason or "").strip().rpartition("\n")[2]
    if " died" in last:  # it says who
        return last
    return f"{text.rstrip()}{when}" + (f": {last}" if last else "")
