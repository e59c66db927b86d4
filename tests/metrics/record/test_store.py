"""A run's folder, read back by d5ray, by pyarrow, by pandas and by DuckDB without d5ray."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record import store
from d5ray.metrics.record.liveness import start_of
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES, TABLES, table_of
from d5ray.metrics.record.store import RunWriter, check_writable, home, runs_root

pandas: Any = pytest.importorskip("pandas")


def batches_of(
    agent: str, count: int, *, rows: int = 4, run_id: str = "r", attempt: int = 0
) -> list[pa.RecordBatch]:
    """Batches whose words are numbered differently by every agent and in every batch."""
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(
        run_id=run_id,
        agent=agent,
        rank=int(agent[-1]),
        node=f"node-{agent}",
        send=sent.append,
        attempt=attempt,
    )
    metrics = ["loss", "step_time", "samples", "bytes_sent"]
    for batch in range(count):
        for row in range(rows):
            metric = metrics[(row + batch + int(agent[-1])) % 4]
            recorder.record(metric, float(1000 * batch + row), step=batch, phase=f"{agent}-{batch % 3}")
        recorder.flush()
    return sent


def opened(root: Path, run_id: str = "r", **row: Any) -> RunWriter:
    writer = RunWriter(root, run_id)
    writer.open({"started": datetime.now(UTC), "host": platform.node(), "driver_pid": os.getpid()} | row)
    return writer


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows ordered by agent, attempt, seq, with times as integers."""
    place = table.schema.get_field_index("t_wall")
    table = table.set_column(place, "t_wall", table["t_wall"].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return sorted(rows, key=lambda row: (row["agent"], row["attempt"], row["seq"]))


def test_agents_with_different_dictionaries_read_back_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interleaved batches of three agents: every column of every row, while running and when finished."""
    monkeypatch.setattr(store, "ROWS_PER_GROUP", 10)  # several row groups, each with other dictionaries
    sent = [batches_of(f"agent-{i}", 5) for i in range(3)]
    writer = opened(tmp_path)
    for batches in zip(*sent, strict=True):
        assert [writer.append(batch) for batch in batches] == [4, 4, 4]
    expected = plain(pa.Table.from_batches([batch for batches in sent for batch in batches]))
    run = Run.find("r", tmp_path)
    assert plain(run.tables()["samples"]) == expected
    writer.close()
    assert pq.ParquetFile(run.folder / "samples.parquet").num_row_groups > 1
    assert plain(run.tables()["samples"]) == expected
    assert plain(pq.read_table(run.folder / "samples.parquet")) == expected
    assert run.tables()["samples"].schema == SAMPLES


def test_a_thousand_batches_of_one_row_are_read_as_few(tmp_path: Path) -> None:
    """Events come one by one, and in memory a batch takes ten thousand bytes, whatever is in it."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    row = {"run_id": "r", "agent": "driver", "rank": -1, "name": "agent_died", "t_wall": at}
    rows = [row | {"t_mono": number, "detail": "x" * (number % 7)} for number in range(1100)]
    (together,) = table_of("events", rows).combine_chunks().to_batches()
    writer = opened(tmp_path)
    assert [writer.append_events(together.slice(number, 1)) for number in range(1100)] == [1] * 1100
    run = Run.find("r", tmp_path)
    growing = run.tables()["events"]
    assert growing["t_mono"].num_chunks == 2
    writer.close()
    for table in (growing, run.tables()["events"]):
        assert table["t_mono"].to_pylist() == list(range(1100))
        assert table["detail"].to_pylist() == ["x" * (number % 7) for number in range(1100)]


def test_a_finished_run_needs_no_d5ray(tmp_path: Path) -> None:
    """pandas and DuckDB read the files by themselves and agree with the rows that were sent."""
    writer = opened(tmp_path)
    sent = [batch for i in range(2) for batch in batches_of(f"agent-{i}", 4)]
    for batch in sent:
        writer.append(batch)
    writer.close()
    file = tmp_path / "r" / "samples.parquet"
    values = np.concatenate([batch["value"].to_numpy() for batch in sent])
    frame = pandas.read_parquet(file)
    assert sorted(frame["value"]) == sorted(values)
    assert set(frame["agent"].astype(str)) == {"agent-0", "agent-1"}
    assert str(frame["t_wall"].dtype) == "datetime64[ns, UTC]"
    total = duckdb.connect().execute(f"select count(*), sum(value) from '{file}'").fetchone()
    assert total == (len(values), values.sum())
    assert sorted(path.name for path in (tmp_path / "r").iterdir()) == [
        "events.parquet", "metrics.parquet", "runs.parquet", "samples.parquet",
    ]  # fmt: skip


def test_rows_that_came_before_are_dropped(tmp_path: Path) -> None:
    """A batch sent twice, and one that overlaps, add only what is new; other attempts are other rows."""
    first, second = batches_of("agent-0", 2)
    writer = opened(tmp_path)
    assert [writer.append(batch) for batch in (first, first, second, first, second)] == [4, 0, 4, 0, 0]
    joined = pa.Table.from_batches([first, second]).unify_dictionaries().combine_chunks().to_batches()[0]
    assert [writer.append(batch) for batch in batches_of("agent-1", 1)] == [4]
    restarted = batches_of("agent-0", 1, attempt=1)[0]
    assert writer.append(restarted.slice(0, 3)) == 3
    assert writer.append(restarted) == 1
    assert writer.append(joined) == 0
    assert writer.received() == {("agent-0", 0): 8, ("agent-1", 0): 4, ("agent-0", 1): 4}
    keys = [
        (row["agent"], row["attempt"], row["seq"]) for row in plain(Run(tmp_path / "r").tables()["samples"])
    ]
    assert keys == [("agent-0", 0, i) for i in range(8)] + [("agent-0", 1, i) for i in range(4)] + [
        ("agent-1", 0, i) for i in range(4)
    ]
    writer.close()


def test_a_batch_of_several_agents_is_taken_apart(tmp_path: Path) -> None:
    """Rows of two agents in one batch are followed separately, and dropped separately."""
    one, other = batches_of("agent-0", 1)[0], batches_of("agent-1", 1)[0]
    both = pa.Table.from_batches([one, other]).unify_dictionaries().combine_chunks().to_batches()[0]
    writer = opened(tmp_path)
    assert [writer.append(batch) for batch in (one, both, both)] == [4, 4, 0]
    assert writer.received() == {("agent-0", 0): 4, ("agent-1", 0): 4}
    writer.close()


def test_a_lost_batch_is_noticed(tmp_path: Path) -> None:
    """A batch that begins too late, or has a hole, is refused, and can be sent after the lost one."""
    first, second, third = batches_of("agent-0", 3)
    writer = opened(tmp_path)
    writer.append(first)
    with pytest.raises(StorageError, match="send everything from 4 on"):
        writer.append(third)
    hole = pa.Table.from_batches([second]).filter(pa.array([True, False, True, True])).to_batches()[0]
    with pytest.raises(StorageError, match="were lost"):
        writer.append(hole)
    assert [writer.append(batch) for batch in (second, third)] == [4, 4]
    writer.close()
    assert Run(tmp_path / "r").tables()["samples"].num_rows == 12


def test_rows_of_another_run_or_shape_are_refused(tmp_path: Path) -> None:
    """A wrong run_id, a missing column, a null where a value is needed: StorageError, and nothing stored."""
    writer = opened(tmp_path)
    batch = batches_of("agent-0", 1)[0]
    with pytest.raises(StorageError, match="another run"):
        writer.append(batches_of("agent-0", 1, run_id="other")[0])
    with pytest.raises(StorageError, match="columns are missing: unit"):
        writer.append(batch.drop_columns(["unit"]))
    place = batch.schema.get_field_index("phase")
    with pytest.raises(StorageError, match="'phase' needs a value"):
        writer.append(batch.set_column(place, "phase", pa.array([None] * 4, SAMPLES.field("phase").type)))
    words = batch.set_column(place, "phase", batch["phase"].cast(pa.utf8()))
    assert writer.append(words) == 4
    writer.close()


def test_nothing_of_a_received_batch_is_kept(tmp_path: Path) -> None:
    """After append the memory of the batch is free again: it may belong to somebody else's store."""
    writer = opened(tmp_path)
    before = pa.total_allocated_bytes()
    batch = batches_of("agent-0", 1, rows=10_000)[0]
    events = table_of("events", [event(0)]).to_batches()[0]
    assert pa.total_allocated_bytes() > before + 100_000
    writer.append(batch)
    writer.append_events(events)
    del batch, events
    assert pa.total_allocated_bytes() <= before
    writer.close()


def event(t_mono: int, name: str = "checkpoint") -> dict[str, Any]:
    return {
        "run_id": "r",
        "agent": "agent-0",
        "rank": 0,
        "name": name,
        "t_wall": t_mono + 10**18,
        "t_mono": t_mono,
    }


def test_events_are_kept_once(tmp_path: Path) -> None:
    """An event that is sent twice is stored once; order and content survive the compaction."""
    writer = opened(tmp_path)
    first = table_of("events", [event(1), event(2)]).to_batches()[0]
    second = table_of("events", [event(2), event(2, "nan_loss"), event(3)]).to_batches()[0]
    assert [writer.append_events(batch) for batch in (first, first, second)] == [2, 0, 2]
    expected = [("checkpoint", 1), ("checkpoint", 2), ("nan_loss", 2), ("checkpoint", 3)]
    run = Run(tmp_path / "r")
    for _ in range(2):
        table = run.tables()["events"]
        assert list(zip(table["name"].to_pylist(), table["t_mono"].to_pylist(), strict=True)) == expected
        assert table.schema == EVENTS
        writer.close()


def test_close_twice_changes_nothing_and_ends_writing(tmp_path: Path) -> None:
    """The second close leaves the files as they are; afterwards rows are refused, small tables are not."""
    writer = opened(tmp_path)
    batch = batches_of("agent-0", 1)[0]
    writer.append(batch)
    writer.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()}
    writer.close()
    assert {path.name: path.read_bytes() for path in (tmp_path / "r").iterdir()} == before
    with pytest.raises(StorageError, match="not open"):
        writer.append(batches_of("agent-0", 2)[1])
    writer.update_run(status="completed", verdict="PASS")
    assert Run(tmp_path / "r").row["status"] == "completed"
    with pytest.raises(StorageError, match="finished run"):
        RunWriter(tmp_path, "r").open({})


def test_small_tables_are_replaced_as_a_whole(tmp_path: Path) -> None:
    """environment reads back equal; samples cannot be written this way; no temporary file stays."""
    writer = opened(tmp_path)
    table = table_of(
        "environment", [{"run_id": "r", "node": "n", "key": "os", "value": v} for v in ("a", "b")]
    )
    writer.write_table("environment", table.slice(0, 1))
    writer.write_table("environment", table)
    tables = Run(tmp_path / "r").tables()
    assert tables["environment"] == table
    assert tables["verdicts"].num_rows == 0
    assert {name: found.schema for name, found in tables.items()} == TABLES
    with pytest.raises(ConfigurationError, match="not written as a whole"):
        writer.write_table("samples", SAMPLES.empty_table())
    writer.close()
    assert not list((tmp_path / "r").glob(".*"))


@pytest.mark.parametrize("name", ["", ".", "..", "last", "a/b"])
def test_names_that_are_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    """A run's name is the name of its folder, and "last" means another."""
    with pytest.raises(ConfigurationError, match="cannot be called"):
        RunWriter(tmp_path, name)


def test_a_run_is_found_by_name_beginning_path_and_last(tmp_path: Path) -> None:
    """Exact names win over beginnings, shared beginnings list the runs, unknown names tell the nearest."""
    start = datetime(2024, 5, 1, tzinfo=UTC)
    for days, name in enumerate(["digits-b7", "digits-a3", "digits", "mlp-1"]):
        opened(tmp_path, name, started=start + timedelta(days=-days)).close()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "note.txt").write_text("x")
    assert [run.name for run in list_runs(tmp_path)] == ["digits-b7", "digits-a3", "digits", "mlp-1"]
    assert Run.find("last", tmp_path).name == "digits-b7"
    assert Run.find("digits", tmp_path).name == "digits"
    assert Run.find("digits-a", tmp_path).name == "digits-a3"
    assert Run.find(tmp_path / "mlp-1").name == "mlp-1"
    assert Run.find(str(tmp_path / "mlp-1"), tmp_path / "nowhere").name == "mlp-1"
    with pytest.raises(ConfigurationError, match="digits-b7, digits-a3"):
        Run.find("digits-", tmp_path)
    with pytest.raises(ConfigurationError, match="did you mean 'digits-a3'"):
        Run.find("digit-a3", tmp_path)
    for name in ("foreign", "", "last"):
        with pytest.raises(ConfigurationError, match="There is no run"):
            Run.find(name, tmp_path / "empty" if name == "last" else tmp_path)
    for seed in range(30):
        opened(tmp_path, f"another-{seed}").close()
    with pytest.raises(ConfigurationError, match=r"known: mlp-1(, \S+){4} and 29 more$"):
        Run.find("1-pm", tmp_path)
    with pytest.raises(ConfigurationError, match=r"begin with 'another': (\S+, ){4}\S+ and 25 more: write"):
        Run.find("another", tmp_path)


def test_a_run_whose_driver_is_gone_has_died(tmp_path: Path) -> None:
    """running + a dead process of this host = died; a live one, another host, a finished run stay."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = {"driver_pid": child.pid}
    start = start_of(os.getpid())
    assert start is not None and start_of(child.pid) is None
    unreaped = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, unreaped.pid, os.WEXITED | os.WNOWAIT)
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "alive": ({}, "running"),
        "dead": (gone, "died"),
        "zombie": ({"driver_pid": unreaped.pid}, "died"),
        "elsewhere": (gone | {"host": "another"}, "running"),
        "finished": (gone | {"status": "completed"}, "completed"),
        "reused": ({"started": datetime(2001, 1, 1, tzinfo=UTC)}, "died"),
        "clock set": ({"started": datetime(2001, 1, 1, tzinfo=UTC), "driver_start": start}, "running"),
        "reused at once": ({"driver_start": start - 1}, "died"),
        "unknown": ({"driver_pid": None}, "running"),
    }
    for name, (row, _) in cases.items():
        opened(tmp_path, name, **row).close()
    assert {run.name: run.row["status"] for run in list_runs(tmp_path)} == {
        name: status for name, (_, status) in cases.items()
    }
    unreaped.wait()


def test_the_row_of_a_run_is_what_was_written(tmp_path: Path) -> None:
    """All columns come back, times as datetime in UTC, and update_run changes only what it names."""
    writer = opened(tmp_path, recipe="digits", seed=7, started=datetime(2024, 5, 1, 12, tzinfo=UTC))
    writer.update_run(status="stopped", rows=3, ended=datetime(2024, 5, 1, 13, tzinfo=UTC))
    writer.close()
    row = Run(tmp_path / "r").row
    assert list(row) == TABLES["runs"].names
    expected = {
        "run_id": "r", "recipe": "digits", "seed": 7, "status": "stopped", "rows": 3, "verdict": None,
        "started": datetime(2024, 5, 1, 12, tzinfo=UTC), "ended": datetime(2024, 5, 1, 13, tzinfo=UTC),
    }  # fmt: skip
    assert {name: row[name] for name in expected} == expected
    for wrong, message in (({"verdikt": "PASS"}, "did you mean 'verdict'"), ({"seed": "many"}, "'seed'")):
        with pytest.raises(ConfigurationError, match=message):
            writer.update_run(**wrong)
    RunWriter(tmp_path, "r").update_run(verdict="PASS")  # by another process, after the end
    assert Run(tmp_path / "r").row == row | {"verdict": "PASS"}
    with pytest.raises(StorageError, match="no run yet"):
        RunWriter(tmp_path, "other").update_run(verdict="PASS")


def test_home_is_where_the_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D5RAY_HOME, or d5ray in the home folder; runs are below it and found there by default."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    assert (home(), runs_root()) == (tmp_path, tmp_path / "runs")
    opened(runs_root()).close()
    assert Run.find("last").name == "r"
    monkeypatch.delenv("D5RAY_HOME")
    assert home() == Path.home() / "d5ray"


def test_a_place_that_cannot_be_written_is_an_error_for_root_too(tmp_path: Path) -> None:
    """A file, a place below a file and one of the kernel are refused; a new folder is left empty."""
    file = tmp_path / "file"
    file.write_text("x")
    for place in (file, file / "below", Path("/proc/d5ray")):
        with pytest.raises(StorageError, match="D5RAY_HOME"):
            check_writable(place)
    with pytest.raises(StorageError):
        opened(file)
    check_writable(tmp_path / "new" / "folder")
    assert list((tmp_path / "new" / "folder").iterdir()) == []


def test_new_folders_are_for_their_owner_alone_and_others_stay_as_they_are(tmp_path: Path) -> None:
    """Whatever the umask allows; a home that was made for several users before remains theirs."""
    before = os.umask(0)
    try:
        for place in ("new", "shared"):
            (tmp_path / "shared").mkdir(mode=0o775, exist_ok=True)
            writer = opened(tmp_path / place / "runs")
            writer.close()
            modes = [path.stat().st_mode & 0o777 for path in (tmp_path / place, tmp_path / place / "runs")]
            assert modes == ([0o700, 0o700] if place == "new" else [0o775, 0o700])
    finally:
        os.umask(before)


def test_what_is_not_a_table_is_an_error(tmp_path: Path) -> None:
    """A damaged runs.parquet is a StorageError when asked for, and does not hide the other runs."""
    opened(tmp_path, "good").close()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "runs.parquet").write_bytes(b"not a table")
    with pytest.raises(StorageError, match=r"runs\.parquet"):
        _ = Run.find("bad", tmp_path).row
    assert [run.name for run in list_runs(tmp_path)] == ["good"]
