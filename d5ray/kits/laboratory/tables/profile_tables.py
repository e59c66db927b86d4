"""Output of comparisons of optimizers: what each needed to every target, and its profile"""

import math
from collections.abc import Mapping

import pyarrow as pa

from d5ray.dashboards.quantities import number
from d5ray.display.console import ConsoleTable
from d5ray.kits.laboratory.metrics.performance_profiles import (
    EVALUATED_STEP,
    MEASURES,
    TRAINED_TIME,
    medians_of,
    ratios_of,
    score,
    share,
)
from d5ray.kits.laboratory.metrics.simulations import values_by_scope

Tables = Mapping[str, pa.Table]

SHOWN = {"steps": EVALUATED_STEP, "seconds": TRAINED_TIME}  # and until when it was tried
TAUS = (1.0, 1.25, 1.5, 2.0, 3.0, 4.0)


def of(run: Tables) -> list[ConsoleTable]:
    """The tables of a comparison of optimizers; none for any other run."""
    made = [needed(run, by) for by in SHOWN]
    return [table for table in (*made, profile(run)) if table.row_count]


def needed(run: Tables, by: str) -> ConsoleTable:
    """The median over seeds to every target, with the score; after `>` how long it was tried for."""
    medians = medians_of(run, MEASURES[by])
    ratios, tried = ratios_of(medians), values_by_scope(run, SHOWN[by])
    table = ConsoleTable(f"{by} to the target", numbers=(*_workloads(medians), "score"))
    for optimizer in best_first(ratios):
        cells = []
        for workload, t in medians[optimizer].items():
            until = tried.get(f"{optimizer}, {workload}[1]")
            most = "" if until is None else f"> {number(float(until.max()))}"
            cells.append(number(t) if math.isfinite(t) else most or "missed")
        table.add_row(optimizer, *cells, f"{score(ratios[optimizer]):.3f}")
    return table


def profile(run: Tables) -> ConsoleTable:
    """ρ(τ) by steps: the share of workloads on which an optimizer needed at most τ times the fewest."""
    ratios = ratios_of(medians_of(run, MEASURES["steps"]))
    table = ConsoleTable("share within … × the fewest steps", numbers=(f"{tau:g}" for tau in TAUS))
    for optimizer in best_first(ratios):
        table.add_row(optimizer, *(f"{share(ratios[optimizer], tau):.2f}" for tau in TAUS))
    return table


def best_first(ratios: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The optimizers by their scores."""
    return sorted((name for name, own in ratios.items() if own), key=lambda name: -score(ratios[name]))


def _workloads(medians: Mapping[str, Mapping[str, float]]) -> list[str]:
    return list(next(iter(medians.values()), {}))
