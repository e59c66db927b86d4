"""A batch that is larger than the data set is refused where its size is known: at once, or at the start"""

from pathlib import Path
from typing import Any

import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
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
