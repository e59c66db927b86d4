"""What `d5ray show RUN --environment` shows: the machines, the versions and the settings of runs"""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from d5ray.dashboards.terminal import out
from d5ray.metrics.store import Run

Facts = dict[str, dict[str, dict[str, str]]]  # by run, node and key


def of(runs: Sequence[Run]) -> Facts:
    """What was recorded of each run's nodes."""
    facts: Facts = {}
    for run in runs:
        nodes = facts.setdefault(run.name, {})
        for row in run.tables()["environment"].to_pylist():
            nodes.setdefault(row["node"], {})[row["key"]] = row["value"]
    return facts


def show(facts: Facts) -> None:
    """What is known in all runs alike once, then what differs; what is not known last."""
    places = [(run, node, known) for run, nodes in facts.items() for node, known in nodes.items()]
    keys = sorted({key for _, _, known in places for key in known})
    alike, unknown = _table("key", "value"), []
    differing: list[str] = []
    for key in keys:
        values = {known.get(key, "not recorded") for _, _, known in places}
        if len(values) > 1:
            differing.append(key)
        elif (value := values.pop()).startswith("unavailable"):
            unknown.append(f"{key} ({value.removeprefix('unavailable: ')})")
        else:
            alike.add_row(key, escape(value))
    console = out()
    console.print(alike)
    if differing:
        table = _table("key", "run", "node", "value")
        for key in differing:
            for run, node, known in places:
                table.add_row(key, run, node, escape(known.get(key, "not recorded")))
        console.print(table)
    if unknown:
        console.print(f"not known: {', '.join(unknown)}", style="dim", markup=False)


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    return table
