"""Output of `d5ray show RUN --environment`: the machines, the versions and the settings of runs"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import final

from d5ray.display.console import ConsoleTable, out
from d5ray.metrics.record.reader import Run

Facts = dict[str, dict[str, dict[str, str]]]  # by run, node and key


def of(runs: Sequence[Run]) -> Facts:
    """The facts that were recorded of each run's nodes."""
    facts: Facts = {}
    for run in runs:
        nodes = facts.setdefault(run.name, {})
        for row in run.tables(without=("samples", "events"))["environment"].to_pylist():
            nodes.setdefault(row["node"], {})[row["key"]] = row["value"]
    return facts


@final
@dataclass(frozen=True)
class Sorted:
    """Facts by key. alike: with one value; differing: as (run, node, value); unknown: with the reason."""

    alike: dict[str, str]
    differing: dict[str, list[tuple[str, str, str]]]
    unknown: tuple[str, ...]


def sorted_out(facts: Facts) -> Sorted:
    """The facts that are alike in all runs, those that differ, and those that are not known."""
    places = [(run, node, known) for run, nodes in facts.items() for node, known in nodes.items()]
    found = Sorted({}, {}, ())
    unknown = []
    for key in sorted({key for _, _, known in places for key in known}):
        told = [(run, node, known.get(key, "not recorded")) for run, node, known in places]
        value = told[0][2]
        if len({each for _, _, each in told}) > 1:
            found.differing[key] = told
        elif value.startswith("unavailable"):
            unknown.append(f"{key} ({value.removeprefix('unavailable: ')})")
        else:
            found.alike[key] = value
    return replace(found, unknown=tuple(unknown))


def show(facts: Facts) -> None:
    """Print the facts that are alike in all runs once, then those that differ; unknown ones last."""
    found, console = sorted_out(facts), out()
    alike = _table("key", "value")
    for key, value in found.alike.items():
        alike.add_row(key, value)
    console.print(alike)
    if found.differing:
        table = _table("key", "run", "node", "value")
        for key, told in found.differing.items():
            for run, node, value in told:
                table.add_row(key, run, node, value)
        console.print(table)
    if found.unknown:
        console.print(f"not known: {', '.join(found.unknown)}", style="dim")


def _table(*names: str) -> ConsoleTable:
    table = ConsoleTable()
    for name in names:
        table.add_column(name, overflow="fold")
    return table
