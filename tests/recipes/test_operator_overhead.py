"""Claims about timing operators beside native ones: both sides do the same work, all are timed in turn"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from benchmarks.operator_overhead import recipe as operator_overhead
from benchmarks.operator_overhead.baselines import NATIVES, native
from benchmarks.operator_overhead.job import OperatorOverheads, UnderFramework
from benchmarks.operator_overhead.worker import OperatorTimes
from benchmarks.operator_overhead_tensorflow import recipe as operator_overhead_tensorflow
from d5ray.errors import AgentError, ConfigurationError
from d5ray.frameworks.torch import framework as of_torch
from d5ray.metrics.definitions.operator_calls import OPERATOR_TIME, AddedTime, OperatorTimeRatio
from d5ray.metrics.record.recorder import Recorder
from d5ray.operators.framework import class_named
from d5ray.ops.deepbench import problems as deepbench
from d5ray.ops.problem import Problem
from d5ray.recipes.engine.comparisons.timing import Times
from d5ray.recipes.engine.recipe import Recipe
from tests.operators import stand_ins

GEMM = deepbench.gemm(6, 5, 4, "TN")
OTHERS = [deepbench.gemm(6, 5, 4, transposed) for transposed in ("NN", "NT")]
CONV = deepbench.convolution(2, (9, 8, 3, 4, 3, 2, 1, 2))


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_torch, "FACTORIES", {"Gemm": stand_ins.product})


def by_definition(problem: Problem, a: Any, b: Any) -> Any:
    """The sums of the definition, in float64."""
    if problem.node.type == "Gemm":
        flags = problem.node.attributes
        return (a.T if flags["transA"] else a) @ (b.T if flags["transB"] else b)
    padding, stride = problem.node.attributes["pads"][0], problem.node.attributes["strides"][0]
    x = np.pad(a, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    y = np.zeros(problem.output.sizes)
    for row, column in np.ndindex(y.shape[2:]):
        top, left = row * stride, column * stride
        patch = x[:, :, top : top + b.shape[2], left : left + b.shape[3]]
        y[:, :, row, column] = np.einsum("nchw,kchw->nk", patch, b)
    return y


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("problem", [GEMM, *OTHERS, CONV], ids=lambda problem: problem.name)
def test_the_native_call_computes_the_problem(framework: str, problem: Problem) -> None:
    """Against the definition's sums."""
    pytest.importorskip(framework)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(each.sizes) for each in problem.inputs if each is not None]
    made = class_named(framework).on("cpu")
    found = made.numbers(native(framework, problem)(*map(made.array, inputs)))
    np.testing.assert_allclose(found, by_definition(problem, *inputs), rtol=1e-10, atol=1e-12)


def test_only_what_has_a_native_call_can_be_compared() -> None:
    with pytest.raises(ConfigurationError, match="there is no native LSTM of torch"):
        native("torch", deepbench.recurrent("LSTM", 4, 2, 3))
    assert {kind for _, kind in NATIVES} == {"Gemm", "Conv"}


def work(*problems: Problem) -> OperatorTimes:
    return OperatorTimes("torch", problems, threads=1, seconds=0.01, seed=1)


def test_both_sides_are_timed_under_their_names(catalogue: None) -> None:
    found = work(GEMM)(0)
    assert set(found) == {(GEMM.name, "d5ray"), (GEMM.name, "native")}
    assert all(len(times.seconds) >= 5 and min(times.seconds) > 0 for times in found.values())


def test_sides_that_differ_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that adds a little: an error with the difference, no times."""
    monkeypatch.setattr(
        of_torch, "FACTORIES", {"Gemm": lambda context: lambda a, b: torch.mm(a.t(), b) + 0.1}
    )
    with pytest.raises(AgentError, match=r"d5ray and torch disagree, and nothing is measured: gemm 6×5×4 TN"):
        work(GEMM)(0)


def tables() -> dict[str, pa.Table]:
    """Six pairs of processes of growing slowness, in which ours takes 1.02 times as long and 3 µs more."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    recorder.declare(OPERATOR_TIME, "s")
    for pair in range(6):
        for problem, seconds, ours in ((GEMM, 1e-3, 1.02e-3), (CONV, 1e-4, 1.03e-4)):
            slow = 1 + pair if problem is GEMM else 1
            for side, value in (("native", seconds), ("d5ray", ours)):
                scope = f"torch[1] {problem.name} {side}"
                recorder.record(OPERATOR_TIME, slow * value, step=0, phase="run", scope=scope, rep=pair)
    recorder.flush()
    return {"samples": pa.Table.from_batches(batches)}


def test_ratio_and_added_time_are_those_of_pairs() -> None:
    """Whatever the speed of each process; an estimate without a pair says why."""
    run = tables()
    ratio = OperatorTimeRatio("torch[1]", GEMM.name).estimate(run)
    assert [ratio.value, ratio.low, ratio.high] == pytest.approx([1.02] * 3)
    added = AddedTime("torch[1]", CONV.name).estimate(run)
    assert [added.value, added.low, added.high] == pytest.approx([3e-6] * 3)
    assert ratio.n == added.n == 6
    assert AddedTime("torch[1]", "gemm 1×1×1 NN").estimate(run).value is None


def job(recipe: Any, **changes: Any) -> OperatorOverheads:
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, OperatorOverheads)
    return replace(made, **changes)


@pytest.mark.parametrize("recipe", [operator_overhead, operator_overhead_tensorflow])
def test_every_problem_of_a_recipe_is_judged_once(recipe: Any) -> None:
    """Short ones by the added time, long ones, of half a GFLOP or more, by the ratio; all are DeepBench's."""
    judged = {criterion.metric.problem: criterion.metric.name for criterion in recipe.METRICS}
    assert list(judged) == [problem.name for problem in job(recipe).problems]
    published = {each.origin for mode in deepbench.MODES for each in deepbench.problems(mode)}
    for problem in job(recipe).problems:
        long = problem.flops >= 4e8
        assert judged[problem.name] == ("operator_time_ratio" if long else "added_time")
        assert problem.origin in published


def test_a_process_of_its_own_measures_a_framework(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of both sides, the first value of each as warm-up."""
    from d5ray.recipes.engine.comparisons import processes  # noqa: PLC0415

    asked: list[OperatorTimes] = []

    def measured(work: OperatorTimes, *arguments: Any) -> list[Any]:
        asked.append(work)
        return [{(GEMM.name, "d5ray"): Times([1.0, 2.0], 3), (GEMM.name, "native"): Times([1.0], 3)}]

    monkeypatch.setattr(processes, "measured", measured)
    series = UnderFramework("torch").measure(job(operator_overhead, problems=(GEMM,)), tmp_path)
    assert asked[0].problems == (GEMM,)
    assert [(one.at, one.warmup, one.loops) for one in series] == [
        (f"{GEMM.name} d5ray", 1, 3),
        (f"{GEMM.name} native", 1, 3),
    ]


def test_wrong_problems_and_missing_frameworks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for problems in ((), (GEMM, GEMM), ("gemm",)):
        with pytest.raises(ConfigurationError, match="it must be a tuple such as"):
            job(operator_overhead, problems=problems)
    from importlib import util  # noqa: PLC0415

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    assert UnderFramework("tensorflow").missing().startswith("tensorflow is not installed: pip install")
