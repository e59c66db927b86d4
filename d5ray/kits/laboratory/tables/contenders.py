"""Output for baselines measured side by side: criteria by what they compare, and times"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.dashboards.numbers import COLOURS, number, size
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
        low, high = verdict.low, verdict.high
        made[title].add_row(
            ", ".join(label.at.values()) or label.who,
            "≥" if verdict.relation == ">=" else "≤",
            number(verdict.target * scale),
            "–" if verdict.value is None else short(verdict.value * scale),
            "" if low is None or high is None else f"[{short(low * scale)}, {short(high * scale)}]",
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
        low, high = found.low, found.high
        rate, right = _rate(tables, name), _worst(tables, TestAccuracy.name, name)
        table.add_row(
            name,
            short(found.known * 1e3),
            "" if low is None or high is None else f"[{short(low * 1e3)}, {short(high * 1e3)}]",
            str(found.n),
            "–" if rate is None else f"{rate:,.0f}",
            "–" if right is None else f"{right:.3f}",
        )
    return table


def exchanges(tables: Mapping[str, pa.Table]) -> list[ConsoleTable]:
    """The absolute times of exchanges by contender and size, and the bytes where they differ."""
    made = []
    for metric in (ALLREDUCE_TIME, GRADIENT_TIME):
        if side_by_side.contenders(tables, metric):
            made.append(_by_size(tables, metric, f"{metric} (ms)", lambda seconds: short(seconds * 1e3)))
    if side_by_side.contenders(tables, GRADIENT_TIME):
        made.append(_by_size(tables, BytesSent.name, f"{BytesSent.name} by an agent", size))
    return made


def short(value: float) -> str:
    """A number with three digits that count.

    >>> short(0.0012345), short(12.345), short(183.4), short(20094.5)
    ('0.00123', '12.3', '183', '20,094')
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


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


def _by_size(
    tables: Mapping[str, pa.Table], metric: str, heading: str, shown: Callable[[float], str]
) -> ConsoleTable:
    """Rows of contenders, columns of sizes; both in order of appearance."""
    scopes = side_by_side.contenders(tables, metric)
    split = [scope.partition("] ") for scope in scopes]  # a contender's name ends in the number of processes
    names = dict.fromkeys(f"{name}]" for name, _, _ in split)
    sizes = dict.fromkeys(size for _, _, size in split)
    table = ConsoleTable(heading, numbers=sizes)
    for name in names:
        found = (side_by_side.time_of(tables, metric, name, at).value for at in sizes)
        table.add_row(name, *("–" if value is None else shown(value) for value in found))
    return table


def _of(tables: Mapping[str, pa.Table], metric: str, contender: str) -> pa.Table:
    samples = tables["samples"]
    samples = samples.filter(
        pc.and_(pc.equal(samples["metric"], metric), pc.equal(samples["scope"], contender))
    )
    return samples.filter(pc.not_equal(samples["phase"], "warmup"))


def _rate(tables: Mapping[str, pa.Table], contender: str) -> float | None:
    """The samples of all ranks and steps over the time of the steps, each its slowest rank's."""
    keys = ["rep", "step", "rank"]
    seconds = _of(tables, StepTime.name, contender).select([*keys, "value"])
    rates = _of(tables, Throughput.name, contender).select([*keys, "value"]).rename_columns([*keys, "rate"])
    both = seconds.join(rates, keys=keys)
    both = both.append_column("samples", pc.multiply(both["value"], both["rate"]))
    steps = both.group_by(["rep", "step"]).aggregate([("samples", "sum"), ("value", "max")])
    samples, elapsed = pc.sum(steps["samples_sum"]).as_py(), pc.sum(steps["value_max"]).as_py()
    return float(samples / elapsed) if samples and elapsed else None


def _worst(tables: Mapping[str, pa.Table], metric: str, contender: str) -> float | None:
    """The smallest over the ranks, as the median over processes."""
    rows = _of(tables, metric, contender).group_by("rep").aggregate([("value", "min")])
    return float(np.median(rows["value_min"])) if rows.num_rows else None
