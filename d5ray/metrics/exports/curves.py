"""The rows of a run as curves: one metric of one agent in one phase, step by step"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.metrics.record.reader import Run

_BY = ("agent", "scope", "phase", "metric")


@final
@dataclass(frozen=True)
class RecordedCurve:
    """steps, values, instants: (points,), in the order in which they were recorded; instants in ns.

    A row without a step, or of a repetition, has its number as its step. Values that are null are left out.
    """

    agent: str
    scope: str  # what it is about where that is not the agent, otherwise empty
    phase: str
    metric: str
    steps: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    instants: npt.NDArray[np.int64]


def curves(run: Run) -> Iterator[RecordedCurve]:
    """All curves with at least one point, by agent, scope, phase and metric."""
    samples = run.tables()["samples"]
    samples = samples.filter(pc.is_valid(samples["value"]))
    for name in _BY:
        place = samples.schema.get_field_index(name)
        samples = samples.set_column(place, name, samples[name].cast(pa.utf8()))
    samples = samples.sort_by([(name, "ascending") for name in (*_BY, "attempt", "seq")])
    columns = [samples[name].to_pylist() for name in _BY]
    keys = list(zip(*columns, strict=True))
    begin = 0
    for end in range(1, len(keys) + 1):
        if end == len(keys) or keys[end] != keys[begin]:
            yield _curve(keys[begin], samples.slice(begin, end - begin))
            begin = end


def _curve(key: tuple[str, str, str, str], rows: pa.Table) -> RecordedCurve:
    agent, scope, phase, metric = key
    steps: Any = np.arange(rows.num_rows)
    if not rows["step"].null_count and not pc.max(rows["rep"]).as_py():
        steps = rows["step"].to_numpy()
    values = rows["value"].to_numpy()
    instants = rows["t_wall"].cast(pa.int64()).to_numpy()
    return RecordedCurve(agent, "" if scope == "agent" else scope, phase, metric, steps, values, instants)


def words(*parts: str) -> str:
    """A name of letters, digits, `_`, `-`, `.`, space and `/`, which all programs take.

    >>> words("train", "step_time", "TrainingAgent(rank=0)")
    'train/step_time/TrainingAgent_rank_0'
    """
    cleaned = (re.sub(r"[^A-Za-z0-9_\-. ]+", "_", part).strip("_ ") for part in parts if part)
    return "/".join(part for part in cleaned if part)


def flat(data: Any, name: str = "") -> dict[str, str]:
    """Nested JSON data as names with dots and texts.

    >>> flat({"optimizer": {"class": "SGD", "rate": 0.1}, "hidden": [8, 8]})
    {'optimizer.class': 'SGD', 'optimizer.rate': '0.1', 'hidden': '[8, 8]'}
    """
    if isinstance(data, dict) and data:
        parts: dict[str, str] = {}
        for key, value in data.items():
            parts |= flat(value, f"{name}.{key}" if name else str(key))
        return parts
    return {name: data if isinstance(data, str) else str(data)} if name else {}
