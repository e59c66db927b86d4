"""Consensus of agents: distances of parameters from the mean, of gradients from the newest parameters"""

import json

import numpy as np
import pyarrow as pa

from d5ray.metrics.definitions.asynchrony import distances
from d5ray.metrics.views.view import RunView

MOST_PROBES = 20_000  # that are read at once, of all agents

_NUMBERS = "from_json(json_extract(detail, '$.staleness'), '[\"BIGINT\"]')"


def consensus(view: RunView, points: int = 200) -> pa.Table:
    """step, rank, distance: of an agent's parameters from the mean of all, as a share of its norm.

    rank null: the root mean square over the agents. Estimated from the coordinates that all agents recorded
    (see `ConsensusDistance`), at no more than `points` steps that all have made, the last one included.
    """
    known = view.ask(
        "SELECT step, count(DISTINCT rank) AS agents FROM events WHERE name = 'probe' "
        "GROUP BY step ORDER BY step"
    )
    most = max(known["agents"].to_pylist(), default=0)
    steps = [row["step"] for row in known.to_pylist() if row["agents"] == most > 1]
    taken = _spread(steps, min(points, max(2, MOST_PROBES // max(1, most))))
    rows = view.ask(
        "SELECT step, rank, detail FROM events WHERE name = 'probe' AND list_contains($steps, step)",
        steps=taken,
    )
    found: dict[int, dict[int, list[float]]] = {step: {} for step in taken}
    for step, rank, detail in zip(*rows.to_pydict().values(), strict=True):
        found[step][rank] = json.loads(detail)["values"]
    columns: dict[str, list[float | int | None]] = {"step": [], "rank": [], "distance": []}
    for step, by_rank in found.items():
        ranks = sorted(by_rank)
        each = distances(np.array([by_rank[rank] for rank in ranks]))
        together = float(np.sqrt((each**2).mean()))
        for rank, distance in zip([None, *ranks], [together, *each.tolist()], strict=True):
            columns["step"].append(step)
            columns["rank"].append(rank)
            columns["distance"].append(distance)
    kinds = (pa.int64(), pa.int32(), pa.float64())
    return pa.table({k: pa.array(v, t) for (k, v), t in zip(columns.items(), kinds, strict=True)})


def staleness(view: RunView) -> pa.Table:
    """rank, staleness, pushes: how many pushed gradients lacked that many updates; of several shards each."""
    return view.ask(
        f"""
        SELECT rank, staleness, count(*) AS pushes FROM (
            SELECT rank, unnest({_NUMBERS}) AS staleness FROM events WHERE name IN ('push', 'push_pull')
        ) WHERE staleness >= 0 GROUP BY rank, staleness ORDER BY rank, staleness
        """
    )


def _spread(steps: list[int], points: int) -> list[int]:
    """This many of the steps, evenly, with the first and the last."""
    if len(steps) <= points:
        return steps
    return [steps[round(i * (len(steps) - 1) / (points - 1))] for i in range(points)]
