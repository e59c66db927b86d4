"""SQL on a run, against numpy on the same rows."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import TABLES
from d5ray.metrics.record.store import RunWriter

VALUES = np.random.default_rng(0).lognormal(size=(200, 2))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    writer = RunWriter(tmp_path, "r")
    writer.open({"seed": 3})
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="agent-0", rank=0, node="n", send=sent.append, batch_rows=100)
    frame = recorder.frame(("step_time", "loss"))
    for step, values in enumerate(VALUES):
        frame.append(step, 0, "train", tuple(values))
        recorder.poll()
    recorder.flush()
    for batch in sent:
        writer.append(batch)
    yield Run(tmp_path / "r")  # still being written
    writer.close()


def test_the_median_in_sql_is_that_of_numpy(run: Run) -> None:
    """`median(value) … group by metric` on a growing run gives numpy's medians."""
    table = sql(run, "select metric, median(value) as m from samples group by metric order by metric")
    assert table["metric"].to_pylist() == ["loss", "step_time"]
    assert table["m"].to_pylist() == pytest.approx([np.median(VALUES[:, 1]), np.median(VALUES[:, 0])])


def test_all_tables_can_be_asked(run: Run) -> None:
    """Each of the six tables is there under its name with its columns; times are in UTC."""
    for name, schema in TABLES.items():
        assert sql(run, f"select * from {name}").schema.names == schema.names
    assert sql(run, "select seed from runs")["seed"].to_pylist() == [3]
    assert sql(run, "select t_wall from samples").schema.field("t_wall").type.tz == "UTC"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selec 1", "syntax error"),
        ("select nothing from samples", "nothing"),
        ("select * from sample", "samples"),
        ("select cast(metric as int) from samples", "Could not convert"),
        ("", "no result"),
    ],
)
def test_a_wrong_query_gives_the_message_of_duckdb(run: Run, query: str, message: str) -> None:
    """The error is a ConfigurationError that quotes DuckDB."""
    with pytest.raises(ConfigurationError, match=message):
        sql(run, query)


def test_a_query_reaches_nothing_but_the_run(run: Run, tmp_path: Path) -> None:
    """No file can be read or written, no variable of the program is a table, and it stays that way."""
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    variable = pa.table({"a": [1]})
    for query in (
        f"select * from '{secret}'",
        f"copy samples to '{tmp_path / 'out.csv'}'",
        "select * from variable",
        'select * from "table"',
        "set enable_external_access = true",
        "set python_enable_replacements = true",
        f"attach '{tmp_path / 'other.duckdb'}'",
    ):
        with pytest.raises(ConfigurationError, match="The query failed"):
            sql(run, query)
    assert variable.num_rows == 1
    assert not (tmp_path / "out.csv").exists()
