"""Claims about the executor of operators: every call a row, the warm-up apart, failures as reasons"""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from d5ray.actors.executors.operator_executor import FEWEST, WARMUPS, OperatorExecutor, ProblemTiming
from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays import framework as arrays
from d5ray.frameworks.torch import framework as of_torch
from d5ray.metrics.record.schema import SAMPLES
from d5ray.ops.deepbench import problems
from tests.operators import stand_ins

SMALL = problems.gemm(64, 8, 32, "TN")


@pytest.fixture(autouse=True)
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the catalogue has, Gemm is the test's own."""
    monkeypatch.setattr(arrays, "OPERATORS", {"Gemm": stand_ins.Product()})
    monkeypatch.setattr(of_torch, "FACTORIES", {"Gemm": stand_ins.product})


def executor(framework: str, **changes: Any) -> OperatorExecutor:
    made = OperatorExecutor(
        framework, changes.get("device", "cpu"), 1, "r", changes.get("attempt", 0), 2, seed=1
    )
    made.prepare()
    return made


def rows(outcome: ProblemTiming) -> list[dict[str, Any]]:
    if not outcome.rows:
        return []
    found: list[dict[str, Any]] = pa.Table.from_batches(outcome.rows, SAMPLES).to_pylist()
    return found


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_every_call_is_a_row_and_the_warm_up_is_apart(framework: str) -> None:
    """Of a short call some more; then times, from which the rates follow; the process is the repetition."""
    outcome = executor(framework, attempt=3).measure(SMALL, 0.0, 10.0)
    found = rows(outcome)
    assert {row["scope"] for row in found} == {f"{framework} {SMALL.name}"}
    assert {(row["rep"], row["attempt"], row["rank"], row["level"]) for row in found} == {(3, 3, 2, 0)}
    warm = [row for row in found if row["phase"] == "warmup"]
    assert [(row["metric"], row["step"], row["loops"]) for row in warm] == [
        ("operator_time", step, 1) for step in range(WARMUPS + FEWEST)
    ]
    times = [row for row in found if row["metric"] == "operator_time" and row["phase"] == "run"]
    assert len(times) == FEWEST
    assert outcome.seconds == np.median([row["value"] for row in times])
    for metric, unit, work in (("flop_rate", "1/s", SMALL.flops), ("byte_rate", "B/s", SMALL.moved_bytes)):
        rates = [row for row in found if row["metric"] == metric]
        assert {row["unit"] for row in rates} == {unit}
        assert [row["value"] * time["value"] for row, time in zip(rates, times, strict=True)] == [
            pytest.approx(work)
        ] * FEWEST
    assert times[0]["loops"] * outcome.seconds > 1e-3  # a short call is repeated until it can be timed


def test_what_takes_too_long_is_given_up_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its warm-up is kept; a row without a value says why."""
    monkeypatch.setattr(arrays, "OPERATORS", {"Gemm": stand_ins.Slow()})
    outcome = executor("numpy").measure(SMALL, 0.01, 0.1)
    assert outcome.seconds is None
    assert outcome.call_seconds == pytest.approx(stand_ins.Slow.seconds, rel=0.5)
    assert "5 calls of 0.05" in outcome.reason
    *warm, last = rows(outcome)
    assert {row["phase"] for row in warm} == {"warmup"}
    assert last["value"] is None
    assert last["status"] == f"unavailable: {outcome.reason}"


def test_a_failure_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the framework, of a type that the catalogue has not; the next problem is measured all the same."""
    monkeypatch.setattr(of_torch, "FACTORIES", {"Conv": stand_ins.broken, "Gemm": stand_ins.product})
    made = executor("torch")
    conv = problems.convolution(1, (8, 8, 3, 4, 3, 3, 1, 1))
    assert made.measure(conv, 0.0, 1.0).reason == "MemoryError: no room for 1 TB"
    (row,) = rows(made.measure(problems.recurrent("GRU", 4, 2, 3), 0.0, 1.0))
    assert "the catalogue has no GRU for torch" in row["status"]
    assert made.measure(SMALL, 0.0, 1.0).seconds is not None


def test_a_device_that_is_not_there_is_refused() -> None:
    for framework, words in (("numpy", "NumPy computes on the CPU alone"), ("torch", "PyTorch finds no GPU")):
        if framework == "torch" and torch.cuda.is_available():
            continue
        with pytest.raises(ConfigurationError, match=words):
            executor(framework, device="cuda")
