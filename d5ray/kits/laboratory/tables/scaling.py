"""The section of scaling: speed-up and efficiency over the number of agents, with the ideal beside them"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, final

import numpy as np

from d5ray.dashboards.quantities import spread, told
from d5ray.dashboards.report.document import Block, Figure, Note, ReportTable, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Setting, Subject
from d5ray.kits.laboratory.metrics.scaling import (
    Efficiency,
    RunSteps,
    StrongEfficiency,
    WeakEfficiency,
    multiplied,
    steps_of,
)
from d5ray.metrics.statistics.intervals import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


IDEAL: Final = (0, (4, 2))


@final
class ScalingPoint(NamedTuple):
    """The result of one number of agents: efficiency, the speed-up that follows, and the rate of samples."""

    agents: int
    efficiency: Estimate
    speedup: Estimate
    samples_per_second: float


@final
class ScalingCurve(NamedTuple):
    """One kind of scaling, from its base up."""

    kind: str  # strong, weak
    points: tuple[ScalingPoint, ...]


def section(subject: Subject) -> Section | None:
    """The section on settings with different numbers of agents; None if all have the same."""
    by_agents = _by_agents(subject.settings)
    if len(by_agents) < 2:
        return None
    found = scaling(by_agents)
    if isinstance(found, str):
        return Section("scaling", "Scaling", (Note(found),))
    blocks: list[Block] = [
        Figure(
            f"scaling-{found.kind}",
            f"{found.kind.capitalize()} scaling",
            f"Median speed-up and efficiency over {_base(found)}; the dashed line is the ideal.",
            lambda: _drawn(found),
        ),
        _table(found),
    ]
    if not any(point.efficiency.low is not None for point in found.points[1:]):
        blocks.append(Note("There are no intervals: they need six runs of each number of agents.", True))
    return Section("scaling", "Scaling", tuple(blocks))


def _by_agents(settings: Sequence[Setting]) -> dict[int, list[RunSteps]]:
    """The runs' steps by their number of agents; the first setting with a number counts."""
    found: dict[int, list[RunSteps]] = {}
    for setting in settings:
        agents = setting.one.row["agents"]
        if agents not in found and "step_time" in setting.one.measured:
            steps = [steps_of(member.tables(("step_time", "samples"))) for member in setting.members]
            if known := [each for each in steps if each is not None]:
                found[agents] = known
    return dict(sorted(found.items()))


def scaling(by_agents: dict[int, list[RunSteps]]) -> ScalingCurve | str:
    """Strong where a step has the same samples with any number, weak where an agent has; or why not."""
    work = {agents: float(np.median([each.samples for each in of])) for agents, of in by_agents.items()}
    base = min(by_agents)
    kinds: dict[str, type[Efficiency]] = {"strong": StrongEfficiency, "weak": WeakEfficiency}
    for kind, efficiency in kinds.items():
        if any(efficiency(n, base).same_work(work[base], of) for n, of in work.items() if n != base):
            continue
        exact = Estimate(1.0, 1.0, 1.0, len(by_agents[base]), "runs", exact=True)
        points = []
        for agents, steps in by_agents.items():
            found = exact if agents == base else efficiency(agents, base).between(by_agents[base], steps)
            seconds = float(np.median([each.seconds for each in steps]))
            points.append(
                ScalingPoint(agents, found, multiplied(found, agents / base), work[agents] / seconds)
            )
        return ScalingCurve(kind, tuple(points))
    told = ", ".join(f"{of:g} with {agents}" for agents, of in work.items())
    return (
        f"The runs do not scale one work, a step has samples of {told} agents: strong scaling keeps the "
        "samples of a step, weak scaling those of an agent."
    )


def _base(found: ScalingCurve) -> str:
    agents = found.points[0].agents
    return "one agent" if agents == 1 else f"{agents} agents"


def _drawn(found: ScalingCurve) -> "Drawing":
    agents = np.array([point.agents for point in found.points], float)
    with figure_style.drawing(5.0, nrows=2, sharex=True, height_ratios=[3, 2]) as (figure, (above, below)):
        above.plot(agents, agents / agents[0], color=figure_style.FAINT, linestyle=IDEAL, label="ideal")
        below.axhline(1, color=figure_style.FAINT, linestyle=IDEAL)
        sides = [point.speedup for point in found.points], [point.efficiency for point in found.points]
        for index, (axes, of) in enumerate(zip((above, below), sides, strict=True)):
            style, (values, errors) = figure_style.line_style(index), spread(of)
            axes.errorbar(
                agents, values, errors, color=style.colour, marker=style.marker, linestyle=style.dashes,
                label="measured, 95 % interval",
            )  # fmt: skip
            axes.set_ylim(0, None)
        above.set_ylabel("speed-up (1)" if found.kind == "strong" else "scaled speed-up (1)")
        above.legend(loc="upper left")
        below.set_ylabel(f"{found.kind} efficiency (1)")
        below.set_xlabel("agents")
        below.set_xticks(agents, [f"{each:g}" for each in agents])
        return figure


def _table(found: ScalingCurve) -> ReportTable:
    rows = [
        (
            str(p.agents),
            told(p.speedup, "1"),
            told(p.efficiency, "1"),
            f"{p.samples_per_second:,.0f}",
            str(p.efficiency.n),
        )
        for p in found.points
    ]
    header = ("agents", "speed-up", f"{found.kind} efficiency", "samples/s", "runs, or pairs")
    return ReportTable(f"{found.kind.capitalize()} scaling", header, rows, frozenset(range(5)))
