"""A batch that is larger than the data set is refused where its size is known: at once, or at the start"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.training.datasets.catalogue import load_dataset, training_samples
from tests.beside_kits import needs_kit
from tests.wrong_inputs.calls import data, parquet

KNOWN: dict[str, tuple[dict[str, Any], int]] = {  # data sets whose size is known without loading
    "a data set": ({"dataset": data()}, 16),
    "digits": ({"dataset": "digits"}, 1438),
    "half of the digits": ({"dataset": "digits", "dataset_kwargs": {"test_fraction": 0.5}}, 899),
    "made up": ({"dataset": "synthetic", "dataset_kwargs": {"samples": 40}}, 40),
    "made up, as it is": ({"dataset": "synthetic"}, 10_000),
    "a sampler that takes fewer": (
        {"dataset": data(), "train_sampler": d5.samplers.ChoiceSampler(samples=10)},
        10,
    ),
}


def experiment(**values: Any) -> d5.Experiment:
    return d5.Experiment(**{"model": "mlp", "optimizer": d5.optimizers.SGD(0.1), "agents": 2, **values})


@pytest.mark.parametrize("name", KNOWN)
def test_one_sample_more_than_an_epoch_has_is_refused_with_the_experiment(name: str) -> None:
    values, samples = KNOWN[name]
    assert experiment(batch_size=samples, **values).batch_size == samples
    with pytest.raises(ConfigurationError, match=rf"batch_size is {samples + 1}.* {samples} .*at most"):
        experiment(batch_size=samples + 1, **values)
    with pytest.raises(ConfigurationError, match=f"take batch_size={samples} at most"):
        experiment(batch_size=d5.schedules.Piecewise(samples + 1, {3: 2}), **values)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("digits", {}),
        ("digits", {"test_fraction": 0.3}),
        ("synthetic", {"samples": 12}),
        pytest.param("shapes", {"samples": 5, "test_samples": 1}, marks=needs_kit("workloads")),
        pytest.param("clicks", {"samples": 50, "test_samples": 5}, marks=needs_kit("workloads")),
        pytest.param("keywords", {"samples": 12, "test_samples": 12}, marks=needs_kit("workloads")),
    ],
)
def test_the_size_that_is_known_is_that_of_the_data(name: str, options: dict[str, Any]) -> None:
    assert training_samples(name, options) == len(load_dataset(name, **options).train)


@pytest.mark.parametrize("begin", [d5.simulate, d5.launch])
def test_what_only_the_files_tell_is_refused_at_the_start(begin: Any, tmp_path: Path) -> None:
    """A Parquet data set of three rows, simulated and on agents: no folder of a run is left."""
    rows = parquet(tmp_path)
    files = {
        "train": str(rows / "train"), "test": str(rows / "test"), "inputs": "x", "labels": "label",
    }  # fmt: skip
    wanted = experiment(dataset="parquet", dataset_kwargs=files, batch_size=4, agents=1)
    with pytest.raises(ConfigurationError, match=r"batch_size is 4, but an epoch has 3 samples"):
        begin(wanted, root=tmp_path / "runs")
    assert not list((tmp_path / "runs").iterdir())


def test_a_recipe_is_refused_before_it_runs() -> None:
    with pytest.raises(ConfigurationError, match=r"batch_size is 2000, but an epoch has 1438"):
        d5.run_recipe(
            {"model": "mlp", "dataset": "digits"},
            {"optimizer": d5.optimizers.SGD(0.1), "batch_size": 2000},
            [d5.metrics.TestAccuracy() >= 0.5],
        )


def test_agents_share_what_there_is_less_than_their_batches_together() -> None:
    """Two batches of 10 and 16 samples: one step of 8 and 8, as of any last step of an epoch."""
    with d5.simulate(experiment(dataset=data(), batch_size=10)) as group:
        outcome = group.train(epochs=1, progress=False)
        assert outcome.step == 1
        rows = group.metrics().to_pylist()
    assert np.isfinite([row["value"] for row in rows if row["metric"] == "loss"]).all()
