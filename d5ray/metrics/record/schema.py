"""The six tables of a run: `samples`, `runs`, `metrics`, `environment`, `events` and `verdicts`."""

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from d5ray.errors import ConfigurationError, StorageError, nearest

VERSION = 1  # of the tables: raised where an older d5ray could no longer read them rightly
LATER = {
    "runs": ("series", "criteria", "graph", "schema_version", "experiment_sha256", "driver_start")
}  # columns that came after the first release

# Words repeat in thousands of rows: they are stored once and referred to by number.
WORD = pa.dictionary(pa.int32(), pa.utf8())
INSTANT = pa.timestamp("ns", tz="UTC")


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


# One row per measured value, from one operator's microseconds to a cluster's bytes, in SI base units.
# The key is (run_id, agent, attempt, seq): a batch that is sent twice is recognised.
SAMPLES = pa.schema(
    [
        _required("run_id", WORD),
        _required("agent", WORD),
        _required("rank", pa.int32()),
        _required("node", WORD),
        _required("attempt", pa.int16()),  # how often the agent was restarted before it wrote this
        _required("seq", pa.int64()),  # 0, 1, 2, … within (agent, attempt), without a gap
        _required("level", pa.int8()),  # 0 operator, 1 network, 2 training, 3 distributed training
        _required("metric", WORD),
        _required("unit", WORD),
        _required("scope", WORD),  # what the value is about: "agent", "operator", "node", …
        _required("phase", WORD),  # "warmup", "train", "test", "validation", "run"
        pa.field("step", pa.int64()),
        pa.field("epoch", pa.int32()),
        _required("rep", pa.int32()),
        _required("loops", pa.int32()),  # inner repetitions that one value is the mean of
        pa.field("value", pa.float64()),  # null: unavailable; NaN: measured, and not a number
        _required("status", WORD),
        _required("source", WORD),  # "measured", "counter", "integrated", "model", "unavailable"
        _required("t_wall", INSTANT),
        _required("t_mono", pa.int64()),  # ns of the recording process's monotonic clock
    ]
)

RUNS = pa.schema(
    [
        _required("run_id", pa.utf8()),
        pa.field("recipe", pa.utf8()),
        pa.field("recipe_hash", pa.utf8()),
        pa.field("fixed", pa.utf8()),  # JSON
        pa.field("mutable", pa.utf8()),  # JSON
        pa.field("experiment", pa.utf8()),  # JSON
        pa.field("seed", pa.int64()),
        _required("status", pa.utf8()),  # running, completed, failed, interrupted, stopped
        pa.field("stop_reason", pa.utf8()),
        pa.field("verdict", pa.utf8()),  # PASS, FAIL, INCONCLUSIVE; null without criteria
        pa.field("started", INSTANT),
        pa.field("ended", INSTANT),
        pa.field("host", pa.utf8()),
        pa.field("driver_pid", pa.int64()),
        pa.field("ray_address", pa.utf8()),
        pa.field("dashboard", pa.utf8()),
        pa.field("agents", pa.int32()),
        pa.field("steps", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("parameters_sha256", pa.utf8()),
        pa.field("d5ray_version", pa.utf8()),
        pa.field("git", pa.utf8()),
        pa.field("series", pa.utf8()),  # of which it is a part, see `d5ray.metrics.judge.run_series`
        pa.field("criteria", pa.utf8()),  # JSON: what it is to reach, see `Criterion.described`
        pa.field("graph", pa.utf8()),  # JSON: who sends to whom, see `d5ray.distributed.topologies.topology`
        pa.field("schema_version", pa.int32()),  # of the tables; null: before it was recorded
        pa.field(
            "experiment_sha256", pa.utf8()
        ),  # of the file that keeps it, see `d5ray.archive.experiments`
        pa.field("driver_start", pa.int64()),  # of its process, see `liveness.start_of`
    ]
)

METRICS = pa.schema(
    [
        _required("name", pa.utf8()),
        _required("unit", pa.utf8()),
        _required("direction", pa.utf8()),  # min, max, target
        _required("kind", pa.utf8()),  # cost, rate, ratio, quality, count
        pa.field("aggregation", pa.utf8()),
        pa.field("description", pa.utf8()),
    ]
)

ENVIRONMENT = pa.schema([_required(name, pa.utf8()) for name in ("run_id", "node", "key", "value")])

EVENTS = pa.schema(
    [
        _required("run_id", pa.utf8()),
        _required("agent", pa.utf8()),
        _required("rank", pa.int32()),
        _required("name", pa.utf8()),
        pa.field("step", pa.int64()),
        pa.field("epoch", pa.int32()),
        _required("t_wall", INSTANT),
        _required("t_mono", pa.int64()),
        pa.field("duration", pa.float64()),  # s; null for an instant
        pa.field("detail", pa.utf8()),  # JSON
    ]
)

VERDICTS = pa.schema(
    [
        _required("run_id", pa.utf8()),
        _required("metric", pa.utf8()),
        _required("unit", pa.utf8()),
        _required("relation", pa.utf8()),  # ">=" or "<="
        _required("target", pa.float64()),
        pa.field("value", pa.float64()),
        pa.field("low", pa.float64()),
        pa.field("high", pa.float64()),
        _required("n", pa.int64()),
        pa.field("sample_unit", pa.utf8()),
        _required("verdict", pa.utf8()),  # PASS, FAIL, INCONCLUSIVE
        pa.field("reason", pa.utf8()),
    ]
)

TABLES: dict[str, pa.Schema] = {
    "samples": SAMPLES,
    "runs": RUNS,
    "metrics": METRICS,
    "environment": ENVIRONMENT,
    "events": EVENTS,
    "verdicts": VERDICTS,
}


def table_of(name: str, rows: Iterable[Mapping[str, Any]] = ()) -> pa.Table:
    """The table `name` made of `rows`; a column that a row leaves out is null.

    Raises ConfigurationError for an unknown table or column, a value of the wrong type, and a null in a
    column that needs a value.

    >>> table_of("environment", [{"run_id": "r", "node": "n", "key": "os", "value": "Linux"}]).num_rows
    1
    """
    if name not in TABLES:
        raise ConfigurationError(f"There is no table {name!r}: {nearest(name, TABLES)}")
    schema = TABLES[name]
    listed = [dict(row) for row in rows]
    for row in listed:
        for column in row:
            if column not in schema.names:
                raise ConfigurationError(
                    f"The table {name!r} has no column {column!r}: {nearest(column, schema.names)}"
                )
    try:
        return checked(pa.Table.from_pylist(listed, schema=schema), schema)
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise ConfigurationError(f"A row does not fit the table {name!r}: {error}") from error


def with_later_columns(name: str, table: pa.Table) -> pa.Table:
    """Runs that were kept before a column existed have nulls there."""
    for column in LATER.get(name, ()):
        if column not in table.column_names:
            kind = TABLES[name].field(column).type
            table = table.append_column(column, pa.nulls(table.num_rows, kind))
    return table


def check_version(runs: pa.Table, folder: object) -> None:
    """Raise `StorageError` for a run whose tables are of a newer version than this d5ray knows."""
    if not {"schema_version", "d5ray_version"} <= set(runs.column_names):
        return
    for row in runs.select(["schema_version", "d5ray_version"]).to_pylist():
        if (row["schema_version"] or 1) > VERSION:
            raise StorageError(
                f"{folder} was written by d5ray {row['d5ray_version']} in version {row['schema_version']} of "
                f"its tables, this one reads up to version {VERSION}: install that d5ray or a newer one"
            )


def checked(data: pa.Table, schema: pa.Schema) -> pa.Table:
    """`data` with exactly the columns and types of `schema`; ArrowException where that is impossible."""
    missing = [name for name in schema.names if name not in data.schema.names]
    if missing:
        raise pa.ArrowInvalid(f"columns are missing: {', '.join(missing)}")
    data = data.select(schema.names)
    for field in schema:
        if not field.nullable and data[field.name].null_count:
            raise pa.ArrowInvalid(f"the column {field.name!r} needs a value in every row")
    return data if data.schema.equals(schema) else data.cast(schema)
