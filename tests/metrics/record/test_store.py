"""A run's folder, read back by d5ray, by pyarrow, by pandas and by DuckDB without d5ray."""

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record import store
from d5ray.metrics.record.liveness import start_of
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES, TABLES, table_of
from d5ray.metrics.record.store import Run, RunWriter, check_writable, list_runs

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
    with pytest.raises(ConfigurationError, match="digits-a3, digits-b7"):
        Run.find("digits-", tmp_path)
    with pytest.raises(ConfigurationError, match="did you mean 'digits-a3'"):
        Run.find("digit-a3", tmp_path)
    for name in ("foreign", "", "last"):
        with pytest.raises(ConfigurationError, match="There is no run"):
            Run.find(name, tmp_path / "empty" if name == "last" else tmp_path)


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
