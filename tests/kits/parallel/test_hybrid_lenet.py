"""Claims about the recipe that divides layers and the batch: what must travel, and that it passes"""

from pathlib import Path

import pytest

import d5ray as d5
from d5ray.frameworks.initial_values import network_by_name
from d5ray.recipes import hybrid_lenet
from d5ray.recipes.engine.recipe import Recipe
from d5ray.training.datasets.catalogue import load_dataset

PARTS = (hybrid_lenet.FIXED, hybrid_lenet.MUTABLE, hybrid_lenet.METRICS)


def test_the_hybrid_is_held_to_half_of_what_data_parallel_agents_send() -> None:
    """An allreduce of two sends as many bytes as there are in the parameters."""
    experiment = Recipe.of(*PARTS, name="x").made()
    network = network_by_name("lenet", dict(experiment.model_kwargs), (1, 8, 8), 10, seed=1)
    size = sum(value.nbytes for value in network.parameters.values())
    connected = sum(value.nbytes for value in network.parameters.values() if value.ndim == 2)
    assert connected / size > 0.97
    steps = -(-len(load_dataset("digits").train) // experiment.batch_size) * experiment.epochs
    assert steps * size == hybrid_lenet.DATA_PARALLEL_BYTES
    assert experiment.agents == experiment.mesh.parts == 2


@pytest.mark.slow
def test_the_hybrid_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its recipe as it is, on Ray, odd batches and all."""
    monkeypatch.setenv("D5RAY_HOME", str(tmp_path))
    try:
        result = d5.run_recipe(*PARTS, name="hybrid_lenet", quiet=True)
    finally:
        d5.shutdown()
    assert result.verdict == "PASS"
