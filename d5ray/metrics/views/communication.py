"""Links between actors: who talks with whom, and how many bytes went there"""

import json
from collections import defaultdict
from typing import Any

import pyarrow as pa

from d5ray.metrics.views.consensus import consensus
from d5ray.metrics.views.view import RunView

ACTORS = pa.schema(
    [
        ("actor", pa.utf8()), ("rank", pa.int32()), ("x", pa.float64()), ("y", pa.float64()),
        ("steps", pa.int64()), ("loss", pa.float64()), ("bytes_sent", pa.float64()),
        ("bytes_received", pa.float64()), ("consensus_distance", pa.float64()), ("staleness", pa.float64()),
    ]
)  # fmt: skip
EDGES = pa.schema(
    [("sender", pa.utf8()), ("receiver", pa.utf8()), ("bytes", pa.float64()), ("counted", pa.bool_())]
)


def actors(view: RunView) -> pa.Table:
    """A row for each agent and parameter server, with its place in the topology's picture (y downward).

    rank null: a server. consensus_distance and staleness (mean over pushes) where they were recorded.
    """
    rows = {
        row["rank"]: row
        for row in view.ask(
            """
            SELECT rank, any_value(agent) AS actor, max(step) FILTER (metric = 'step_time') + 1 AS steps,
                arg_max(value, step) FILTER (metric = 'loss') AS loss,
                sum(value) FILTER (metric = 'bytes_sent') AS bytes_sent,
                sum(value) FILTER (metric = 'bytes_received') AS bytes_received,
                avg(value) FILTER (metric = 'staleness') AS staleness
            FROM samples WHERE rank >= 0 AND scope = 'agent'
                AND metric IN ('step_time', 'loss', 'bytes_sent', 'bytes_received', 'staleness')
            GROUP BY rank ORDER BY rank
            """
        ).to_pylist()
    }
    for rank in range(view.row["agents"] or 0):
        rows.setdefault(rank, {"rank": rank, "actor": f"TrainingAgent(rank={rank})"})
    apart = {row["rank"]: row["distance"] for row in consensus(view, points=2).to_pylist()}
    positions = graph(view).get("positions") or []
    for rank, row in rows.items():
        row["consensus_distance"] = apart.get(rank)
        if rank < len(positions):
            row["x"], row["y"] = positions[rank]
    servers = sorted({name for links in _counted(view).values() for name in links if name.startswith("Para")})
    table = [rows[rank] for rank in sorted(rows)] + [{"actor": name} for name in servers]
    return pa.Table.from_pylist(table, schema=ACTORS)


def edges(view: RunView) -> pa.Table:
    """sender, receiver, bytes: what went from one actor to another so far, in training steps.

    counted: the agents recorded it for each link. Otherwise what an agent sent is taken to have gone in equal
    parts to those that it sends to in the topology, which exchanges with neighbours do, and what an allreduce
    does is up to its algorithm.
    """
    counted = _counted(view)
    if counted:
        return _table(_both_ends(counted), True)
    sent = view.ask(
        "SELECT rank, sum(value) AS bytes FROM samples WHERE metric = 'bytes_sent' AND rank >= 0 "
        "GROUP BY rank"
    )
    found = graph(view)
    targets: dict[int, list[int]] = defaultdict(list)
    for first, second in found.get("edges") or []:
        targets[first].append(second)
        if not found["directed"]:
            targets[second].append(first)
    totals = dict(zip(*sent.to_pydict().values(), strict=True))
    spread = {
        (_agent(rank), _agent(other)): (totals.get(rank) or 0.0) / len(others)
        for rank, others in targets.items()
        for other in others
    }
    return _table(spread, False)


def graph(view: RunView) -> dict[str, Any]:
    """The topology as its run kept it, see `d5ray.distributed.topologies.topology`; {} where it did not."""
    try:
        found = json.loads(view.row.get("graph") or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _counted(view: RunView) -> dict[int, dict[str, list[float]]]:
    """The bytes that each agent last told of its links, by its rank: sent to and received from an actor."""
    rows = view.ask(
        "SELECT rank, arg_max(detail, t_mono) AS detail FROM events WHERE name = 'links' GROUP BY rank, agent"
    )
    return {
        rank: json.loads(detail)["bytes"] for rank, detail in zip(*rows.to_pydict().values(), strict=True)
    }


def _both_ends(counted: dict[int, dict[str, list[float]]]) -> dict[tuple[str, str], float]:
    """The bytes by (sender, receiver). Of two agents each counts what it began, and the other does not."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for rank, links in counted.items():
        for other, (sent, received) in links.items():
            found[_agent(rank), other] += sent
            found[other, _agent(rank)] += received
    return {ends: amount for ends, amount in found.items() if amount}


def _agent(rank: int) -> str:
    return f"TrainingAgent(rank={rank})"


def _table(found: dict[tuple[str, str], float], counted: bool) -> pa.Table:
    rows = [
        {"sender": sender, "receiver": receiver, "bytes": amount, "counted": counted}
        for (sender, receiver), amount in sorted(found.items())
    ]
    return pa.Table.from_pylist(rows, schema=EDGES)
