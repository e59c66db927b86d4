"""What is left of a run when its writer is killed, cut off, or runs out of space."""

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from d5ray.errors import StorageError
from d5ray.metrics.record.files import StreamFile, read_stream
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import SAMPLES, table_of
from d5ray.metrics.record.store import RunWriter
from tests.conftest import python

WRITER = """
import sys
from pathlib import Path
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.store import RunWriter

writer = RunWriter(Path(sys.argv[1]), "r")
writer.open({})
recorder = Recorder(run_id="r", agent="agent-0", rank=0, node="n", send=writer.append)
for row in range(10**9):
    recorder.record("loss", float(row), step=row)
    if row % 50 == 49:
        recorder.flush()
        sys.stdout.write(f"{recorder.rows}\\n")
        sys.stdout.flush()
"""

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from d5ray.errors import StorageError
from d5ray.metrics.record.files import read_stream
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.store import RunWriter

root = Path(sys.argv[1])
writer = RunWriter(root, "r")
writer.open({})
recorder = Recorder(run_id="r", agent="agent-0", rank=0, node="n", send=writer.append)
unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, unlimited[1]))
try:
    while True:
        for row in range(100):
            recorder.record("loss", float(recorder.rows), step=row)
        recorder.flush()
except StorageError as error:
    assert "free some space" in str(error), error
held = []
ahead = Recorder(run_id="r", agent="agent-1", rank=1, node="n", send=held.append)
for _ in range(2):
    for row in range(1000):
        ahead.record("loss", float(row), step=row)
    ahead.flush()
for batch in held:  # a sender that does not wait: what comes after a refused batch was not lost by it
    try:
        writer.append(batch)
        raise AssertionError("it did not notice")
    except StorageError as error:
        assert "free some space" in str(error), error
stored = writer.received()["agent-0", 0]
assert 0 < stored < recorder.rows
stream = root / "r" / "samples.arrows"
assert max(end for _, end in read_stream(stream)) == stream.stat().st_size, "an incomplete piece was left"
values = Run(root / "r").tables()["samples"]["value"].to_pylist()
assert values == [float(i) for i in range(stored)], (len(values), stored)

resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, unlimited[1]))  # too little even for the Parquet file
try:
    writer.close()
    raise AssertionError("close() did not notice")
except StorageError:
    pass
assert Run(root / "r").tables()["samples"].num_rows == stored
assert not list((root / "r").glob(".*")), "a temporary file was left"

resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)  # somebody made room
recorder.flush()
writer.close()
values = Run(root / "r").tables()["samples"]["value"].to_pylist()
assert values == [float(i) for i in range(recorder.rows)]
assert (root / "r" / "samples.parquet").exists() and not (root / "r" / "samples.arrows").exists()
"""


def batches(count: int) -> list[pa.RecordBatch]:
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="agent-0", rank=0, node="n", send=sent.append)
    for batch in range(count):
        for row in range(5 + batch):
            recorder.record("loss" if row % 2 else "step_time", float(batch), step=batch, phase=f"p{batch}")
        recorder.flush()
    return sent


@pytest.mark.full
def test_a_stream_cut_anywhere_gives_exactly_the_complete_batches(tmp_path: Path) -> None:
    """Cut at any of many places, the file reads as the batches that end before the cut, and no more."""
    path, sent = tmp_path / "samples.arrows", batches(4)
    stream = StreamFile(path, SAMPLES)
    ends = []
    for batch in sent:
        stream.append(batch)
        ends.append(path.stat().st_size)
    stream.close()
    whole = path.read_bytes()
    assert [end for _, end in read_stream(path)] == ends
    cuts = {*range(0, len(whole), 37), *ends, *(end - 1 for end in ends), *(end + 1 for end in ends[:-1])}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        found = [batch for batch, _ in read_stream(path)]
        assert len(found) == sum(end <= cut for end in ends), cut
        assert all(one.equals(other) for one, other in zip(found, sent, strict=False))


@pytest.mark.parametrize("missing_bytes", [0, 1, 100, 10**9])
def test_a_writer_goes_on_where_a_dead_one_stopped(tmp_path: Path, missing_bytes: int) -> None:
    """After a cut the complete batches count as received, and the rest is accepted again."""
    sent = batches(5)
    dead = RunWriter(tmp_path, "r")
    dead.open({})
    for batch in sent[:3]:
        dead.append(batch)
    folder = tmp_path / "r"
    whole = (folder / "samples.arrows").read_bytes()
    dead.close()
    (folder / "samples.parquet").unlink()
    (folder / "samples.arrows").write_bytes(whole[: max(0, len(whole) - missing_bytes)])
    complete = {0: 3, 10**9: 0}.get(missing_bytes, 2)
    writer = RunWriter(tmp_path, "r")
    writer.open({})
    assert sum(writer.received().values()) == sum(batch.num_rows for batch in sent[:complete])
    assert [writer.append(batch) for batch in sent] == [0] * complete + [b.num_rows for b in sent[complete:]]
    writer.close()
    found = pq.read_table(folder / "samples.parquet")
    assert found["seq"].to_pylist() == list(range(sum(batch.num_rows for batch in sent)))


def event(name: str) -> pa.RecordBatch:
    row = {"run_id": "r", "agent": "driver", "rank": -1, "name": name, "t_wall": 1, "t_mono": 1}
    return table_of("events", [row]).combine_chunks().to_batches()[0]


@pytest.mark.parametrize("made", [(), ("samples",), ("samples", "events")])
def test_a_writer_that_died_as_it_closed_is_continued(made: tuple[str, ...], tmp_path: Path) -> None:
    """Whichever tables were complete: another one completes the rest, and removes what was half written.

    It also takes one event more, which tells of the death.
    """
    sent, folder = batches(3), tmp_path / "r"
    dead = RunWriter(tmp_path, "r")
    dead.open({})
    dead.append_events(event("before"))
    for batch in sent:
        dead.append(batch)
    streams = {name: (folder / f"{name}.arrows").read_bytes() for name in ("samples", "events")}
    dead.close()
    for name in streams.keys() - set(made):
        (folder / f"{name}.parquet").unlink()
        (folder / f"{name}.arrows").write_bytes(streams[name])
    for half in (".events.parquet.1.tmp", ".best.npz.part"):
        (folder / half).write_bytes(b"PAR1")
    writer = RunWriter(tmp_path, "r")
    writer.resume()
    assert "samples" in made or sum(writer.received().values()) == sum(batch.num_rows for batch in sent)
    assert [writer.append_events(event(name)) for name in ("before", "died")] == [0, 1]
    writer.close()
    assert sorted(path.name for path in folder.iterdir()) == [
        "events.parquet", "metrics.parquet", "runs.parquet", "samples.parquet",
    ]  # fmt: skip
    found = pq.read_table(folder / "samples.parquet")
    assert found["seq"].to_pylist() == list(range(sum(batch.num_rows for batch in sent)))
    assert pq.read_table(folder / "events.parquet")["name"].to_pylist() == ["before", "died"]


def test_two_writers_of_one_run_are_refused(tmp_path: Path) -> None:
    """The second writer is told that the first is there, and the first goes on."""
    first = RunWriter(tmp_path, "r")
    first.open({})
    with pytest.raises(StorageError, match="another process"):
        RunWriter(tmp_path, "r").open({})
    assert [first.append(batch) for batch in batches(2)] == [5, 6]
    first.close()


def test_a_stream_of_other_columns_is_not_continued(tmp_path: Path) -> None:
    """A file that another version began is refused and left as it is."""
    path = tmp_path / "samples.arrows"
    path.write_bytes(pa.schema([("x", pa.int64())]).serialize().to_pybytes() * 20)
    before = path.read_bytes()
    with pytest.raises(StorageError, match="other columns"):
        StreamFile(path, SAMPLES)
    assert path.read_bytes() == before


def test_a_killed_writer_leaves_every_acknowledged_batch(tmp_path: Path) -> None:
    """SIGKILL at an arbitrary instant: all rows that were reported as stored are read back, in order."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        acknowledged = 0
        for line in child.stdout:
            acknowledged = int(line)
            if acknowledged >= 2000:
                break
        child.send_signal(signal.SIGKILL)
        acknowledged = int(([str(acknowledged), *child.stdout.read().split()])[-1])
    values = Run.find("last", tmp_path).tables()["samples"]["value"].to_pylist()
    assert len(values) >= acknowledged >= 2000
    assert values == [float(i) for i in range(len(values))]


@pytest.mark.full
def test_a_full_disk_is_an_error_and_loses_nothing(tmp_path: Path) -> None:
    """A real limit of the file size: StorageError, all acknowledged rows readable, and it goes on later."""
    assert python("-W", "error", "-c", FULL_DISK, tmp_path).err == ""
