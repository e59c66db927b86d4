"""The recorder against a reference that makes one Python dictionary per row."""

import json
import math
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES

NAMES = ("loss", "step_time", "bytes_sent")
UNITS = ("1", "s", "B")


def recorder(send: Any, **options: Any) -> Recorder:
    return Recorder(run_id="r", agent="agent-2", rank=2, node="n", send=send, attempt=1, **options)


def same(a: Any, b: Any) -> bool:
    """Equality in which NaN equals NaN and differs from None."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


numbers = st.one_of(st.none(), st.floats(), st.integers(-(2**53), 2**53))
frame_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 2**62)),
        st.one_of(st.none(), st.integers(0, 2**31 - 1)),
        st.sampled_from(["warmup", "train"]),
        st.tuples(numbers, numbers, numbers),
        st.booleans(),
    ),
    max_size=12,
)


@given(frame_rows)
def test_frames_give_the_rows_of_a_plain_loop(rows: list[tuple[Any, ...]]) -> None:
    """Metric, unit, step, epoch, phase, value of every row are as appended, however the flushes fall."""
    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    frame = recording.frame(NAMES, level=2)
    expected: list[tuple[Any, ...]] = []
    for step, epoch, phase, values, flush in rows:
        frame.append(step, epoch, phase, values)
        for name, unit, value in zip(NAMES, UNITS, values, strict=True):
            number = None if value is None else float(value)
            expected.append((len(expected), name, unit, step, epoch, phase, number))
        if flush:
            recording.flush()
    assert recording.rows == len(expected)
    recording.flush()
    found = _rows(sent)
    assert len(found) == len(expected)
    for one, reference in zip(found, expected, strict=True):
        names = ("seq", "metric", "unit", "step", "epoch", "phase", "value")
        assert all(same(one[name], value) for name, value in zip(names, reference, strict=True))
        constants = {
            "run_id": "r", "agent": "agent-2", "rank": 2, "node": "n", "attempt": 1, "level": 2,
            "scope": "agent", "rep": 0, "loops": 1, "status": "ok", "source": "measured",
        }  # fmt: skip
        assert {name: one[name] for name in constants} == constants


def _rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    for batch in batches:
        batch.validate(full=True)
        assert batch.schema == SAMPLES
    columns = SAMPLES.remove(SAMPLES.get_field_index("t_wall")).names
    return list(pa.Table.from_batches(batches, SAMPLES).select(columns).to_pylist())


def test_nan_is_a_value_and_none_is_not() -> None:
    """A measured NaN is stored as NaN, None as null, in frames and in single rows."""
    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    recording.frame(NAMES).append(0, 0, "train", (math.nan, None, 1))
    recording.record("loss", math.nan)
    recording.record("loss", None, status="unavailable: no sensor")
    recording.flush()
    values = pa.concat_arrays([batch["value"] for batch in sent])
    assert values.is_null().to_pylist() == [False, True, False, False, True]
    assert values.is_null(nan_is_null=True).to_pylist() == [True, True, False, True, True]


def test_single_rows_keep_everything_of_their_own() -> None:
    """`record` stores each argument in its column."""
    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    given = {
        "step": 5, "epoch": 6, "phase": "test", "scope": "operator", "level": 0, "rep": 7, "loops": 8,
        "status": "odd", "source": "model",
    }  # fmt: skip
    recording.record("test_accuracy", np.float32(0.5), **given)  # type: ignore[arg-type]
    recording.record("step_time", 2)
    recording.flush()
    first, second = _rows(sent)
    expected = given | {"metric": "test_accuracy", "unit": "1", "value": 0.5, "seq": 0}
    assert {name: first[name] for name in expected} == expected
    defaults = {
        "metric": "step_time", "unit": "s", "value": 2.0, "step": None, "epoch": None, "phase": "run",
        "scope": "agent", "level": 3, "rep": 0, "loops": 1, "status": "ok", "source": "measured", "seq": 1,
    }  # fmt: skip
    assert {name: second[name] for name in defaults} == defaults


def test_numbering_has_no_gap_over_frames_single_rows_and_flushes() -> None:
    """seq is 0, 1, 2, … in the order of sending, and `rows` counts the same."""
    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    first, second = recording.frame(NAMES), recording.frame(("samples",), scope="operator")
    for step in range(100):
        first.append(step, 0, "train", (1, 2, 3))
        second.append(step, 0, "train", (32,))
        if step % 7 == 0:
            recording.record("test_loss", 1.0)
        if step % 30 == 0:
            recording.flush()
    recording.flush()
    seq = np.concatenate([batch["seq"].to_numpy() for batch in sent])
    assert seq.tolist() == list(range(100 * 4 + 15))
    assert recording.rows == len(seq)


def test_a_batch_whose_sending_failed_is_sent_again_unchanged() -> None:
    """The rows of a failed send keep their numbers and come before everything later."""
    sent: list[pa.RecordBatch] = []
    lost: list[pa.RecordBatch] = []

    def send(batch: pa.RecordBatch) -> None:
        if not lost:
            lost.append(batch)
            raise ConnectionError("the aggregator is gone")
        sent.append(batch)

    recording = recorder(send)
    frame = recording.frame(NAMES)
    frame.append(0, 0, "train", (1, 2, 3))
    with pytest.raises(ConnectionError):
        recording.flush()
    frame.append(1, 0, "train", (4, 5, 6))
    recording.flush()
    assert sent[0].equals(lost[0])
    assert [row["seq"] for row in _rows(sent)] == list(range(6))
    assert recording.rows == 6


def test_poll_sends_after_enough_rows_or_enough_time() -> None:
    """Below both limits nothing is sent; each limit alone suffices."""
    sent: list[pa.RecordBatch] = []
    by_rows = recorder(sent.append, batch_rows=6, interval_seconds=3600)
    frame = by_rows.frame(NAMES)
    frame.append(0, 0, "train", (1, 2, 3))
    by_rows.poll()
    assert not sent
    frame.append(1, 0, "train", (1, 2, 3))
    by_rows.poll()
    assert sum(batch.num_rows for batch in sent) == 6
    by_time = recorder(sent.append, batch_rows=1000, interval_seconds=0.02)
    by_time.record("loss", 1.0)
    by_time.poll()
    assert len(sent) == 1
    time.sleep(0.03)
    by_time.poll()
    assert len(sent) == 2


def test_both_clocks_of_a_row_agree() -> None:
    """t_wall − t_mono is the same in all rows and events, and t_wall is now."""
    sent: list[pa.RecordBatch] = []
    events: list[pa.RecordBatch] = []
    recording = recorder(sent.append, send_events=events.append)
    frame = recording.frame(NAMES)
    for step in range(3):
        frame.append(step, 0, "train", (1, 2, 3))
    recording.record("loss", 1.0)
    recording.event("checkpoint")
    recording.flush()
    offsets = {
        wall - mono
        for batch in sent + events
        for wall, mono in zip(
            batch["t_wall"].cast(pa.int64()).to_pylist(), batch["t_mono"].to_pylist(), strict=True
        )
    }
    assert len(offsets) == 1
    assert abs(time.time_ns() - time.perf_counter_ns() - offsets.pop()) < 1e9


def test_unknown_metrics_are_refused_until_declared() -> None:
    """A wrong name tells the nearest; a declared one has its unit; a second unit for one name is an error."""
    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    with pytest.raises(ConfigurationError, match="did you mean 'step_time'"):
        recording.frame(("steptime",))
    with pytest.raises(ConfigurationError, match="declare"):
        recording.record("gradient_norm", 1.0)
    recording.declare("gradient_norm", "1")
    recording.declare("temperature", "K")
    recording.record("temperature", 300)
    recording.flush()
    assert _rows(sent)[0]["unit"] == "K"
    with pytest.raises(ConfigurationError, match="'s'"):
        recording.declare("step_time", "ms")


def test_a_row_of_the_wrong_length_or_kind_is_refused() -> None:
    """Two values for three metrics fail where they are appended; a text fails when it is sent."""
    recording = recorder(lambda batch: None)
    frame = recording.frame(NAMES)
    with pytest.raises(ConfigurationError, match="2 values for the 3 metrics"):
        frame.append(0, 0, "train", (1, 2))
    frame.append(0, 0, "train", (1, 2, "many"))  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not a number"):
        recording.flush()


def test_values_of_any_number_type_are_accepted() -> None:
    """numpy scalars, huge integers, and whatever has __float__ become float64."""

    class Scalar:
        def __float__(self) -> float:
            return 2.5

    sent: list[pa.RecordBatch] = []
    recording = recorder(sent.append)
    recording.frame(NAMES).append(0, 0, "train", (np.float32(0.5), 2**60 + 1, Scalar()))  # type: ignore[arg-type]
    recording.flush()
    assert sent[0]["value"].to_pylist() == [0.5, float(2**60 + 1), 2.5]


def test_events_carry_their_detail_as_json() -> None:
    """One event per call, in order, with step, epoch, duration in seconds and detail."""
    events: list[pa.RecordBatch] = []
    recording = recorder(lambda batch: None, send_events=events.append)
    recording.event("nan_loss", step=3, epoch=1, loss=math.inf)
    recording.event("checkpoint", duration=0.25, path="x")
    recording.flush()
    assert events[0].schema == EVENTS
    rows = events[0].drop_columns(["t_wall"]).to_pylist()
    assert [row["name"] for row in rows] == ["nan_loss", "checkpoint"]
    assert (rows[0]["step"], rows[0]["epoch"], rows[0]["duration"]) == (3, 1, None)
    assert json.loads(rows[0]["detail"]) == {"loss": math.inf}
    assert (rows[1]["step"], rows[1]["duration"], json.loads(rows[1]["detail"])) == (
        None,
        0.25,
        {"path": "x"},
    )
    with pytest.raises(ConfigurationError, match="send_events"):
        recorder(lambda batch: None).event("nan_loss")


def test_pandas_reads_a_single_batch() -> None:
    """Metrics of one frame that share a unit share a word: each word of a batch stands in it once."""
    sent: list[pa.RecordBatch] = []
    made = recorder(sent.append)
    made.frame(("data_time", "forward_time", "loss", "samples")).append(0, 0, "train", (0.1, 0.2, 0.3, 4))
    made.flush()
    table = sent[0].to_pandas()
    assert list(table["unit"]) == ["s", "s", "1", "1"]
    assert list(table["metric"]) == ["data_time", "forward_time", "loss", "samples"]


def test_a_frame_scales_its_values_when_they_are_sent_and_leaves_none_and_nan() -> None:
    """Nanoseconds become seconds; the compact form expands to the same rows as the direct one."""
    names, scales = ("step_time", "loss"), (1e-9, 1.0)
    values = [(2_000_000_000, 0.5), (None, math.nan), (5, None)]
    direct: list[pa.RecordBatch] = []
    compact: list[pa.RecordBatch] = []
    for made in (recorder(direct.append), recorder(direct.append, send_frames=compact.append)):
        frame = made.frame(names, scales=scales)
        for step, row in enumerate(values):
            frame.append(step, 0, "train", row)
        made.flush()
    assert len(direct) == len(compact) == 1
    assert compact[0].num_rows == len(values) and compact[0].nbytes < direct[0].nbytes / 2
    expected = [2.0, 0.5, None, math.nan, 5e-9, None]
    for batch in (direct[0], expand(compact[0])):
        found = batch["value"].to_pylist()
        assert all(same(one, other) for one, other in zip(found, expected, strict=True))
        assert batch["seq"].to_pylist() == list(range(6))
