"""Wrong arguments of everything that d5ray exports: one clear error at once, or a value that works"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical
from d5ray.names import namespaces
from tests.beside_kits import cases_of, public_names
from tests.cases import of_this_week
from tests.wrong_inputs.calls import NOT_CALLED, experiment, valid_calls
from tests.wrong_inputs.trying import Case, all_cases, tried

PARTS = 8  # of all cases, so that a run that is interrupted goes on behind the last


def in_words(cases: list[Case], folder: Path) -> list[str]:
    """What became of these inputs, where that is not right."""
    became = list(tried(cases, folder))
    assert len(became) == len(cases)
    assert {each.what for each in became} >= {"accepted", "refused"}
    return [str(each) for each in became if not each.right]


@pytest.mark.full
@pytest.mark.timeout(600)
def test_wrong_arguments_of_this_week_are_refused_or_work(tmp_path: Path) -> None:
    """Each in at most 5 s and 1 GiB: a D5Error, or what can be described and trained with.

    A `TypeError` is right for an argument that is missing or unknown, as of every function of Python.
    """
    assert in_words(of_this_week("wrong arguments").sample(all_cases(tmp_path), 300), tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(6000)
@pytest.mark.parametrize("part", range(PARTS))
def test_all_wrong_arguments_are_refused_or_work(tmp_path: Path, part: int) -> None:
    """About 17,000."""
    assert in_words(all_cases(tmp_path)[part::PARTS], tmp_path) == []


def test_every_public_name_is_called_or_left_out_for_a_reason(tmp_path: Path) -> None:
    called = valid_calls(tmp_path).keys()
    left_out = set[str]().union(*NOT_CALLED.values())
    assert called & left_out == set()
    abstract = {
        name
        for name in public_names()
        if getattr(namespaces.public(name), "__abstractmethods__", ()) and name not in left_out
    }
    assert set(public_names()) - called - left_out == abstract


WHERE_SAID: dict[str, Callable[[], object]] = {
    "late": lambda: d5.faults.Late(agent=-1, seconds=5),
    "slow": lambda: d5.faults.Slowdown(agent=-1, factor=2),
    "device": lambda: d5.GPUDevice(-1),
    "option of a data set": lambda: d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.1), dataset_kwargs={"nose": 1}
    ),
    "seed": lambda: experiment(seed=2**200),
    "threads": lambda: experiment(threads=10**9),
    "agents": lambda: experiment(agents=10**12),
    "ring": lambda: d5.topologies.Ring(10**12),
    **dict(cases_of("parallel", lambda: [("mesh", lambda: d5.Mesh(10**9, 10**9))])),
}


@pytest.mark.parametrize("name", WHERE_SAID)
def test_what_cannot_be_is_refused_where_it_is_said(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"-1|nose|1000000|2\*\*|16069"):
        WHERE_SAID[name]()


@pytest.mark.parametrize("parameter", ["seed", "batch_size", "agents", "threads", "epochs", "prefetch"])
def test_booleans_are_no_numbers(parameter: str) -> None:
    with pytest.raises(ConfigurationError, match="True"):
        experiment(**{parameter: True})


def test_numbers_of_numpy_mean_what_those_of_python_do() -> None:
    """In checks, in descriptions, and in hashes."""
    of_numpy = experiment(
        seed=np.int64(3),
        batch_size=np.int32(4),
        agents=np.uint8(2),
        optimizer=d5.optimizers.SGD(np.float64(0.1)),
    )
    assert of_numpy == experiment(seed=3, batch_size=4, agents=2, optimizer=d5.optimizers.SGD(0.1))
    assert canonical([np.float32(0.5), np.bool_(True), np.int8(-3)]) == [0.5, True, -3]
