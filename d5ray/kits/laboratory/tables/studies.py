"""Output of studies: rates of all agents, costs of simulations, times to an accuracy"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.dashboards.quantities import count, number, size, unit_of
from d5ray.display.console import ConsoleTable
from d5ray.kits.laboratory.metrics import exchanges as of_exchanges
from d5ray.kits.laboratory.metrics import rates, side_by_side, simulations
from d5ray.kits.laboratory.metrics.operator_calls import OPERATOR_TIME
from d5ray.metrics.statistics.intervals import Estimate

Tables = Mapping[str, pa.Table]

# Times that other tables show, or none since there are too many of them.
ELSEWHERE = {
    of_exchanges.ALLREDUCE_TIME, of_exchanges.GRADIENT_TIME, OPERATOR_TIME, rates.SERVICE_TIME,
    simulations.TRAINING_TIME,
}  # fmt: skip


class Scope(NamedTuple):
    """Whom rows are about: `name[agents]`, and at which size."""

    name: str
    agents: str
    at: str

    @classmethod
    def of(cls, text: str) -> "Scope":
        """The scope with this name in the tables.

        >>> Scope.of("d5ray[2] 1 MB")
        Scope(name='d5ray', agents='2', at='1 MB')
        """
        contender, _, at = text.partition("] ")
        name, _, agents = contender.removesuffix("]").rpartition("[")
        return cls(name, agents, at)


def of(run: Tables) -> list[ConsoleTable]:
    """The tables of whatever the run is a study of; none for any other run."""
    made = (
        by_scope("updates/s of all agents", run, rates.UPDATE_RATE, rates.rate_of), samples(run),
        by_scope("a training (s)", run, simulations.TRAINING_TIME, side_by_side.time_of), wholes(run),
        times(run), exchanges(run), *sides(run),
    )  # fmt: skip
    return [table for table in made if table.row_count]


def samples(run: Tables) -> ConsoleTable:
    """Samples a second of all agents of a contender together."""
    table = ConsoleTable("samples/s of all agents", numbers=("median", "95% interval", "n"))
    for name in side_by_side.contenders(run, rates.AGENT_STEP_TIME):
        found = rates.rate_of(run, rates.SAMPLE_RATE, name)
        within = unit_of("1", ()).interval(found.low, found.high)
        table.add_row(name, number(found.known), within, str(found.n))
    return table


def sides(run: Tables) -> list[ConsoleTable]:
    """Milliseconds of what several sides did in turn, such as an update by each rule of two libraries.

    One table for each time of a name of its own that was recorded about `contender[1] what side`.
    """
    samples = run["samples"]
    if not any("] " in scope for scope in samples["scope"].unique().to_pylist()):
        return []
    timed = samples.filter(pc.equal(samples["unit"], "s"))["metric"].unique().to_pylist()
    made = (_by_side(run, metric) for metric in timed if metric not in ELSEWHERE)
    return [table for table in made if table is not None]


def _by_side(run: Tables, metric: str) -> ConsoleTable | None:
    """A row for what was done, a column for who did it; None where it was not done by several sides."""
    scopes: dict[str, dict[str, str]] = {}
    for scope in side_by_side.contenders(run, metric):
        name, _, at = Scope.of(scope)
        what, _, side = at.partition(" ")
        scopes.setdefault(f"{name} {what}", {})[side] = scope
    if not scopes or any("" in by or len(by) < 2 for by in scopes.values()):
        return None
    cells = {
        (what, side): f"{side_by_side.time_of(run, metric, scope).known * 1e3:.3g}"
        for what, by in scopes.items()
        for side, scope in by.items()
    }
    return _crossed(f"{metric} (ms)", cells)


def wholes(run: Tables) -> ConsoleTable:
    """A table of how long whole simulations took: the medians."""
    columns: dict[str, Callable[[float], str]] = {
        simulations.WALL_TIME: number,
        simulations.PROCESSOR_TIME: number,
        simulations.PEAK_MEMORY: size,
    }
    table = ConsoleTable("a whole simulation", numbers=("real time (s)", "processor (s)", "peak memory"))
    found = {metric: simulations.values_by_scope(run, metric) for metric in columns}
    for name in found[simulations.WALL_TIME]:
        cells = (show(float(np.median(found[metric][name]))) for metric, show in columns.items())
        table.add_row(name, *cells)
    return table


def times(run: Tables) -> ConsoleTable:
    """Virtual seconds to the accuracy, by the number of agents; after `>` how long it was tried for."""
    tried = simulations.values_by_scope(run, simulations.ELAPSED_TIME)
    cells = {}
    for scope, reached in simulations.values_by_scope(run, simulations.TIME_TO_ACCURACY).items():
        name, agents, _ = Scope.of(scope)
        seconds = float(np.median(reached))
        shown = number(seconds) if math.isfinite(seconds) else f"> {number(float(tried[scope].max()))}"
        cells[name, count(int(agents), "agent")] = shown
    return _crossed("virtual time to accuracy (s)", cells)


def exchanges(run: Tables) -> ConsoleTable:
    """An exchange's time beside its closed form's, in milliseconds."""
    table = ConsoleTable("one exchange (ms)", numbers=("predicted", "found", "found/predicted"))
    for scope, (found, predicted) in simulations.prediction_ratios(run).items():
        if predicted:
            table.add_row(scope, *map(number, (predicted * 1e3, found * 1e3, found / predicted)))
    return table


def by_scope(
    heading: str,
    run: Tables,
    metric: str,
    of: Callable[[Tables, str, str], Estimate],
    shown: Callable[[float], str] = number,
) -> ConsoleTable:
    """A contender's row, with the medians of what it did at each size."""
    cells = {}
    for scope in side_by_side.contenders(run, metric):
        value = of(run, metric, scope).value
        cells[scope[: scope.index("]") + 1], Scope.of(scope).at] = "–" if value is None else shown(value)
    return _crossed(heading, cells)


def _crossed(heading: str, cells: Mapping[tuple[str, str], str]) -> ConsoleTable:
    """Rows and columns in order of appearance, one cell for each pair."""
    columns = dict.fromkeys(column for _, column in cells)
    table = ConsoleTable(heading, numbers=columns)
    for row in dict.fromkeys(row for row, _ in cells):
        table.add_row(row, *(cells.get((row, column), "–") for column in columns))
    return table
