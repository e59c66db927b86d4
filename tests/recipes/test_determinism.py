"""Claims about --check-determinism: equal bits pass, and what differs is named with step, agent, operation"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.recipes.engine.recipe import Recipe
from d5ray.recipes.engine.repeats import determinism
from d5ray.recipes.engine.repeats.determinism import FirstDifference, Tried, first_difference
from tests.conftest import d5ray

RECIPE = """
import os
import d5ray as d5
import torch
from torch import nn

class Noisy(nn.Module):
    def forward(self, x):
        return x + {noise}

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), Noisy(), nn.Linear(8, 10))

FIXED = {{"model": model, "dataset": "digits", "epochs": 1}}
MUTABLE = {{"optimizer": d5.optimizers.Momentum(0.1, 0.9), "agents": 2, "batch_size": 100}}
METRICS = [d5.metrics.TestAccuracy() >= 0.0]
"""
SAME = {0: {"w": "a", "b": "b"}, 1: {"w": "a", "b": "b"}}


# -- bits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "hashes", "expected"),
    [
        ({}, {}, None),
        ({(1, 1): math.nextafter(0.5, 1)}, {}, FirstDifference(1, 1, (0.5, math.nextafter(0.5, 1)), ())),
        ({(1, 0): -0.0, (0, 1): 0.25}, {}, FirstDifference(0, 1, (0.5, 0.25), ())),
        ({}, {1: {"w": "other", "b": "b"}}, FirstDifference(2, 1, None, ("w",))),
        ({(2, 0): None}, {}, FirstDifference(2, 0, None, ())),
    ],
)
def test_the_first_difference(losses: Any, hashes: Any, expected: FirstDifference | None) -> None:
    """Of three steps and two agents: one unit in the last place, the earliest step, the last update."""
    base = {(step, rank): 0.5 for step in range(3) for rank in range(2)}
    other = {key: value for key, value in (base | losses).items() if value is not None}
    assert first_difference(Tried(base, SAME), Tried(other, SAME | hashes), 3) == expected


def test_bits_are_compared_not_numbers() -> None:
    """NaN equals itself here, and 0.0 does not equal -0.0."""
    nan = Tried({(0, 0): math.nan}, {})
    assert first_difference(nan, Tried({(0, 0): math.nan}, {}), 1) is None
    assert first_difference(Tried({(0, 0): 0.0}, {}), Tried({(0, 0): -0.0}, {}), 1) is not None


# -- what it does not apply to --------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    name: str = ""


@pytest.mark.parametrize(
    ("fixed", "steps", "words"),
    [
        (
            {
                "model": "mlp",
                "dataset": "digits",
                "optimizer": d5.optimizers.SGD(0.1),
                "distributed": d5.optimizers.ADPSGD(),
            },
            5,
            r"ADPSGD\(.*\) do not wait for each other.*does not apply.*d5ray replay RUN.*simulate",
        ),
        ({"job": Sweep}, 5, "runs a Sweep, which is no training"),
        ({"model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1)}, 0, "at least 1"),
    ],
)
def test_where_it_does_not_apply(
    fixed: dict[str, Any], steps: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says so, and what to do instead; nothing is started."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=words):
        determinism.check(Recipe.of(fixed, {}, [], name="x"), steps, address=None, quiet=True)
    assert not list(tmp_path.iterdir())


def test_it_excludes_seeds() -> None:
    done = d5ray("run", "digits_lenet", "--seeds", "2", "--check-determinism", "3")
    assert (done.code, "exclude each other" in done.err) == (3, True)


# -- on agents ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_repeats_passes(tmp_path: Path) -> None:
    """Dropout-like noise from PyTorch's seeded generator: four steps of two agents, exit code 0."""
    file = tmp_path / "same.py"
    file.write_text(RECIPE.format(noise="torch.rand(1)"))
    done = d5ray("run", str(file), "--check-determinism", "4", "--json")
    assert done.code == 0, done.err
    (criterion,) = done.json["criteria"]
    assert (criterion["metric"], criterion["value"], criterion["target"]) == ("deterministic_steps", 4, 4)
    assert done.json["detail"]["difference"] is None
    first, second = done.json["runs"]
    assert first["parameters_sha256"] == second["parameters_sha256"]
    assert not done.left()


@pytest.mark.slow
def test_a_model_that_does_not_repeat_fails_with_the_operation_named(tmp_path: Path) -> None:
    """Noise of the operating system in one layer: step 0, the agent, and that layer; shown again later."""
    file = tmp_path / "noisy.py"
    file.write_text(RECIPE.format(noise='int.from_bytes(os.urandom(4), "little") / 2**32'))
    done = d5ray("run", str(file), "--check-determinism", "3")
    assert done.code == 1, done.err
    shown = " ".join(done.out.split())  # lines are broken where they end
    assert "at step 0 the loss of TrainingAgent(rank=0) is" in shown
    assert "output of 2 (Noisy) differs first, at step 0" in shown
    found = d5ray("show", "noisy-determinism", "--json").json
    assert found["detail"]["found"]["what"] == "output of 2 (Noisy)"
    assert found["detail"]["difference"]["parameters"]
    assert found["verdict"] == "FAIL"
    assert len(found["runs"]) == 4
    assert d5ray("check", "noisy-determinism").code == 0
    assert not done.left()
