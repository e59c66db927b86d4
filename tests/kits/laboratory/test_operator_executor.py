"""Claims about the executor of operators: every call a row, the warm-up apart, failures as reasons"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from d5ray.actors.calls import get
from d5ray.actors.executors.operator_executor import FEWEST, MOST, WARMUPS, OperatorExecutor, ProblemTiming
from d5ray.actors.remote import spawned
from d5ray.actors.session import session
from d5ray.errors import ConfigurationError
from d5ray.frameworks.arrays import framework as arrays
from d5ray.frameworks.torch import framework as of_torch
from d5ray.kits.laboratory.bench import deepbench as problems
from d5ray.metrics.record.schema import SAMPLES
from d5ray.ops.problem import Problem
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


def test_two_problems_number_their_rows_on() -> None:
    """As the run's tables want them: from 0 without a gap."""
    made = executor("numpy")
    found = rows(made.measure(SMALL, 0.0, 10.0)) + rows(made.measure(problems.gemm(8, 8, 8, "NN"), 0.0, 10.0))
    assert [row["seq"] for row in found] == list(range(len(found)))


def test_a_problem_that_is_measured_again_goes_on_with_the_call_that_it_had() -> None:
    """Its inputs are made once, where it is kept; its rows are numbered on."""
    made, calls = executor("numpy"), []

    @dataclass(frozen=True)
    class Counted:
        """The problem, which counts how often a call is made of it."""

        inner: Problem = SMALL

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def call(self, *given: Any) -> Any:
            calls.append(given)
            return self.inner.call(*given)

    problem: Any = Counted()
    for sweep in range(2):
        found = rows(made.measure(problem, 0.0, 600.0, keep=True))
        for phase, each in (("run", FEWEST), ("warmup", WARMUPS + FEWEST)):
            own = [row for row in found if row["metric"] == "operator_time" and row["phase"] == phase]
            assert [row["step"] for row in own] == list(range(sweep * each, (sweep + 1) * each))
    assert len(calls) == 1


def test_more_time_gives_more_values_up_to_the_most() -> None:
    many = rows(executor("numpy").measure(problems.gemm(512, 512, 512, "NN"), 30.0, 60.0))
    assert len([row for row in many if row["metric"] == "operator_time" and row["phase"] == "run"]) == MOST


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


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_peaks_are_of_a_product_and_of_copying(framework: str) -> None:
    """Rows under the framework's name; a product has more operations a second than a copy has bytes."""
    found = rows(executor(framework).peaks("float32"))
    values = {metric: [r["value"] for r in found if r["metric"] == metric and r["phase"] == "run"]
              for metric in ("peak_flop_rate", "peak_byte_rate")}  # fmt: skip
    assert all(len(each) == 5 and min(each) > 1e8 for each in values.values())
    assert {row["scope"] for row in found} == {framework}


def test_a_device_that_is_not_there_is_refused() -> None:
    for framework, words in (("numpy", "NumPy computes on the CPU alone"), ("torch", "PyTorch finds no GPU")):
        if framework == "torch" and torch.cuda.is_available():
            continue
        with pytest.raises(ConfigurationError, match=words):
            executor(framework, device="cuda")


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    session.connect(None, cpus=2, metadata={}, quiet=True)
    yield
    session.shutdown()


@pytest.mark.slow
def test_as_actors_frameworks_have_processes_of_their_own(ray_session: None) -> None:
    """Each with its framework alone, though they are launched together; what is wrong is told as it is."""

    def loaded_there(_actor: object) -> tuple[int, list[str]]:  # by value: this module imports torch
        import os  # noqa: PLC0415 - in the actor
        import sys  # noqa: PLC0415

        return os.getpid(), [name for name in ("torch", "tensorflow") if name in sys.modules]

    frameworks = ("numpy", "torch")
    arguments = [(name, "cpu", 1, "r", 0, rank, 0) for rank, name in enumerate(frameworks)]
    with spawned(OperatorExecutor, arguments, cpus=0.125) as actors:
        facts = get([actor.prepare.remote() for actor in actors], 100, "prepare")
        loaded = get([actor.__ray_call__.remote(loaded_there) for actor in actors], 100, "answer")
    assert [next(iter(each)) for each in facts] == ["numpy_version", "torch_version"]
    assert [name for _, name in loaded] == [[], ["torch"]]
    assert len({pid for pid, _ in loaded}) == 2
    with (
        spawned(OperatorExecutor, [("numpy", "cuda", 1, "r", 0, 0, 0)], cpus=0.125) as actors,
        pytest.raises(ConfigurationError, match="CPU alone"),
    ):
        get([actors[0].prepare.remote()], 100, "prepare")
