"""Rows of `samples` made column by column: what is measured becomes a record batch without a loop per row."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from d5ray.errors import ConfigurationError
from d5ray.metrics.record.schema import SAMPLES

FRAME = b"d5ray.frame"  # the key of a frame's description in its batch's schema

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
    """The origin of rows: the columns that are the same in every row of one recorder."""

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
    scales: Sequence[float] | None = None,
) -> pa.RecordBatch:
    """A frame as a batch, one row a step: a tenth of the bytes of the rows of `samples` it stands for.

    step, epoch, phase, t_mono, values (metrics); everything that is the same in all rows is in the schema's
    metadata. `expand` makes len(rows) · len(names) rows of `samples` of it. Built from buffers, since
    `pa.array` imports pandas when it is first called, which takes an agent a fifth of a second.
    """
    steps, epochs, phases, times, values = zip(*rows, strict=True)
    described = {**vars(origin), **constants, "seq": seq, "names": names, "units": units}
    phase_names = sorted(set(phases))
    numbers = {phase: number for number, phase in enumerate(phase_names)}
    columns = {
        "step": _integers(steps, np.int64),
        "epoch": _integers(epochs, np.int32),
        "phase": _integers([numbers[phase] for phase in phases], np.int32),
        "t_mono": _integers(times, np.int64),
        "values": pa.FixedSizeListArray.from_arrays(floats(values, scales), len(names)),
    }
    described["phases"] = phase_names
    schema = pa.schema(
        [pa.field(name, column.type) for name, column in columns.items()],
        metadata={FRAME: json.dumps(described)},
    )
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def expand(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows of `samples` that a `frame_batch` stands for, row by row, in the order of its metrics."""
    known = json.loads(batch.schema.metadata[FRAME])
    names, units = known["names"], known["units"]
    every = np.repeat(np.arange(batch.num_rows), len(names))  # the row of the frame that each row comes from
    which = np.tile(np.arange(len(names), dtype=np.int32), batch.num_rows)  # and its metric
    origin = Origin(**{field.name: known[field.name] for field in fields(Origin)})
    phases = pa.array(known["phases"], pa.utf8())
    return _batch(
        origin,
        known["seq"],
        batch["t_mono"].to_numpy()[every],
        {
            **{name: known[name] for name in ("scope", "level", "source")},
            "metric": pa.array(names, pa.utf8()).dictionary_encode().take(which),
            "unit": pa.array(units, pa.utf8()).dictionary_encode().take(which),
            "phase": pa.DictionaryArray.from_arrays(batch["phase"].take(every), phases),
            "step": batch["step"].take(every),
            "epoch": batch["epoch"].take(every),
            "rep": 0,
            "loops": 1,
            "status": "ok",
            "value": batch["values"].flatten(),
        },
    )


def single_batch(origin: Origin, seq: int, rows: Sequence[SingleRow]) -> pa.RecordBatch:
    """A batch of len(rows) rows, each with everything of its own."""
    given = dict(zip(_SINGLE, zip(*rows, strict=True), strict=True))
    times = np.asarray(given.pop("t_mono"), dtype=np.int64)
    columns: dict[str, Any] = {"value": floats(given.pop("value"))}
    for name, column in given.items():
        kind = SAMPLES.field(name).type
        words = pa.types.is_dictionary(kind)
        columns[name] = pa.array(column, pa.utf8()).dictionary_encode() if words else pa.array(column, kind)
    return _batch(origin, seq, times, columns)


def floats(values: Any, scales: Sequence[float] | None = None) -> pa.Array:
    """float64 of any nesting, flat, with None as null and NaN as NaN; refuses what is not a number.

    scales: factors of the columns, if values is a table.
    """
    try:
        table = np.array(values, dtype=np.float64)
        numbers = (table if scales is None else table * scales).ravel()
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigurationError(f"A recorded value is not a number: {error}") from error
    missing = np.isnan(numbers)
    if missing.any():  # a measured NaN, or None
        flat = np.array(values, dtype=object).ravel()
        missing[missing] = [value is None for value in flat[missing]]
    bitmap = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(pa.float64(), len(numbers), [bitmap, pa.py_buffer(numbers)])


def _integers(values: Sequence[int | None], kind: type[np.signedinteger[Any]]) -> pa.Array:
    if None in values:
        return pa.array(values, pa.from_numpy_dtype(kind))
    numbers = np.array(values, dtype=kind)
    return pa.Array.from_buffers(pa.from_numpy_dtype(kind), len(numbers), [None, pa.py_buffer(numbers)])


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
