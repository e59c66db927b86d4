"""Events of a run: deaths, recoveries, checkpoints, joins; and who did what when"""

import json

import pyarrow as pa

from d5ray.metrics.views.steps import PARTS, stretches_of_agents
from d5ray.metrics.views.view import RunView

FAILURES = (
    "agent_died", "replica_lost", "server_died", "ray_lost", "nan_loss", "failed", "peer_lost", "died",
    "interrupted", "stopped",
)  # fmt: skip
SCHEDULE = (  # of every step: what a replay needs, and nobody reads line by line
    "push", "pull", "push_pull", "average", "held", "read", "collect", "probe", "links",
)  # fmt: skip
REQUESTS = ("push", "pull", "push_pull")
WORK = {"compute": ("data", "forward", "backward", "update"), "communicate": ("exchange",), "wait": ("wait",)}
REST = ("record", "other")
TICK = 1e-9  # s: what is shorter is rounding
INTERVALS = pa.schema(
    [
        ("actor", pa.utf8()), ("rank", pa.int32()), ("kind", pa.utf8()), ("begin", pa.float64()),
        ("end", pa.float64()), ("steps", pa.int64()),
    ]
)  # fmt: skip


def events(view: RunView, *, schedule: bool = False, most: int = 1000) -> pa.Table:
    """Rows of seconds, name, agent, rank, step, epoch, duration, detail, failure: the last ones, in order.

    seconds: since the run began; duration in seconds, null for an instant; failure: whether something
    went wrong. schedule: also the agents' single pushes, pulls and averages.
    """
    names = "" if schedule else f"WHERE name NOT IN ({_listed(SCHEDULE)})"
    return view.ask(
        f"""
        SELECT * FROM (
            SELECT (epoch_ns(t_wall) - $origin) / 1e9 AS seconds, name, agent, rank, step, epoch, duration,
                detail, name IN ({_listed(FAILURES)}) AS failure
            FROM events {names} ORDER BY t_wall DESC LIMIT $most
        ) ORDER BY seconds
        """,
        origin=view.origin,
        most=most,
    )


def counts(view: RunView) -> pa.Table:
    """name, n, failure: how often each kind of event came."""
    return view.ask(
        f"SELECT name, count(*) AS n, name IN ({_listed(FAILURES)}) AS failure FROM events "
        "GROUP BY name ORDER BY failure DESC, name"
    )


def timeline(
    view: RunView, *, low: float | None = None, high: float | None = None, most: int = 4000
) -> pa.Table:
    """actor, rank, kind, begin, end, steps: what agents and servers did when, in seconds since it began.

    kind: compute, communicate, wait, rest; of servers (rank null): serve, while requests were under way
    there. About that many intervals at most: where the steps of an agent are more, those of a stretch are put
    together, each kind as long as it took in all of them, in the order in which a step has them.
    """
    agents = max(1, view.row["agents"] or 1)
    points = max(4, most // (agents * (len(WORK) + 1)))
    found = stretches_of_agents(view, points=points, low=low, high=high).to_pylist()
    rows = []
    for row in found:
        begin = row["begin"]
        for kind, parts in (*WORK.items(), ("rest", REST)):
            length = sum(row[part] for part in parts)
            if length > TICK:
                actor = f"TrainingAgent(rank={row['rank']})"
                rows.append(
                    {"actor": actor, "rank": row["rank"], "kind": kind, "begin": begin,
                     "end": begin + length, "steps": row["steps"]}
                )  # fmt: skip
                begin += length
    if found:
        bounds = min(row["begin"] for row in found), max(row["end"] for row in found)
        rows += _serving(view, *bounds, points)
    return pa.Table.from_pylist(rows, schema=INTERVALS)


def _serving(view: RunView, low: float, high: float, points: int) -> list[dict[str, object]]:
    """The times in which parameter servers had requests; the shards of a request work at the same time."""
    names = _servers(view)
    if not names:
        return []
    spans = view.ask(
        f"""
        WITH requests AS (
            SELECT (epoch_ns(t_wall) - $origin) / 1e9 AS ended, ended - coalesce(duration, 0) AS began
            FROM events WHERE name IN ({_listed(REQUESTS)})
        ), marked AS (
            SELECT *, began > coalesce(max(ended) OVER (
                ORDER BY began ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), began - 1) + $gap AS fresh
            FROM requests WHERE ended >= $low AND began <= $high
        ), numbered AS (SELECT *, sum(CAST(fresh AS INTEGER)) OVER (ORDER BY began) AS span FROM marked)
        SELECT min(began) AS began, max(ended) AS ended, count(*) AS n FROM numbered GROUP BY span ORDER BY 1
        """,
        origin=view.origin,
        low=low,
        high=high,
        gap=(high - low) / points / 4,
    ).to_pylist()
    return [
        {"actor": name, "kind": "serve", "begin": span["began"], "end": span["ended"], "steps": span["n"]}
        for name in names
        for span in spans
    ]


def _servers(view: RunView) -> list[str]:
    """The servers' names; before the agents told of their links, as many as a request reached."""
    links = view.ask("SELECT DISTINCT detail FROM events WHERE name = 'links'")["detail"].to_pylist()
    named = {name for detail in links for name in json.loads(detail)["bytes"]}
    if servers := sorted(name for name in named if name.startswith("ParameterServer")):
        return servers
    first = view.one(f"SELECT detail FROM events WHERE name IN ({_listed(REQUESTS)}) LIMIT 1")
    shards = len(json.loads(first["detail"])["orders"]) if first else 0
    return [f"ParameterServer(shard={shard})" for shard in range(shards)]


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)


assert set(PARTS) == {*REST, *(part for parts in WORK.values() for part in parts)}
