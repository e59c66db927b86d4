"""What a query must not do: every way out of a run's tables that is known is tried"""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from d5ray.errors import ConfigurationError
from d5ray.metrics.queries.locations import source_in
from d5ray.metrics.queries.source import Limits
from d5ray.metrics.record.reader import Run
from tests.metrics.small_runs import finished, written
from tests.patience import patience

# {file}: the run's own samples.parquet; {folder}: of the run; {out}: a file that is not there
WAYS = [
    # reading other files, by every function that opens one
    "select * from '/etc/passwd'",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from read_blob('/etc/passwd')",
    "select * from read_json('/etc/passwd')",
    "select * from read_parquet('{folder}/../secret.parquet')",
    "select * from read_text('{file}/../../secret.csv')",
    "select * from '{folder}/../secret.csv'",
    "select * from 'file://{folder}/../secret.csv'",
    "select * from read_duckdb('/tmp/x.duckdb')",
    "select * from glob('/etc/*')",
    "select * from sniff_csv('/etc/passwd')",
    "select * from parquet_metadata('{file}')",
    "select * from system.main.read_text('/etc/passwd')",
    'select * from "read_text"(\'/etc/passwd\')',
    "select (select count(*) from read_text('/etc/passwd'))",
    "select * from samples where metric in (from glob('/etc/*'))",
    "select * from samples s, lateral (select * from glob(s.metric))",
    "select * from query('select * from read_text(''/etc/passwd'')')",
    "select * from query_table('/etc/passwd')",
    "from json_execute_serialized_sql(json_serialize_sql('select 1'))",
    "pivot (select * from read_text('/etc/passwd')) on filename using count(*)",
    'pivot (select * from "read_text"/* */(\'/etc/passwd\')) on filename using count(*)',
    "explain analyze select * from read_text('/etc/passwd')",
    "describe select * from read_csv('/etc/passwd')",
    "summarize from read_csv('/etc/passwd')",
    # the network
    "select * from 'http://127.0.0.1:1/x.parquet'",
    "select * from read_parquet('s3://bucket/x.parquet')",
    "install httpfs",
    "load httpfs",
    # writing, also the run's own file, also within what looks like a SELECT
    "copy samples to '{out}'",
    "copy (select 1) to '{file}' (use_tmp_file false)",
    "with x as (copy (select 1) to '{file}' (use_tmp_file false)) select * from x",
    "with x as materialized (copy (select 1) to '{out}') from x",
    "select (with x as (copy (select 1) to '{file}' (use_tmp_file false)) select count(*) from x)",
    "explain analyze copy (select 1) to '{file}' (use_tmp_file false)",
    "explain analyze /* */ with x as (copy (select 1) to '{file}' (use_tmp_file false)) from x",
    "describe (with x as (copy (select 1) to '{file}' (use_tmp_file false)) from x)",
    "pivot (with x as (copy samples to '{file}' (use_tmp_file false)) from x) on Count using count(*)",
    "copy (pivot samples on metric using count(*)) to '{out}'",
    "select 1; copy samples to '{out}'",
    "with x as (insert into runs values (1)) select 1",
    "insert into samples select * from samples",
    "delete from samples",
    "update runs set seed = 7",
    "drop view samples",
    "create table other as select 1",
    "create or replace view samples as select 1",
    "create macro f() as 1",
    "export database '{out}'",
    "import database '{folder}'",
    "attach '{out}' as other",
    "attach '{file}' as other",
    "attach ':memory:' as other",
    "use memory",
    "checkpoint",
    "select * from checkpoint()",
    "vacuum",
    "begin",
    # settings, and what they hide
    "set enable_external_access = true",
    "set allowed_paths = ['/etc/passwd']",
    "set memory_limit = '100GB'",
    "reset memory_limit",
    "set temp_directory = '{out}'",
    "set lock_configuration = false",
    "set python_enable_replacements = true",
    "pragma enable_profiling",
    "call enable_logging(storage = 'file', storage_path = '{out}')",
    "select * from enable_logging(storage := 'file', storage_path := '{out}')",
    "select * from enable_profiling(save_location := '{out}')",
    "create secret (type s3)",
    "select * from duckdb_secrets()",
    "select getenv('HOME')",
    # variables and memory of the calling program
    "select * from variable",
    "select * from tests",
    'select * from "table"',
    "select * from arrow_scan(1, 2, 3)",
    "select * from pandas_scan(1)",
    "prepare p as select 1",
    "execute p",
    "load '{out}'",
]  # fmt: skip

FINE = [
    "select 1 as copy",
    "from samples select metric, count(*) group by all",
    "with s as (select * from samples) select count(*) from s",
    "with recursive n as (select 1 as x union all select x + 1 from n where x < 5) select sum(x) from n",
    "(select 1) union all (select 2)",
    "values (1), (2)",
    "describe samples",
    "summarize select step, value from samples",
    "show tables",
    "explain select * from samples",
    "explain analyze select count(*) from samples where metric = 'read_text('",
    "pivot samples on metric using count(*) group by rank",
    "from (pivot samples on metric using count(*))",
    "select unnest([1, 2, 3])",
    "select * from range(3), generate_series(1, 2)",
    "select * from histogram(samples, step)",
    "select column_name from duckdb_columns() where table_name = 'samples'",
    "select * from samples using sample 10 rows",
    "select step, avg(value) over (partition by metric order by step) from samples limit 3",
]  # fmt: skip


@pytest.fixture(scope="module", params=["finished", "growing"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A run beside files that are none of its own."""
    root = tmp_path_factory.mktemp("runs")
    (root / "secret.csv").write_text("secret\n42\n")
    if request.param == "finished":
        yield Run(finished(root, "r", seed=1))
        return
    writer = written(root, "r", seed=1)
    yield Run(writer.folder)
    writer.close()


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_there_is_no_way_out(run: Run, number: int, tmp_path: Path) -> None:
    """Each is an error that says so; nothing is written, nothing is changed."""
    variable = pa.table({"secret": [42]})
    out = tmp_path / "out"
    file = run.folder / "samples.parquet"
    before = {path.name: path.read_bytes() for path in run.folder.iterdir()}
    query = WAYS[number].format(file=file, folder=run.folder, out=out)
    with pytest.raises(ConfigurationError, match="The query"):
        run.sql(query)
    assert not out.exists()
    assert {path.name: path.read_bytes() for path in run.folder.iterdir()} == before
    assert variable.num_rows == 1
    assert len(run.sql("select * from samples")) == 400  # and the next query works


@pytest.mark.parametrize("query", FINE)
def test_what_only_reads_is_asked(run: Run, query: str) -> None:
    """On the same two runs."""
    assert len(run.sql(query)) > 0


def test_a_query_has_bounded_memory_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is refused, and no file takes it up; what takes too long is ended."""
    folder = finished(tmp_path, "r", seed=1)
    monkeypatch.chdir(tmp_path)  # DuckDB would put its files here
    database = source_in(folder, Limits(memory="30MB", seconds=patience(20), threads=1))
    with (
        pytest.raises(ConfigurationError, match="more memory than it may have"),
        database.ask("select range, repeat('x', 100) t from range(2000000) order by t, range desc") as answer,
    ):
        answer.table()
    database = source_in(folder, Limits(seconds=0.5, threads=1))
    for query in (
        "select count(*) from range(1000000) a, range(1000000) b, range(1000000) c",
        "select sleep_ms(60000)",
    ):
        with pytest.raises(ConfigurationError, match=r"ended after 0\.5 s"), database.ask(query) as answer:
            answer.table()
    with database.ask("select count(*) n from samples") as answer:
        assert answer.table()["n"].to_pylist() == [400]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r"]
    database.close()


def test_an_error_shows_the_place(run: Run) -> None:
    """DuckDB's message with the line and a mark under what is wrong."""
    for query, mark in (
        ("select\n nothing from samples", "LINE 2:  nothing from samples\n         ^^^^^^^"),
        ("select * from sample", 'Did you mean "samples"'),
        ("selec 1", "LINE 1: selec 1\n        ^^^^^"),
        ("select cast('x' as int)", "LINE 1: select cast"),
        ("select cast(metric as int) from samples", "Could not convert"),
        ("", "no result"),
    ):
        with pytest.raises(ConfigurationError) as failed:
            run.sql(query)
        assert mark in str(failed.value)
