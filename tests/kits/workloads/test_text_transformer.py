"""Claims about the recipe of the transformer: it learns text, any text, and is judged in bits a byte"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.recipes import text_transformer
from d5ray.recipes.engine.recipe import Recipe
from tests.recipes.fixed_data import with_data


def recipe(overrides: dict[str, Any] | None = None, **fixed: Any) -> Recipe:
    """The recipe with overrides, and, to be short, with other fixed values."""
    known, others = with_data(text_transformer.FIXED, overrides)
    return Recipe.of(
        known | fixed, text_transformer.MUTABLE, text_transformer.METRICS,
        name="text_transformer", overrides=others,
    )  # fmt: skip


@pytest.mark.full
def test_a_short_run_learns_more_than_how_frequent_each_byte_is(tmp_path: Path) -> None:
    """Two simulated agents, 500 lines of sums: below the entropy of single bytes, the same every time."""
    rng = np.random.default_rng(1)
    pairs = rng.integers(0, 10, (500, 2))
    text = "".join(f"{a} + {b} = {a + b}\n" for a, b in pairs)
    (tmp_path / "sums.txt").write_text(text)
    counts = np.unique(list(text), return_counts=True)[1] / len(text)
    entropy = -float((counts * np.log(counts)).sum())
    short = recipe(
        {"dataset": "text", "dataset.paths": str(tmp_path / "sums.txt"), "dataset.length": 24,
         "batch_size": 8, "optimizer": "AdamW(0.01)"},
        epochs=6, model_kwargs={"width": 16, "heads": 2, "depth": 1},
    ).made()  # fmt: skip
    assert isinstance(short, Experiment)
    losses = []
    for _ in range(2):
        with d5.simulate(short, root=tmp_path) as group:
            group.train(progress=False)
            found = d5.metrics.TestLoss().estimate(group.tables())
            bits = d5.metrics.BitsPerByte().estimate(group.tables())
        losses.append(found.value)
    assert losses[0] == losses[1] and losses[0] is not None
    assert losses[0] < 0.75 * entropy < math.log(256)
    assert bits.exact and bits.value == losses[0] / math.log(2)


def test_it_runs_anywhere_as_it_stands() -> None:
    """The text comes with Python, the schedule ends with the run, and the criterion has its direction."""
    made = recipe().made()
    assert isinstance(made, Experiment)
    data = made.load_dataset()
    assert data.sample_shape == (64,) and len(data.classes) == 256
    (schedule,) = made.optimizer.schedules
    assert 0 < schedule.value(made.epochs - 1) < 0.1 * schedule.value(1)
    assert str(text_transformer.METRICS[0]).startswith("BitsPerByte() <=")


def test_another_text_is_set_by_its_paths_and_the_network_is_fixed(tmp_path: Path) -> None:
    made = recipe({"dataset": "text", "dataset.paths": "books/*.txt", "dataset.length": 32}).made()
    assert made.dataset_kwargs == {"paths": "books/*.txt", "length": 32}
    with pytest.raises(ConfigurationError, match="'model' is FIXED"):
        recipe({"model.width": 128})
