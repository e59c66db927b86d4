"""`d5.Run` on a run, a folder of runs, remote paths, half a run, one of a newer version; against NumPy"""

import os
import pickle
import platform
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.judge.summary import summary
from d5ray.metrics.queries.database import Database
from d5ray.metrics.record.schema import RUNS, TABLES, VERSION
from d5ray.metrics.views.growing_streams import Growing
from tests.metrics.queries.object_store import object_store
from tests.metrics.small_runs import METRICS, finished, record, values_of, written
from tests.patience import patience

MEDIANS = "SELECT run_id, metric, median(value) AS m FROM samples GROUP BY ALL ORDER BY ALL"
SEEDS = {"a": 1, "b": 2}


def medians(seeds: dict[str, int] = SEEDS) -> list[dict[str, Any]]:
    """What MEDIANS must give, by NumPy."""
    return [
        {"run_id": name, "metric": metric, "m": pytest.approx(np.median(values_of(seed)[:, at]))}
        for name, seed in sorted(seeds.items())
        for at, metric in sorted(enumerate(METRICS), key=lambda each: each[1])
    ]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with two finished runs."""
    for name, seed in SEEDS.items():
        finished(tmp_path / "runs", name, seed)
    return tmp_path / "runs"


def test_a_folder_of_runs_is_one_set_of_tables(root: Path) -> None:
    """Finished ones and one that is being written; each row says by its run_id whose it is; times are UTC."""
    writer = written(root, "c", seed=3)
    run = d5.Run(str(root))
    for name, schema in TABLES.items():
        for asked in (run, d5.Run(writer.folder)):
            assert asked.sql(f"select * from {name}").schema.names == schema.names
    assert run.sql("select t_wall from samples").schema.field("t_wall").type.tz == "UTC"
    assert run.sql(MEDIANS).to_pylist() == medians(SEEDS | {"c": 3})
    assert run.sql("select run_id, seed from runs order by 1")["seed"].to_pylist() == [1, 2, 3]
    assert run.sql("select count(*) n, count(distinct name) d from metrics").to_pylist() == [{"n": 0, "d": 0}]
    assert sorted(set(run.table("events")["run_id"].to_pylist())) == ["a", "b", "c"]
    writer.close()
    assert run.sql(MEDIANS).to_pylist() == medians(SEEDS | {"c": 3})
    assert run.tables()["samples"].num_rows == 1200
    parts = [summary(d5.Run(root / name).tables()) for name in "abc"]
    assert run.summary().to_pylist() == pa.concat_tables(parts).to_pylist()


def test_a_new_run_in_the_folder_is_there_in_the_next_statement(root: Path) -> None:
    """And one that was removed is gone."""
    run = d5.Run(root)
    assert run.sql(MEDIANS).to_pylist() == medians()
    finished(root, "c", seed=3)
    assert run.sql(MEDIANS).to_pylist() == medians(SEEDS | {"c": 3})
    for file in (root / "a").iterdir():
        file.unlink()
    (root / "a").rmdir()
    assert run.sql(MEDIANS).to_pylist() == medians({"b": 2, "c": 3})


def test_a_growing_run_is_read_on_and_the_set_up_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each statement sees what is there then, from one connection; only new batches are read."""
    connections: list[int] = []
    read: list[int] = []
    connected, through = Database._connected, Growing.read

    def counted_connected(database: Database) -> Any:
        connections.append(1)
        return connected(database)

    def counted(stream: Growing) -> Any:
        batches = through(stream)
        read.extend(batch.num_rows for batch in batches)
        return batches

    monkeypatch.setattr(Database, "_connected", counted_connected)
    monkeypatch.setattr(Growing, "read", counted)
    writer = written(tmp_path, "r", seed=1)
    run = d5.Run(writer.folder)
    count = "select count(*) n, sum(value) s from samples"
    for attempt in range(4):
        expected = sum(values_of(seed).sum() for seed in range(1, attempt + 2))
        for _ in range(2):  # by several threads, which add up in any order
            (found,) = run.sql(count).to_pylist()
            assert (found["n"], found["s"]) == (400 * (attempt + 1), pytest.approx(expected))
        record(writer, values_of(attempt + 2), attempt=attempt + 1)
    assert (len(connections), sum(read)) == (1, 1600)
    writer.close()
    assert run.sql(count)["n"].to_pylist() == [2000]
    assert run.sql(count)["n"].to_pylist() == [2000]
    assert len(connections) == 2


def test_a_run_whose_driver_is_gone_has_died_in_sql_too(tmp_path: Path) -> None:
    """Alone, in a folder with others, and from the moment on at which the driver has ended."""
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    row: dict[str, Any] = {"driver_pid": driver.pid, "host": platform.node(), "status": "running"}
    writer = written(tmp_path / "runs", "left", seed=1, **row)
    finished(tmp_path / "runs", "whole", seed=2)
    alone, every = d5.Run(tmp_path / "runs" / "left"), d5.Run(tmp_path / "runs")
    status = "select run_id, status from runs order by 1"
    assert [each["status"] for each in every.sql(status).to_pylist()] == ["running", "completed"]
    driver.communicate(b"\n", timeout=patience(30))
    for run, expected in ((alone, ["died"]), (every, ["died", "completed"]), (alone, ["died"])):
        assert [each["status"] for each in run.sql(status).to_pylist()] == expected
    writer.leave()


def test_samples_are_filtered_as_numpy_does(root: Path) -> None:
    """Equal values, lists, conditions, columns; with the types of the table."""
    run = d5.Run(root / "a")
    loss = run.samples(metric="loss", step=range(10, 20), columns=["step", "value"])
    assert loss["step"].to_pylist() == list(range(10, 20))
    assert loss["value"].to_pylist() == values_of(1)[10:20, 1].tolist()
    assert loss.schema.field("value") == TABLES["samples"].field("value")
    assert run.samples(where="value > 2").num_rows == int((values_of(1) > 2).sum())
    assert run.samples().schema.equals(TABLES["samples"])
    frame = run.to_pandas(metric=["loss", "step_time"], rank=0)
    assert frame["value"].to_numpy().tolist() == values_of(1).ravel().tolist()
    assert run.samples(agent="agent-0", metric="loss", step=10**6).num_rows == 0


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda run: run.samples(metric="los"), "no metric 'los': did you mean 'loss'"),
        (lambda run: run.samples(metrc="loss"), "no column 'metrc': did you mean 'metric'"),
        (lambda run: run.samples(columns=["stp"]), "no column 'stp': did you mean 'step'"),
        (lambda run: run.samples(metric="x'; select 1 --"), "no metric"),
        (lambda run: run.samples(where="nothing > 1"), "nothing"),
        (lambda run: run.table("sample"), "no table 'sample': did you mean 'samples'"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest(root: Path, ask: Any, message: str) -> None:
    """Of metrics, columns and tables."""
    with pytest.raises(ConfigurationError, match=message):
        ask(d5.Run(root / "a"))


def test_a_run_is_found_by_its_name(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the commands find it; a wrong one is answered with the nearest."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    finished(tmp_path / "runs", "digits-1", seed=1)
    assert d5.Run("digits-1").sql("select seed from runs")["seed"].to_pylist() == [1]
    assert d5.Run("last").name == d5.Run("dig").name == "digits-1"
    assert d5.Run(f"file://{tmp_path}/runs/digits-1").name == "digits-1"
    for name, message in (
        ("digist-1", "did you mean 'digits-1'"),
        (str(tmp_path / "nowhere"), "There is no run"),
        ("nowhere://x", "Unrecognized|No filesystem|Protocol not known"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            d5.Run(name).sql("select 1")
    with pytest.raises(StorageError, match="no run, and no folder of runs"):
        d5.Run(tmp_path).sql("select 1")
    with pytest.raises(StorageError, match="is not there"):
        d5.Run(tmp_path / "nowhere").sql("select 1")
    with pytest.raises(ConfigurationError, match="a token is for a server"):
        d5.Run("memory://x", token="x").sql("select 1")


def test_a_run_can_be_sent_to_another_process(root: Path) -> None:
    """What answers is made anew there."""
    run = d5.Run(root)
    run.sql("select 1")
    assert pickle.loads(pickle.dumps(run)).sql(MEDIANS).to_pylist() == medians()


def objects_of(root: Path, prefix: str) -> dict[str, bytes]:
    """The files of the runs by the name under which a store has them."""
    return {
        f"{prefix}{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()
    }


def test_runs_in_an_object_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow's own S3 client; one run that is still a stream among them."""
    writer = written(root, "c", seed=3)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with object_store(objects_of(root, "bucket/all/")) as host:
        options = f"?endpoint_override={host}&scheme=http&region=us-east-1"
        run = d5.Run(f"s3://bucket/all{options}")
        assert run.sql(MEDIANS).to_pylist() == medians(SEEDS | {"c": 3})
        alone = d5.Run(f"s3://bucket/all/b{options}")
        assert alone.sql(MEDIANS).to_pylist() == medians({"b": 2})
        assert alone.samples(metric="loss", step=3)["value"].to_pylist() == [values_of(2)[3, 1]]
        assert alone.summary().to_pylist() == d5.Run(root / "b").summary().to_pylist()
        with pytest.raises(ConfigurationError, match="is not a folder of this machine"):
            _ = alone.folder
        with pytest.raises(StorageError, match="s3://bucket/none is not there"):
            d5.Run(f"s3://bucket/none{options}").sql("select 1")
    writer.close()


def test_runs_on_a_file_system_of_fsspec(root: Path) -> None:
    """Where pyarrow knows nothing."""
    memory = fsspec.filesystem("memory")
    for name, data in objects_of(root, "/d5ray-test/").items():
        memory.pipe(name, data)
    try:
        assert d5.Run("memory://d5ray-test").sql(MEDIANS).to_pylist() == medians()
        assert d5.Run("memory://d5ray-test/a").table("runs")["seed"].to_pylist() == [1]
    finally:
        memory.rm("/d5ray-test", recursive=True)


def test_what_can_be_read_of_half_a_run_is_read_and_it_is_said(tmp_path: Path) -> None:
    """A stream that was cut off, a Parquet file that is one half, a run without its row."""
    writer = written(tmp_path / "runs", "cut", seed=1)
    writer.leave()
    folder = writer.folder
    finished(tmp_path / "runs", "good", seed=2)
    row = pq.read_table(folder / "runs.parquet")
    at = row.schema.get_field_index("status")
    pq.write_table(row.set_column(at, RUNS.field("status"), pa.array(["failed"])), folder / "runs.parquet")
    stream = folder / "samples.arrows"
    os.truncate(stream, stream.stat().st_size - 7)
    run = d5.Run(folder)
    with pytest.warns(UserWarning, match=r"samples\.arrows: the last \d+ bytes are incomplete and left out"):
        found = run.sql("select value from samples order by seq")["value"].to_pylist()
    assert 0 < len(found) < 400
    assert found == values_of(1).ravel()[: len(found)].tolist()

    half = finished(tmp_path / "runs", "half", seed=3)
    os.truncate(half / "samples.parquet", 500)
    assert d5.Run(half).sql("select seed from runs")["seed"].to_pylist() == [3]
    with pytest.raises(StorageError, match=r"samples\.parquet cannot be read .* 'samples' is missing"):
        d5.Run(half).sql(MEDIANS)
    (half / "runs.parquet").unlink()
    (finished(tmp_path / "runs", "lost", seed=4) / "samples.parquet").unlink()
    every = d5.Run(tmp_path / "runs")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rows = every.sql(MEDIANS).to_pylist()
    told = " ".join(str(each.message) for each in caught)
    assert {row["run_id"] for row in rows} == {"cut", "good"}
    assert "half has no runs.parquet: it is only partly there" in told and "lost has no samples.parq" in told
    assert "'samples' is missing; it is left out" in told
    assert "incomplete and left out" in told


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """Found, expected, what to do; in a folder of runs it is left out, and that is said."""
    folder = finished(tmp_path / "runs", "new", seed=1, schema_version=VERSION + 1, d5ray_version="9.0")
    finished(tmp_path / "runs", "good", seed=2)
    message = f"written by d5ray 9.0 in version {VERSION + 1} .* up to version {VERSION}: install"
    run = d5.Run(folder)
    with pytest.raises(StorageError, match=message):
        run.sql("select 1")
    with pytest.raises(StorageError, match=message):
        run.tables()
    with pytest.raises(StorageError, match=message):
        _ = run.row
    with pytest.warns(UserWarning, match=f"{message}.* it is left out"):
        assert d5.Run(tmp_path / "runs").sql(MEDIANS).to_pylist() == medians({"good": 2})


def test_a_run_of_before_the_version_was_recorded_is_read(root: Path) -> None:
    """The column is null then."""
    file = root / "a" / "runs.parquet"
    table = pq.read_table(file).drop_columns(["schema_version", "series"])
    pq.write_table(table, file)
    assert d5.Run(root / "a").sql("select schema_version v, seed from runs").to_pylist() == [
        {"v": None, "seed": 1}
    ]
    assert d5.Run(root / "b").sql("select schema_version v from runs")["v"].to_pylist() == [VERSION]


def test_a_result_is_taken_by_others(root: Path) -> None:
    """A pyarrow.Table in all that matters, and as an Arrow stream."""
    found = d5.Run(root / "a").sql("select metric, count(*) n from samples group by 1 order by 1")
    assert found.to_pandas()["n"].tolist() == [200, 200]
    assert pa.table(found).equals(found.arrow)
    assert found == found.arrow and len(found) == found.num_rows == 2
    assert found.column_names == ["metric", "n"]
    with d5.Run(root / "a").ask("select * from samples") as answer:
        assert sum(batch.num_rows for batch in answer.batches) == 400
