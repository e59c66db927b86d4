"""Claims about timing executors beside models written by hand: both sides do the same work, in turn"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.executor_overhead import recipe as executor_overhead
from benchmarks.executor_overhead.job import ExecutorOverheads, HandWrittenNetwork
from benchmarks.executor_overhead.metrics import EXECUTOR_TIME, ExecutorTimeRatio
from benchmarks.executor_overhead.worker import ExecutorTimes
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.record.recorder import Recorder
from d5ray.recipes.engine.recipe import Recipe

SMALL: Mapping[str, dict[str, Any]] = {
    "lenet": {"sample_shape": (2, 12, 8), "classes": 5},
    "resnet18": {"sample_shape": (3, 32, 32), "classes": 5},
    "transformer": {
        "sample_shape": (6,),
        "classes": 11,
        "options": {"width": 12, "heads": 3, "depth": 2},
    },
}


def work(framework: str, network: str) -> ExecutorTimes:
    """A small one, for a moment."""
    pytest.importorskip(framework)
    batch_size = 16 if network == "resnet18" else 3  # of few samples the last statistics are ill-conditioned
    of = HandWrittenNetwork(framework, network, batch_size=batch_size, **SMALL[network])
    return ExecutorTimes(of, threads=1, seconds=0.01, seed=1)


@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.slow)])
@pytest.mark.parametrize("network", SMALL)
def test_both_sides_compute_the_same(framework: str, network: str) -> None:
    """Scores, loss and gradients: what the recipe checks before it counts. They are not all zero."""
    made = work(framework, network)
    sides = made.sides()
    made.check(sides)
    for side in sides.values():
        assert np.abs(side.infer()).max() > 1e-3
        assert np.isclose(side.train(), np.log(made.of.classes), rtol=0.5)
        assert max(np.abs(each).max() for each in side.gradients()) > 1e-3


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
def test_sides_that_differ_are_not_measured(framework: str) -> None:
    """Another batch for one of them: an error with the difference."""
    made = work(framework, "lenet")
    sides = made.sides()
    other = replace(made, seed=2).sides()
    with pytest.raises(AgentError, match=rf"the lenet .* for {framework} disagree.*: scores"):
        made.check({"d5ray": sides["d5ray"], "by hand": other["by hand"]})


def test_resnet18_has_its_parameters() -> None:
    """11,689,512 for 1,000 classes (as torchvision's); of 5 classes 995 rows of 513 fewer."""
    made = work("torch", "resnet18")
    side = made.sides()["by hand"]
    side.train()
    assert sum(each.size for each in side.gradients()) == 11_689_512 - 995 * 513


def test_both_passes_are_timed_under_the_names_of_the_sides() -> None:
    found = work("torch", "lenet")(0)
    assert set(found) == {(each, side) for each in ("inference", "training") for side in ("d5ray", "by hand")}
    assert all(len(times.seconds) >= 5 and min(times.seconds) > 0 for times in found.values())


def test_the_ratio_is_that_of_the_sides() -> None:
    """1.02, whatever the speed of each process; without rows there is none, and the reason says so."""
    batches: list[pa.RecordBatch] = []
    recorder = Recorder(run_id="r", agent="a", rank=0, node="n", send=batches.append)
    recorder.declare(EXECUTOR_TIME, "s")
    for pair in range(6):
        for side, seconds in (("d5ray", 1.02), ("by hand", 1.0)):
            scope = f"torch lenet[1] training {side}"
            recorder.record(EXECUTOR_TIME, seconds * (1 + pair), step=0, phase="run", scope=scope, rep=pair)
    recorder.flush()
    run = {"samples": pa.Table.from_batches(batches)}
    found = ExecutorTimeRatio("torch lenet[1]", "training").estimate(run)
    assert [found.value, found.low, found.high] == pytest.approx([1.02] * 3)
    assert ExecutorTimeRatio("torch lenet[1]", "inference").estimate(run).value is None


def job(recipe: Any, **changes: Any) -> ExecutorOverheads:
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, ExecutorOverheads)
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("framework", "goal", "hash_of_before"),
    [
        ("torch", 1.01, "4b2fdaf580245c8b0ceeb9e0b304d39237a9f08b3b23da3ce5a6a3b2d2af85a4"),
        ("tensorflow", 1.03, "4eae14da9f3c23bfeb37030536a69b5375b5a7c05514275a248cfe5a713e099b"),
    ],
)
def test_every_network_of_the_recipe_is_judged_in_both_passes(
    framework: str, goal: float, hash_of_before: str
) -> None:
    """Of either framework, by one word; comparable with what was measured when each had a recipe."""
    text = Path(executor_overhead.__file__).read_text(encoding="utf-8")
    recipe = ModuleType("edited")
    exec(text.replace('FRAMEWORK: Final = "torch"', f'FRAMEWORK: Final = "{framework}"'), recipe.__dict__)
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x")
    assert made.fixed_hash == hash_of_before
    assert {each.target for each in recipe.METRICS} == {goal}
    judged = [(each.metric.contender, each.metric.work) for each in recipe.METRICS]
    names = [contender.name for contender in job(recipe).contenders()]
    assert judged == [(name, each) for name in names for each in ("inference", "training")]


@pytest.mark.slow
def test_a_process_of_its_own_measures_a_network(tmp_path: Path) -> None:
    """Rows of both passes and sides, the first value of each as warm-up."""
    contender = HandWrittenNetwork("torch", "lenet", batch_size=3, **SMALL["lenet"])
    series = contender.measure(job(executor_overhead, seconds=0.01), tmp_path)
    assert {(one.metric, one.at) for one in series} == {
        (EXECUTOR_TIME, f"{each} {side}")
        for each in ("inference", "training")
        for side in ("d5ray", "by hand")
    }
    assert all(one.warmup == 1 and len(one.values) >= 5 for one in series)


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that nobody wrote by hand, a framework that is not there, and wrong amounts."""
    of = HandWrittenNetwork("torch", "resnet8", (3, 8, 8), classes=5, batch_size=3)
    with pytest.raises(ConfigurationError, match=r"no 'resnet8' is written by hand: .*resnet18"):
        ExecutorTimes(of, threads=1, seconds=0.01, seed=1)(0)
    with pytest.raises(ConfigurationError, match="seconds"):
        job(executor_overhead, seconds=0)
    from importlib import util  # noqa: PLC0415

    monkeypatch.setattr(util, "find_spec", lambda name: None)
    missing = HandWrittenNetwork("tensorflow", "lenet", (1, 8, 8), classes=5, batch_size=3).missing()
    assert missing.startswith("tensorflow is not installed: pip install")
