"""Claims about campaigns of faults on agents that train one model: a file of its own, it takes minutes"""

from pathlib import Path

import pytest

from d5ray.recipes.engine.chaos.trials import VICTIMS
from tests.conftest import Head
from tests.recipes.test_chaos import RECIPE, TRIAL_SECONDS, WITHOUT_CHECKPOINTS, endure


@pytest.mark.full
@pytest.mark.timeout(41 * TRIAL_SECONDS)
def test_forty_trials_of_one_model_end_as_promised(tmp_path: Path, head: Head) -> None:
    """Of agents, aggregator and driver, at a cluster that they share."""
    endure(tmp_path, RECIPE, 40, head.address)


@pytest.mark.slow
@pytest.mark.timeout(76 * TRIAL_SECONDS)
@pytest.mark.parametrize(
    ("rule", "communicator"),
    [
        ("AllreduceSGD", "shared_memory"),
        ("AllreduceSGD", "gloo"),
        ("DPSGD", "shared_memory"),
        ("ADPSGD", "gloo"),
    ],
)
def test_three_hundred_trials_without_servers_end_as_promised(
    rule: str, communicator: str, tmp_path: Path
) -> None:
    """Each with an embedded Ray of its own, whose processes are victims, too; 75 of each pair."""
    recipe = WITHOUT_CHECKPOINTS if rule == "ADPSGD" else RECIPE
    settings = {"distributed": rule, "communicator": communicator}
    endure(tmp_path, recipe, 75, None, victims=VICTIMS, settings=settings)
