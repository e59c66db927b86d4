"""The section of communication: what exchanges were predicted to take and took, and what was sent"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, final

import numpy as np

from d5ray.dashboards.quantities import number, size, told, unit_of
from d5ray.dashboards.report.document import Block, Figure, Note, ReportTable, Section
from d5ray.dashboards.report.formats import figure_style
from d5ray.dashboards.report.subject import Setting, Subject
from d5ray.metrics.definitions.catalogue import BytesSent, ExchangeTime, MessagesSent, PredictedExchangeTime
from d5ray.metrics.statistics.estimates import Rows
from d5ray.names.kits import parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

MOST_NAMED = 12  # in a legend


@final
class ExchangeTimes(NamedTuple):
    """An exchange: who took part, its predicted time, and the quartiles of the measured one; seconds."""

    label: str
    predicted: float
    low: float
    median: float
    high: float


def section(subject: Subject) -> Section | None:
    """Predictions beside measurements, and the traffic; None where nobody communicated."""
    found = [*of_agents(subject), *of_studies(subject)]
    blocks: list[Block] = []
    if found:
        blocks.append(
            Figure(
                "communication",
                "Exchange: predicted and measured",
                "The time of an exchange as latency and bandwidth predict it, and as it was measured: the "
                "median and the quartiles over steps. On the line both are the same.",
                lambda: _drawn(found),
            )
        )
        blocks.append(_predictions(found))
    for blocks_of in parts("communication in a report").values():
        blocks += blocks_of(subject)
    if (traffic := _traffic(subject.settings)).rows:
        if not blocks:
            blocks.append(
                Note(
                    "No exchange was predicted: `d5ray doctor --network` measures latency and bandwidth "
                    "once; from then on every step records what they predict."
                )
            )
        blocks.append(traffic)
    return Section("communication", "Communication", tuple(blocks)) if blocks else None


def of_agents(subject: Subject) -> list[ExchangeTimes]:
    """The exchanges, one for each agent of each setting whose steps were predicted; warm-up left out."""
    found = []
    for setting in subject.settings:
        for member in setting.members:
            if PredictedExchangeTime.name not in member.measured:
                continue
            rows = member.view.ask(
                "SELECT rank, median(value) FILTER (metric = $predicted) AS predicted, "
                "quantile_cont(value, [0.25, 0.5, 0.75]) FILTER (metric = $measured) AS taken FROM samples "
                "WHERE metric IN ($predicted, $measured) AND scope = 'agent' AND phase = 'train' "
                "AND value IS NOT NULL GROUP BY rank ORDER BY rank",
                predicted=PredictedExchangeTime.name,
                measured=ExchangeTime.name,
            ).to_pylist()
            found += [
                ExchangeTimes(setting.label, row["predicted"], *row["taken"])
                for row in rows
                if row["predicted"] and row["taken"]
            ]
    return found


def of_studies(subject: Subject) -> list[ExchangeTimes]:
    """The exchanges, one for each of a study that wrote its closed form beside it."""
    found = []
    for member in subject.members:
        if {ExchangeTime.name, PredictedExchangeTime.name} <= member.measured.keys():
            rows = member.view.ask(
                "SELECT scope, median(value) FILTER (metric = $predicted) AS predicted, "
                "median(value) FILTER (metric = $measured) AS taken FROM samples "
                "WHERE metric IN ($predicted, $measured) AND scope <> 'agent' AND value IS NOT NULL "
                "GROUP BY scope HAVING predicted > 0 AND taken IS NOT NULL ORDER BY scope",
                predicted=PredictedExchangeTime.name,
                measured=ExchangeTime.name,
            ).to_pylist()
            found += [ExchangeTimes(row["scope"], row["predicted"], *[row["taken"]] * 3) for row in rows]
    return found


def _drawn(found: Sequence[ExchangeTimes]) -> "Drawing":
    unit = unit_of("s", [each.median for each in found])
    names = list(dict.fromkeys(each.label for each in found))
    shown = [figure_style.short(name, 34) for name in names[:MOST_NAMED]]
    with figure_style.drawing(3.6 + figure_style.legend_height(shown)) as (figure, axes):
        bounds = [value / unit.scale for each in found for value in each[1:] if value > 0]
        low, high = min(bounds) / 1.6, max(bounds) * 1.6
        axes.plot([low, high], [low, high], color=figure_style.FAINT, linestyle=(0, (4, 2)), linewidth=1.2)
        for index, name in enumerate(names):
            own = [each for each in found if each.label == name]
            style = figure_style.line_style(index)
            x, lower, y, upper = (np.array([each[at] for each in own]) / unit.scale for at in (1, 2, 3, 4))
            axes.errorbar(
                x, y, yerr=[y - lower, upper - y], fmt=style.marker, color=style.colour,
                label=shown[index] if index < MOST_NAMED else None,
            )  # fmt: skip
        figure_style.logarithmic(axes, "x", low, high)
        figure_style.logarithmic(axes, "y", low, high)
        axes.set_xlim(low, high)
        axes.set_ylim(low, high)
        axes.set_xlabel(f"predicted time of an exchange{unit.axis}")
        axes.set_ylabel(f"measured{unit.axis}")
        figure_style.legend(figure, axes, shown)
        return figure


def _predictions(found: Sequence[ExchangeTimes]) -> ReportTable:
    """The median over agents, in milliseconds."""
    unit = unit_of("s", [each.median for each in found])
    rows = []
    for name in dict.fromkeys(each.label for each in found):
        own = [each for each in found if each.label == name]
        predicted, taken = (float(np.median([each[at] for each in own])) for at in (1, 3))
        rows.append((name, unit.text(predicted), unit.text(taken), number(taken / predicted)))
    header = ("exchange", f"predicted{unit.axis}", f"measured{unit.axis}", "measured / predicted")
    return ReportTable("Exchanges, predicted and measured", header, rows, frozenset({1, 2, 3}))


def _traffic(settings: Sequence[Setting]) -> ReportTable:
    """A table of the bytes that an agent sent, and how long a step's exchange took."""
    rows = []
    for setting in settings:
        sent, messages = setting.estimate(BytesSent()), setting.estimate(MessagesSent())
        if sent.value:
            steps = len(np.unique(Rows(setting.tables([BytesSent.name]), BytesSent.name).step))
            count = "–" if messages.value is None else f"{messages.value:,.0f}"
            exchange = told(setting.estimate(ExchangeTime()), "s")
            rows.append((setting.label, size(sent.value), size(sent.value / steps), count, exchange))
    header = ("setting", "sent by an agent", "a step", "messages", "median exchange of a step, 95 % interval")
    return ReportTable("Traffic of the agent that sent most", header, rows, frozenset({1, 2, 3, 4}))
