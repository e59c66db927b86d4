"""A run as one JSON document

    {"format": "d5ray run", "version": 1,
     "run":         the row of `runs`; `fixed`, `mutable` and `experiment` are objects, not text,
     "metrics":     {name: {"unit", "direction", "kind", "aggregation", "description"}},
     "environment": {node: {key: value}},
     "criteria":    [the rows of `verdicts`],
     "events":      [the rows of `events`; `detail` is an object],
     "samples":     {column: [its values]}}, all columns of equal length

null is a value that is not there. JSON has no NaN and no infinity: "NaN", "Infinity" and "-Infinity" stand
for them, which Python's float() and JavaScript's Number() read. Instants are nanoseconds since 1970 (UTC).
"""

import json
import math
from pathlib import Path
from typing import Any, ClassVar, final

import pyarrow as pa

from d5ray.metrics.exports.exporter import WholeExporter
from d5ray.metrics.record.reader import Run

FORMAT, VERSION = "d5ray run", 1
OBJECTS = ("fixed", "mutable", "experiment", "detail")  # columns that hold JSON


@final
class DocumentExporter(WholeExporter):
    """An exporter that writes one file."""

    name: ClassVar[str] = "json"
    ending: ClassVar[str] = ".json"

    def write(self, run: Run, target: Path) -> None:
        with target.open("w", encoding="utf-8") as file:
            json.dump(document(run), file, allow_nan=False)
            file.write("\n")


def document(run: Run) -> dict[str, Any]:
    """The document as data."""
    tables = {name: _instants(table) for name, table in run.tables().items()}
    environment: dict[str, dict[str, str]] = {}
    for fact in tables["environment"].to_pylist():
        environment.setdefault(fact["node"], {})[fact["key"]] = fact["value"]
    metrics = {row.pop("name"): row for row in tables["metrics"].to_pylist()}
    (row,) = _rows(tables["runs"])
    return {
        "format": FORMAT,
        "version": VERSION,
        "run": row,
        "metrics": metrics,
        "environment": environment,
        "criteria": _rows(tables["verdicts"]),
        "events": _rows(tables["events"]),
        "samples": {
            name: [_finite(value) for value in tables["samples"][name].to_pylist()]
            for name in tables["samples"].column_names
        },
    }


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return [
        {
            name: json.loads(value) if name in OBJECTS and value else _finite(value)
            for name, value in row.items()
        }
        for row in table.to_pylist()
    ]


def _instants(table: pa.Table) -> pa.Table:
    """The table with instants as nanoseconds since 1970."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(pa.int64()))
    return table


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
