"""Claims about timing custom operators beside PyTorch's: both compute the same, all are timed in turn"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.custom_overhead import recipe as recipe
from benchmarks.custom_overhead import worker as custom_times
from benchmarks.custom_overhead.job import CustomOperator, CustomOverheads
from benchmarks.custom_overhead.passes import BOTH, FORWARD
from benchmarks.custom_overhead.worker import CustomTimes
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.definitions.operator_calls import OPERATOR_TIME
from d5ray.operators.custom.cpp import compilers
from d5ray.recipes.engine.recipe import Recipe

languages = pytest.mark.parametrize("language", ["Python", "C++"])


def work(language: str, elements: int = 5) -> CustomTimes:
    return CustomTimes(language, elements, threads=1, seconds=0.01, seed=1)


@languages
def test_both_passes_are_timed_under_the_names_of_the_sides(language: str) -> None:
    found = work(language)(0)
    assert set(found) == {(what, side) for what in (FORWARD, BOTH) for side in ("d5ray", "native")}
    assert all(len(times.seconds) >= 5 and min(times.seconds) > 0 for times in found.values())


@pytest.mark.full
@languages
@pytest.mark.parametrize("wrong", ["forward", "backward"])
def test_an_operator_that_computes_something_else_is_not_measured(
    language: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In either pass."""
    words = "differ forward:" if wrong == "forward" else "differ forward and backward:"
    if language == "Python":
        right = getattr(custom_times.Cube, wrong)
        monkeypatch.setattr(custom_times.Cube, wrong, lambda *given: 1.001 * right(*given))
    else:
        part = "output[i] = " if wrong == "forward" else "input_grad[i] = "
        monkeypatch.setattr(custom_times, "CODE", custom_times.CODE.replace(part, f"{part}T(1.001) * "))
    with pytest.raises(AgentError, match=words):
        work(language)(0)


METRICS: list[Any] = [each.metric for each in recipe.METRICS]


def job(**changes: Any) -> CustomOverheads:
    made = Recipe.of(recipe.FIXED, recipe.MUTABLE, recipe.METRICS, name="x").made()
    assert isinstance(made, CustomOverheads)
    return replace(made, **changes)


def test_every_language_is_judged_in_both_passes() -> None:
    judged = {(each.contender, each.problem) for each in METRICS}
    names = [contender.name for contender in job().contenders()]
    assert judged == {(name, what) for name in names for what in (FORWARD, BOTH)}
    assert len(judged) == len(METRICS)


@pytest.mark.slow
def test_a_process_of_its_own_measures_a_language(tmp_path: Path) -> None:
    """Rows that the criteria find, the first value of each series as warm-up."""
    series = CustomOperator("Python").measure(job(seconds=0.01), tmp_path)
    scopes = {f"custom Python[1] {one.at}" for one in series}
    assert scopes >= set(METRICS[0].sides())
    assert all((one.metric, one.warmup) == (OPERATOR_TIME, 1) for one in series)


def test_what_cannot_be_measured_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ({"elements": 0}, {"seconds": 0.0}, {"threads": 0}):
        with pytest.raises(ConfigurationError, match=next(iter(wrong))):
            job(**wrong)

    def none() -> None:
        raise ConfigurationError("no compiler: apt install g++")

    monkeypatch.setattr(compilers, "find", none)
    assert CustomOperator("C++").missing() == "no compiler: apt install g++"
    assert not CustomOperator("Python").missing()
