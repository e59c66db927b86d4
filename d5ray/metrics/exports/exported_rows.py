"""Rows of `samples` as metrics that Ray exports: sums, counts, means and last values since the last look"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.exports.exported_metrics import (
    COUNT,
    EXPORTED,
    LAST,
    MEAN,
    MOST,
    NO_NUMBER,
    OWN,
    RATE,
    SUM,
    ExportedMetric,
)
from d5ray.metrics.record.columns import FRAME

Values = npt.NDArray[np.float64]
Key = tuple[ExportedMetric, str]  # what is shown, and the value of its label
Readings = Mapping[Key, float]

BY: Final[Mapping[str, Callable[[Values], Any]]] = {
    SUM: np.sum, COUNT: len, LAST: lambda values: values[-1], MEAN: np.mean, MOST: np.max, RATE: np.sum,
    NO_NUMBER: lambda values: not np.isfinite(values[-1]),
}  # fmt: skip
OF: Final = {row for each in EXPORTED for row in each.rows}


def come_to(batches: Iterable[pa.RecordBatch]) -> dict[Key, float]:
    """The exported metrics of these batches, of compact frames too; other tables are ignored.

    Counters as what is added to them. A metric without a value in the rows is left out.
    """
    parts: dict[str, list[Values]] = defaultdict(list)
    for batch in batches:
        for name, part in _columns(batch):
            if len(part):
                parts[name].append(part)
    found = {name: np.concatenate(each) for name, each in parts.items()}
    seconds = float(found["step_time"].sum()) if "step_time" in found else 0.0
    shown: dict[Key, float] = {}
    for exported in EXPORTED:
        for row, label in exported.rows.items():
            if row in found and (seconds or exported.by != RATE):
                value = float(BY[exported.by](found[row]))
                shown[exported, label] = value / seconds if exported.by == RATE else value
    own = [name for name in found if name not in OF and name not in CATALOGUE]
    return shown | {(OWN, name): float(found[name][-1]) for name in own}


def _columns(batch: pa.RecordBatch) -> Iterable[tuple[str, Values]]:
    """The values of each metric in a batch, those that are null left out."""
    described = (batch.schema.metadata or {}).get(FRAME)
    if described is not None:
        names: Sequence[str] = json.loads(described)["names"]
        flat = batch["values"].flatten()
        values, valid = _numbers(flat), _valid(flat)
        return [(name, values[at :: len(names)][valid[at :: len(names)]]) for at, name in enumerate(names)]
    if "metric" not in batch.schema.names:
        return []
    column = batch["metric"]
    codes, valid = _numbers(column.indices), _valid(batch["value"])
    values = _numbers(batch["value"])
    return [
        (name, values[(codes == code) & valid]) for code, name in enumerate(column.dictionary.to_pylist())
    ]


def _numbers(array: pa.Array) -> Any:
    """The array's values, whatever those are that are null: from the buffer; `to_numpy` imports pandas."""
    kind = array.type.to_pandas_dtype()
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * array.type.bit_width // 8)


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    if not array.null_count:  # as nearly always
        return np.ones(len(array), np.bool_)
    bits = np.unpackbits(np.frombuffer(array.buffers()[0], np.uint8), bitorder="little")
    return bits[array.offset : array.offset + len(array)].astype(np.bool_)
