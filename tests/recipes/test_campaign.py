"""Claims about campaigns of faults on agents that train one model: a file of its own, it takes minutes"""

from pathlib import Path

import pytest

from d5ray.recipes.engine.chaos.trials import VICTIMS
from tests.conftest import Head
from tests.recipes.test_chaos import RECIPE, TRIAL_SECONDS, endure


@pytest.mark.full
@pytest.mark.timeout(41 * TRIAL_SECONDS)
def test_forty_trials_of_one_model_end_as_promised(tmp_path: Path, head: Head) -> None:
    """Of agents, aggregator and driver, at a cluster that they share."""
    endure(tmp_path, RECIPE, 40, head.address)


@pytest.mark.slow
@pytest.mark.timeout(301 * TRIAL_SECONDS)
def test_three_hundred_trials_of_one_model_end_as_promised(tmp_path: Path) -> None:
    """Each with an embedded Ray of its own, whose processes are victims, too."""
    endure(tmp_path, RECIPE, 300, None, victims=VICTIMS)
