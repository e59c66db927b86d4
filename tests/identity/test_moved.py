"""Claims about modules and fields that moved: what is from before, hashes and runs too, means the same"""

import importlib.util
import json
import re
import shutil
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.archive import experiments
from d5ray.archive.serialized import Serialized, deserialized, serialized
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


POLICY = d5.faults.FaultPolicy("continue", 2, stuck_seconds=7.0)
JOINS = d5.faults.Elasticity(d5.faults.Late(2, 0.001), keep_batch="global")
KEEPS = d5.metrics.Recording(3, save_model_bytes=9)
PARTS: dict[str, Any] = {"faults": POLICY, "elastic": JOINS, "recording": KEEPS}
FORMER: dict[str, Any] = {  # each within its part now
    "on_failure": "restart", "min_agents": 2, "max_failures": 20, "stuck_seconds": 30.0,
    "heartbeat_seconds": 2.0, "orphans": "taken_over", "late": (d5.faults.Late(2, 5),),
    "keep_batch": "global", "scale_rate": "linear", "warmup_steps": 11, "monitor_seconds": 0,
    "mirror_seconds": 0, "save_model": "mean", "save_model_bytes": 10,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "model": "mlp", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1), "agents": 3,
    "distributed": d5.optimizers.ASGD(),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMER)
def test_a_field_within_a_part_means_the_same_by_every_spelling(name: str) -> None:
    """By its former name, which warns with the new one, in its part, and by name alone: one hash."""
    value, own = FORMER[name], {name: FORMER[name]}
    part, kind = next((part, type(each)) for part, each in PARTS.items() if hasattr(each, name))
    within = d5.Experiment(**PLAIN, **{part: kind(**own)})
    now = re.escape(f"is {part}={namespaces.shown(kind.__name__)}({name}={value!r}) now")
    with pytest.warns(DeprecationWarning, match=now) as warned:
        former = d5.Experiment(**PLAIN, **own)
    with pytest.warns(DeprecationWarning, match=now) as replaced:
        again = replace(d5.Experiment(**PLAIN), **own)
    with pytest.warns(DeprecationWarning, match=f"Experiment.{name} is {part}.{name} now"):
        assert getattr(former, name) == getattr(getattr(within, part), name) == value
    assert {each.filename for each in (*warned, *replaced)} == {__file__}
    alone = d5.Experiment.from_values(**PLAIN, **own)
    made = [within, former, again, alone, d5.Experiment(**PLAIN).with_values(**own)]
    assert {json.dumps(each.describe()) for each in made} == {json.dumps(within.describe())}
    assert {each.hash for each in made} == {within.hash} != {d5.Experiment(**PLAIN).hash}
    assert within.describe()[name] == canonical(value)


def test_a_value_replaces_one_of_its_part_and_is_refused_beside_the_part() -> None:
    """Also under its former name, and in a copy by `with_values`."""
    made = d5.Experiment(**PLAIN, **PARTS)
    with pytest.warns(DeprecationWarning, match="on_failure"):
        found = replace(made, **dict[str, Any](on_failure="restart"))
    restarting = PARTS | {"faults": replace(POLICY, on_failure="restart")}
    assert {name: getattr(found, name) for name in PARTS} == restarting
    assert made.with_values(on_failure="restart") == found != made
    given: dict[str, Any] = PLAIN | {"faults": POLICY, "on_failure": "stop", "min_agents": 2}
    both = r"^on_failure, min_agents is given beside faults: give faults alone, with on_failure, min_agents"
    for make in (d5.Experiment.from_values, made.with_values):
        with pytest.raises(ConfigurationError, match=both):
            make(**given)
    with pytest.warns(DeprecationWarning), pytest.raises(ConfigurationError, match=both):
        d5.Experiment(**given)


def test_what_was_kept_before_there_were_parts_is_read_without_a_warning() -> None:
    """A pickle's values and a run's JSON: the parts' fields stood among those of the experiment."""
    made = d5.Experiment(**PLAIN, **PARTS)
    own = {each.name: getattr(part, each.name) for part in PARTS.values() for each in fields(part)}
    state = made.__getstate__() | own
    found = object.__new__(d5.Experiment)
    found.__setstate__({name: each for name, each in state.items() if name not in (*PARTS, "_described")})
    assert found.hash == made.hash and {name: getattr(found, name) for name in PARTS} == PARTS
    assert not own.keys() & vars(found).keys()
    content = json.loads(serialized({"experiment": made}).text)
    values = content["parts"]["experiment"]["with"]
    for part in PARTS:
        values |= values.pop(part)["with"]
    assert deserialized(Serialized(json.dumps(content).encode(), None), "it") == {"experiment": made}


def test_a_simulation_is_the_same_by_former_names(tmp_path: Path) -> None:
    """A death, and an agent that comes late: to the last bit, and otherwise than if it had been there."""
    given = PLAIN | {"batch_size": 16, "seed": 3, "evaluate": False}
    own: dict[str, Any] = {"on_failure": "continue", "orphans": "taken_over", "late": d5.faults.Late(2, 0.02)}
    with pytest.warns(DeprecationWarning):
        former = d5.Experiment(**given, **own)
    policy, joins = d5.faults.FaultPolicy("continue", orphans="taken_over"), d5.faults.Elasticity(own["late"])
    now, ends = d5.Experiment(**given, faults=policy, elastic=joins), []
    for at, wanted in enumerate((former, now, now.with_values(late=()))):
        plan, compute = d5.Faults().kill(agent=1, at_step=4), d5.simulation.ConstantTime(0.01)
        with d5.simulate(wanted, compute=compute, faults=plan, root=tmp_path / str(at)) as group:
            group.train(20, progress=False)
            assert "agent_died" in group.tables()["events"]["name"].to_pylist()
            ends.append((group.seconds, group.agents[0].flat_parameters().tobytes()))
    assert ends[0] == ends[1] and ends[1][1] != ends[2][1]
