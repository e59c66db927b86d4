"""The table `summary` of the runs that a connection sees; one run at a time is in memory"""

from typing import TYPE_CHECKING

import pyarrow as pa

from d5ray.metrics.judge.summary import KEYS, STOPPED, SUMMARY, summary
from d5ray.metrics.record.schema import SAMPLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COLUMNS = (*KEYS, "rep", "step", "rank", "value")


def summary_of(connection: "DuckDBPyConnection") -> pa.Table:
    """`d5ray.metrics.judge.summary.summary` of every run."""
    wanted = pa.schema([SAMPLES.field(name) for name in _COLUMNS])
    runs = connection.sql("SELECT DISTINCT run_id FROM samples ORDER BY run_id").to_arrow_table()
    tables = [SUMMARY.empty_table()]
    for (name,) in zip(runs["run_id"].to_pylist(), strict=True):
        rows = connection.sql(f"SELECT {', '.join(_COLUMNS)} FROM samples WHERE run_id = $1", params=[name])
        batches = [batch.cast(wanted) for batch in rows.to_arrow_reader(1 << 17)]
        events = connection.sql(
            "SELECT run_id, name, detail FROM events WHERE run_id = $1 AND name = $2", params=[name, STOPPED]
        ).to_arrow_table()
        row = connection.sql("SELECT run_id, stop_reason FROM runs WHERE run_id = $1", params=[name])
        of_run = {"samples": pa.Table.from_batches(batches, wanted), "events": events}
        tables.append(summary({**of_run, "runs": row.to_arrow_table()}))
    return pa.concat_tables(tables)
