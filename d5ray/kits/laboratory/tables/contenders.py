"""Output for baselines measured side by side: criteria by what they compare, and times"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.dashboards.quantities import COLOURS, number, size
from d5ray.display.console import ConsoleTable, Group, styled
from d5ray.kits.laboratory.metrics import side_by_side
from d5ray.kits.laboratory.metrics.exchanges import ALLREDUCE_TIME, GRADIENT_TIME
from d5ray.kits.laboratory.tables import profile_tables, studies
from d5ray.metrics.definitions.catalogue import BytesSent, StepTime, TestAccuracy, Throughput
from d5ray.metrics.judge.criteria import Verdict


@final
@dataclass(frozen=True)
class Label:
    """A criterion's metric as it is in the tables, `name(field=value, …)`, taken apart.

    >>> Label.of("speedup(ours=a[2], base=b[2], size=1 MB)").at
    {'size': '1 MB'}
    """

    name: str
    fields: Mapping[str, str]

    @classmethod
    def of(cls, text: str) -> "Label":
        """The label of a criterion's metric as the tables show it."""
        name, _, inner = text.partition("(")
        pairs = (part.partition("=") for part in re.split(r", (?=\w+=)", inner.removesuffix(")")) if part)
        return cls(name, {key: value for key, _, value in pairs})

    @property
    def who(self) -> str:
        """The baseline that the metric is about, or the two that it compares; empty of a run of agents."""
        if {"ours", "base"} <= self.fields.keys():
            return f"{self.fields['ours']} over {self.fields['base']}"
        return self.fields.get("contender", "")

    @property
    def at(self) -> dict[str, str]:
        """The fields that tell a metric from others about the same."""
        return {key: value for key, value in self.fields.items() if key not in ("ours", "base", "contender")}

    @property
    def title(self) -> str:
        """The title of the table in which it is a line: one for each `who` measured at several sizes."""
        return f"{self.name}: {self.who}" if self.at else self.name


def about_contenders(verdicts: Iterable[Verdict]) -> tuple[list[Verdict], list[Group]]:
    """The criteria that are about contenders, and their tables."""
    own = [verdict for verdict in verdicts if Label.of(verdict.metric).who]
    return own, sections(own)


def sections(verdicts: Iterable[Verdict]) -> list[Group]:
    """The criteria about contenders, in a table with its title for each two of them or for each metric."""
    made: dict[str, ConsoleTable] = {}
    for verdict in verdicts:
        label, (scale, unit) = Label.of(verdict.metric), _scale(verdict)
        title = label.title + (f" ({unit})" if unit else "")
        if title not in made:
            made[title] = _section(label)
        made[title].add_row(
            ", ".join(label.at.values()) or label.who,
            "≥" if verdict.relation == ">=" else "≤",
            number(verdict.target * scale),
            "–" if verdict.value is None else short(verdict.value * scale),
            _within(verdict.low, verdict.high, scale),
            str(verdict.n) if verdict.n else "",
            styled(verdict.verdict, style=COLOURS.get(verdict.verdict, "")),
        )
    return [Group(styled(title, style="bold"), table) for title, table in made.items()]


def absolute(tables: Mapping[str, pa.Table]) -> list[ConsoleTable]:
    """Tables of the numbers behind the ratios: none for a run of agents."""
    of_steps = steps(tables)
    return (
        ([of_steps] if of_steps else []) + exchanges(tables) + studies.of(tables) + profile_tables.of(tables)
    )


def steps(tables: Mapping[str, pa.Table]) -> ConsoleTable | None:
    """The absolute times of training steps behind the ratios, and what came of them."""
    names = side_by_side.contenders(tables)
    if not names:
        return None
    table = ConsoleTable(
        "contender", numbers=("step (ms)", "95% interval", "n", "samples/s", "test accuracy")
    )
    for name in names:
        found = side_by_side.StepTimeOf(name).estimate(tables)
        rate, right = _rate(tables, name), _worst(tables, TestAccuracy.name, name)
        table.add_row(
            name,
            short(found.known * 1e3),
            _within(found.low, found.high, 1e3),
            str(found.n),
            "–" if rate is None else f"{rate:,.0f}",
            "–" if right is None else f"{right:.3f}",
        )
    return table


def exchanges(tables: Mapping[str, pa.Table]) -> list[ConsoleTable]:
    """The absolute times of exchanges by contender and size, and the bytes where they differ."""

    def in_ms(seconds: float) -> str:
        return short(seconds * 1e3)

    made = [
        studies.by_scope(f"{metric} (ms)", tables, metric, side_by_side.time_of, in_ms)
        for metric in (ALLREDUCE_TIME, GRADIENT_TIME)
    ]
    if made[-1].row_count:
        heading = f"{BytesSent.name} by an agent"
        made.append(studies.by_scope(heading, tables, BytesSent.name, side_by_side.time_of, size))
    return [table for table in made if table.row_count]


def short(value: float) -> str:
    """A number with three digits that count.

    >>> short(0.0012345), short(12.345), short(183.4), short(20094.5)
    ('0.00123', '12.3', '183', '20,094')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _within(low: float | None, high: float | None, scale: float) -> str:
    return "" if low is None or high is None else f"[{short(low * scale)}, {short(high * scale)}]"


def _scale(verdict: Verdict) -> tuple[float, str]:
    """The factor for the numbers of a criterion, and the unit in which they are then."""
    if verdict.unit != "s":
        return 1.0, "" if verdict.unit == "1" else verdict.unit
    return (1e6, "µs") if verdict.target < 1e-3 else (1e3, "ms") if verdict.target < 1 else (1.0, "s")


def _section(label: Label) -> ConsoleTable:
    table = ConsoleTable()
    side: Literal["left", "right"] = "right" if label.at else "left"
    table.add_column(", ".join(label.at) or "contenders", justify=side, min_width=6)
    table.add_column("")
    for heading in ("goal", "measured", "95% interval", "n"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    return table


def _rate(tables: Mapping[str, pa.Table], contender: str) -> float | None:
    """The samples of all ranks and steps over the time of the steps, each its slowest rank's."""
    keys = ["rep", "step", "rank"]
    seconds = side_by_side.rows_of(tables, StepTime.name, contender).select([*keys, "value"])
    rates = side_by_side.rows_of(tables, Throughput.name, contender).select([*keys, "value"])
    both = seconds.join(rates.rename_columns([*keys, "rate"]), keys=keys)
    both = both.append_column("samples", pc.multiply(both["value"], both["rate"]))
    steps = both.group_by(["rep", "step"]).aggregate([("samples", "sum"), ("value", "max")])
    samples, elapsed = pc.sum(steps["samples_sum"]).as_py(), pc.sum(steps["value_max"]).as_py()
    return float(samples / elapsed) if samples and elapsed else None


def _worst(tables: Mapping[str, pa.Table], metric: str, contender: str) -> float | None:
    """The smallest over the ranks, as the median over processes."""
    rows = side_by_side.rows_of(tables, metric, contender).group_by("rep").aggregate([("value", "min")])
    return float(np.median(rows["value_min"])) if rows.num_rows else None
