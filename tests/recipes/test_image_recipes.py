"""Claims about the recipes of the slides: as they stand they are whole, and in reduced form they learn"""

import warnings
from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.errors import DataError
from d5ray.experiment import Experiment
from d5ray.recipes import cifar10_resnet44, imagenet_resnet50
from d5ray.recipes.engine.recipe import Recipe


def made(module: Any, fixed: dict[str, Any], mutable: dict[str, Any]) -> Experiment:
    """The recipe with other values, to be short."""
    recipe = Recipe.of(module.FIXED | fixed, module.MUTABLE | mutable, module.METRICS, name="short")
    experiment = recipe.made()
    assert isinstance(experiment, Experiment)
    return experiment


@pytest.mark.parametrize("module", [cifar10_resnet44, imagenet_resnet50])
def test_as_it_stands_every_planned_change_comes(module: Any) -> None:
    """Unlike in the original, whose rate falls at epochs that its run never reaches."""
    experiment = made(module, {}, {})
    changes = [time for schedule in experiment.optimizer.schedules for time in schedule.changes]
    assert changes and max(changes) < experiment.epochs
    assert str(module.METRICS[0][0]) and 0.5 < module.METRICS[0][1] < 1


@pytest.mark.parametrize(
    ("module", "words"),
    [(cifar10_resnet44, "cifar10.*download"), (imagenet_resnet50, "imagenet.*train/ and val/")],
)
def test_without_the_data_it_says_what_is_missing_and_where(
    module: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("D5RAY_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"(?s){words}"):
        made(module, {}, {}).load_dataset()


@pytest.mark.full
def test_cifar_in_reduced_form_learns() -> None:
    """Made-up images in colour, a narrow ResNet-8, eight epochs, everything else as it stands."""
    experiment = made(
        cifar10_resnet44,
        {"dataset": "synthetic", "epochs": 8, "model_kwargs": {"depth": 8, "width": 4},
         "dataset_kwargs": {"shape": (3, 16, 16), "classes": 4, "samples": 320, "noise": 0.5}},
        {
            "agents": 2, "batch_size": 16,
            "transformations": (
                d5.transformations.Crop(16, padding=1), d5.transformations.Normalize(0.0, 1.0)
            )
        },
    )  # fmt: skip
    with warnings.catch_warnings(), d5.simulate(experiment) as group:
        warnings.simplefilter("ignore", UserWarning)  # eight epochs do not reach the 82nd
        group.train(progress=False)
        accuracy = d5.metrics.TestAccuracy().estimate(group.tables()).value
    assert accuracy is not None and accuracy > 0.9  # a quarter is guessing


def test_a_run_too_short_for_its_schedule_says_so() -> None:
    short = made(
        cifar10_resnet44,
        {"dataset": "synthetic", "epochs": 90, "model_kwargs": {"depth": 8, "width": 1},
         "dataset_kwargs": {"shape": (3, 8, 8), "classes": 2, "samples": 2}},
        {"transformations": (), "batch_size": 2},
    )  # fmt: skip
    with (
        pytest.warns(UserWarning, match=r"plans something at epoch 123, but the run ends after 90 epochs"),
        d5.simulate(short) as group,
    ):
        group.train(progress=False)
