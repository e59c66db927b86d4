"""Claims about modules that moved: hashes, pickles, runs and checkpoints from before mean the same"""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import d5ray as d5
from d5ray.archive import experiments
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import canonical
from d5ray.identity.moved import first_name, moved, name_now, unpickled
from d5ray.names import namespaces
from tests.beside_kits import is_there
from tests.checked import assert_breaks
from tests.conftest import REPOSITORY

NAMES: dict[str, str] = json.loads((Path(__file__).parent / "first_names.json").read_text())
(EARLIER,) = (REPOSITORY / "tests" / "archive" / "earlier_run").iterdir()  # simulated before any module moved


@pytest.fixture
def run(tmp_path: Path) -> d5.Run:
    shutil.copytree(EARLIER, tmp_path / EARLIER.name)
    return d5.Run.find(str(tmp_path / EARLIER.name))


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_hashed_as_before_it_moved(name: str) -> None:
    """What descriptions and hashes of the first runs say of it."""
    assert canonical(namespaces.public(name)) == NAMES[name]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_found_where_it_was(name: str) -> None:
    """A pickle from before names its first module, and gives what is public today."""
    module, _, attribute = NAMES[name].rpartition(".")
    assert unpickled(f"c{module}\n{attribute}\n.".encode()) is namespaces.public(name)


def test_the_table_is_of_what_is_there() -> None:
    """Each module and each name once, and none of those that moved stands where it stood."""
    table = moved()
    for module, colon, name in (now.partition(":") for now in table.values() if is_there(now)):
        assert hasattr(importlib.import_module(module), name) if colon else importlib.util.find_spec(module)
    for module, colon, name in (first.partition(":") for first in table if is_there(name_now(first))):
        there = bool(colon) and importlib.util.find_spec(name_now(module))  # all of its names may have moved
        assert not there or not hasattr(importlib.import_module(name_now(module)), name)
    assert len(set(table.values())) == len(table) > 300
    assert all(first_name(now) == first and name_now(first) == now for first, now in table.items())
    assert first_name("d5ray.errors") == name_now("d5ray.errors") == "d5ray.errors"


def test_the_experiment_of_an_earlier_run_is_read(run: d5.Run) -> None:
    """A pickle, since its rule is its user's own; it says of itself what the run's row says."""
    with pytest.raises(ConfigurationError, match="--trust"):
        experiments.read(run)
    found = experiments.read(run, trust=True)
    assert found is not None
    assert json.dumps(found.experiment.describe(), sort_keys=True) == run.row["experiment"]
    assert found.experiment.topology == d5.topologies.Ring(2)


def test_the_folder_of_an_earlier_run_keeps_the_rules(run: d5.Run) -> None:
    """All but one, which is of recipes: the run was none's."""
    assert_breaks(run)
    assert run.tables()["samples"].num_rows == run.row["rows"]


def test_a_training_goes_on_from_an_earlier_checkpoint(run: d5.Run, tmp_path: Path) -> None:
    """As one that was never interrupted; in float32, whose sums may differ by the processor."""
    found = experiments.read(run, trust=True)
    assert found is not None
    ends = []
    for resume, steps in ((None, 8), (run.folder / "checkpoints" / "step-00000004", 4)):
        with d5.simulate(found.experiment, root=tmp_path / str(steps), resume=resume) as group:
            group.train(steps=steps)
            ends.append(group.agents[0].flat_parameters().copy())
    whole, resumed = ends
    assert np.allclose(whole, resumed, rtol=1e-4, atol=1e-5)
    assert not np.allclose(whole, 0)
