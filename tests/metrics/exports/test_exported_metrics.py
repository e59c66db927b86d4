"""What Ray's metrics show: the one list is sound, and rows come to what pandas makes of them"""

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from d5ray.metrics.definitions.catalogue import CATALOGUE
from d5ray.metrics.exports import exported_metrics as m
from d5ray.metrics.exports.exported_rows import come_to
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS
from tests.beside_kits import cases_of, there
from tests.conftest import python


def operators() -> list[tuple[str, Any]]:
    from d5ray.kits.laboratory.metrics.operator_calls import OF_OPERATORS  # noqa: PLC0415 - of a kit

    return list(OF_OPERATORS.items())


KNOWN: dict[str, Any] = CATALOGUE | dict(cases_of("laboratory", operators))


def test_every_metric_of_the_module_is_in_the_list_once() -> None:
    """Names are Prometheus's, unique, and what they are made of is recorded under that name."""
    defined = [value for value in vars(m).values() if isinstance(value, m.ExportedMetric)]
    assert set(defined) == set(m.EXPORTED)
    names = [each.exposed for each in m.EXPORTED]
    assert len(set(names)) == len(names)
    for each in m.EXPORTED:
        assert re.fullmatch(r"ray_d5ray_[a-z_]+", each.exposed)
        assert each.exposed.endswith("_total") == (each.kind == m.COUNTER)
        assert set(each.rows) <= set(KNOWN) or not there("laboratory")
        assert set(each.roles) <= set(m.ROLES)
        assert bool(each.label) == (len(set(each.rows.values())) > 1 or each in (m.OWN, m.FAILURES))


@pytest.mark.parametrize("each", m.EXPORTED, ids=lambda each: each.name)
def test_a_metric_has_the_unit_of_what_it_is_made_of(each: m.ExportedMetric) -> None:
    """But for counts, and rates of a sum."""
    for row in each.rows if there("laboratory") else each.rows.keys() & KNOWN.keys():
        if each.by in (m.COUNT, m.NO_NUMBER):
            assert each.unit == "1"
        elif each.by == m.RATE:
            assert each.unit == f"{KNOWN[row].unit}/s"
        else:
            assert each.unit == KNOWN[row].unit


def batches(rows: int, seed: int) -> list[pa.RecordBatch]:
    """What a recorder sends of steps, evaluations and a metric of the user's own, in several batches."""
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(
        run_id="r", agent="a", rank=0, node="n", send=sent.append, send_frames=sent.append,
        send_events=sent.append,
    )  # fmt: skip
    recorder.declare("norm", "1")
    rng = np.random.default_rng(seed)
    names = ("loss", "step_time", "exchange_time", "samples", "bytes_sent", "staleness", "clock_gap")
    frame = recorder.frame(names, scales=(1.0, 1e-9, 1e-9, 1.0, 1.0, 1.0, 1.0))
    for step in range(rows):
        values: list[float | None] = rng.lognormal(size=len(names)).tolist()
        if step % 3 == 1:
            values[0] = values[5] = None
        frame.append(step, 0, "train", values)
        recorder.record("norm", float(rng.normal()), step=step)
        recorder.event("probe", step=step, values=[1.0])
        if step % 4 == 3:
            recorder.flush()
    recorder.flush()
    return sent


def test_rows_come_to_what_pandas_makes_of_them() -> None:
    """Sums, counts, means, the largest, the last, and the rate; rows without a value count nowhere."""
    sent = batches(11, seed=1)
    tables = [
        expand(batch) if "values" in batch.schema.names else batch
        for batch in sent
        if "detail" not in batch.schema.names
    ]
    frame = pa.Table.from_batches(tables).unify_dictionaries().to_pandas().dropna(subset="value")
    of: Any = frame.groupby("metric", observed=True)["value"]
    found = come_to(sent)
    expected = {
        (m.STEPS, ""): of.count()["step_time"],
        (m.STEP_SECONDS, ""): of.sum()["step_time"],
        (m.PHASE_SECONDS, "exchange"): of.sum()["exchange_time"],
        (m.SAMPLES, ""): of.sum()["samples"],
        (m.SENT_BYTES, ""): of.sum()["bytes_sent"],
        (m.STEP_TIME, ""): of.mean()["step_time"],
        (m.SAMPLES_PER_SECOND, ""): of.sum()["samples"] / of.sum()["step_time"],
        (m.LOSS, ""): of.last()["loss"],
        (m.LOSS_IS_NO_NUMBER, ""): 0.0,
        (m.STALENESS, ""): of.mean()["staleness"],
        (m.CLOCK_GAP, ""): of.max()["clock_gap"],
        (m.OWN, "norm"): of.last()["norm"],
    }
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == pytest.approx(value, rel=1e-12), key[0].name


def test_parts_of_batches_come_to_the_same() -> None:
    """Slices, whose values do not lie at the beginning of their buffers, with rows without a value."""
    whole = next(batch for batch in batches(4, seed=2) if "values" in batch.schema.names)
    rows = expand(whole)
    for begin in range(4):
        part = rows.slice(7 * begin, 7)
        by_hand = dict(zip(part["metric"].to_pylist(), part["value"].to_pylist(), strict=True))
        for found in (come_to([part]), come_to([whole.slice(begin, 1)])):
            assert found.get((m.LOSS, "")) == by_hand["loss"]
            assert found[m.STEP_SECONDS, ""] == by_hand["step_time"]
            assert found[m.SENT_BYTES, ""] == by_hand["bytes_sent"]


def test_an_agent_imports_no_pandas_for_it() -> None:
    """Which would take a fifth of a second of its training."""
    code = """
import sys
from d5ray.metrics.exports.exported_rows import come_to
from d5ray.metrics.record.recorder import Recorder

sent = []
recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=sent.append, send_frames=sent.append)
frame = recorder.frame(("loss", "step_time"))
frame.append(0, 0, "train", (1.0, None))
recorder.flush()
print(len(come_to(sent)), "pandas" in sys.modules)
"""
    assert python("-c", code).out == "2 False\n"


def test_a_loss_of_nan_is_shown_and_an_absent_one_is_not() -> None:
    """NaN is a value, which Ray would drop: the alert waits for a 1."""
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=sent.append, send_frames=sent.append)
    frame = recorder.frame(("loss",))
    frame.append(0, 0, "train", (1.0,))
    frame.append(1, 0, "train", (float("nan"),))
    frame.append(2, 0, "train", (None,))
    recorder.flush()
    assert np.isnan(come_to(sent)[m.LOSS, ""])
    assert come_to(sent)[m.LOSS_IS_NO_NUMBER, ""] == 1.0


def test_other_tables_and_nothing_come_to_nothing() -> None:
    """Events, and batches without rows of a metric."""
    assert come_to([]) == {}
    assert come_to(EVENTS.empty_table().to_batches(max_chunksize=1)) == {}
    assert come_to([batch for batch in batches(3, seed=1) if "detail" in batch.schema.names]) == {}
