"""Rows of `samples` made column by column: what is measured becomes a record batch without a loop per row."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from d5ray.errors import ConfigurationError
from d5ray.metrics.schema import SAMPLES

# What `Frame.append` keeps: step, epoch, phase, monotonic ns, values.
FrameRow = tuple[int | None, int | None, str, int, Sequence[float | None]]
# What `Recorder.record` keeps, in the order of _SINGLE.
SingleRow = tuple[str, str, float | None, int | None, int | None, str, str, int, int, int, str, str, int]
_SINGLE = (
    "metric", "unit", "value", "step", "epoch", "phase", "scope", "level", "rep", "loops", "status", "source",
    "t_mono",
)  # fmt: skip


@dataclass(frozen=True)
class Origin:
    """Who measured: the columns that are the same in every row of one recorder."""

    run_id: str
    agent: str
    rank: int
    node: str
    attempt: int
    wall_minus_mono: int  # ns; one pair of clock readings, so that both times of a row agree


def frame_batch(
    origin: Origin,
    seq: int,
    rows: Sequence[FrameRow],
    names: Sequence[str],
    units: Sequence[str],
    constants: dict[str, Any],
) -> pa.RecordBatch:
    """len(rows) · len(names) rows, row by row; `constants` are the scope, level, source of the frame."""
    steps, epochs, phases, times, values = zip(*rows, strict=True)
    every = np.repeat(np.arange(len(rows)), len(names))  # the row of the frame that each row comes from
    which = np.tile(np.arange(len(names), dtype=np.int32), len(rows))  # and its metric
    return _batch(
        origin,
        seq,
        np.asarray(times, dtype=np.int64)[every],
        {
            **constants,
            "metric": pa.array(names, pa.utf8()).dictionary_encode().take(which),
            "unit": pa.array(units, pa.utf8()).dictionary_encode().take(which),
            "phase": pa.array(phases, pa.utf8()).dictionary_encode().take(every),
            "step": pa.array(steps, pa.int64()).take(every),
            "epoch": pa.array(epochs, pa.int32()).take(every),
            "rep": 0,
            "loops": 1,
            "status": "ok",
            "value": floats(list(chain.from_iterable(values))),
        },
    )


def single_batch(origin: Origin, seq: int, rows: Sequence[SingleRow]) -> pa.RecordBatch:
    """len(rows) rows, each with everything of its own."""
    given = dict(zip(_SINGLE, zip(*rows, strict=True), strict=True))
    times = np.asarray(given.pop("t_mono"), dtype=np.int64)
    columns: dict[str, Any] = {"value": floats(list(given.pop("value")))}
    for name, column in given.items():
        kind = SAMPLES.field(name).type
        words = pa.types.is_dictionary(kind)
        columns[name] = pa.array(column, pa.utf8()).dictionary_encode() if words else pa.array(column, kind)
    return _batch(origin, seq, times, columns)


def floats(values: list[Any]) -> pa.Array:
    """float64 with None as null and NaN as NaN; ConfigurationError for what is not a number."""
    try:
        return pa.array(values, pa.float64())
    except (pa.ArrowException, OverflowError):  # an integer beyond 2**53, a scalar of some framework
        try:
            return pa.array([None if value is None else float(value) for value in values], pa.float64())
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigurationError(f"A recorded value is not a number: {error}") from error


def _batch(origin: Origin, seq: int, times: npt.NDArray[np.int64], columns: dict[str, Any]) -> pa.RecordBatch:
    """All columns of SAMPLES; a column that is not an array is the same value in every row."""
    rows = len(times)
    columns |= {
        "run_id": origin.run_id,
        "agent": origin.agent,
        "rank": origin.rank,
        "node": origin.node,
        "attempt": origin.attempt,
        "seq": np.arange(seq, seq + rows),
        "t_wall": times + origin.wall_minus_mono,
        "t_mono": times,
    }
    arrays = [_column(columns[field.name], field.type, rows) for field in SAMPLES]
    return pa.RecordBatch.from_arrays(arrays, schema=SAMPLES)


def _column(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    if isinstance(value, pa.Array):
        return value
    if isinstance(value, np.ndarray):
        return pa.array(value, kind)
    if pa.types.is_dictionary(kind):
        zeros = pa.array(np.zeros(rows, dtype=np.int32))
        return pa.DictionaryArray.from_arrays(zeros, pa.array([value], pa.utf8()))
    return pa.array(np.full(rows, value), kind)
