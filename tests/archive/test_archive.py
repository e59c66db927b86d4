"""Claims about the experiment that a run keeps: it comes back as it was, and nobody's code runs unasked"""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
from torch import nn

import d5ray as d5
from d5ray.archive import experiments
from d5ray.archive.experiments import Archived, SimulationSettings
from d5ray.archive.serialized import Serialized, deserialized, serialized
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.artifacts import ARRAYS, EXPERIMENT, PICKLED, keep_parameters, sha256_of
from d5ray.metrics.record.own_experiments import is_made_here
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.store import RunWriter
from tests.beside_kits import cases_of, needs_kit
from tests.conftest import d5ray
from tests.distributed.every_optimizer import EVERY, SERVERED

DIGITS = d5.datasets.load_dataset("digits")
NUMBERS = np.random.default_rng(5)


class Own(d5.DistributedOptimizer):
    """A rule of the user's own, by which agents do not meet."""

    one_model = False

    def step(self, batch: d5.Batch) -> None:
        self.apply(self.gradient(batch))


def experiment(**changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": "mlp",
        "dataset": "digits",
        "optimizer": d5.optimizers.SGD(0.1),
        "seed": 3,
        "warmup_steps": 0,
    }
    if changes.get("dataset") is not None:
        values["batch_size"] = 10
    return d5.Experiment.from_values(**(values | changes))


def meshes() -> dict[str, d5.Experiment]:
    stages = d5.Mesh(2, stages=2, cut=d5.pipelines.Balanced(2), schedule=d5.pipelines.GPipe())
    parts = d5.Mesh(parts=2, split={"fc1": d5.networks.ByColumns()})
    return {"a mesh": experiment(mesh=stages), "parts of operators": experiment(mesh=parts)}


def small() -> d5.Dataset:
    inputs = NUMBERS.standard_normal((20, 1, 4, 4)).astype(np.float32)
    train, test = (d5.datasets.Split(inputs[part], np.arange(10) % 2) for part in (slice(10), slice(10, 20)))
    return d5.Dataset("mine", train, test, ("a", "b"))


SCHEDULE = d5.schedules.WarmUp(d5.schedules.Piecewise(0.1, {10: 0.05, 20: 0.01}), 5)
PARTS: dict[str, d5.Experiment] = {
    **{
        name: experiment(distributed=entry.rule, topology=entry.topology, optimizer=entry.base)
        for name, entry in (EVERY | SERVERED).items()
    },
    "a network": experiment(model=d5.Network.from_model(nn.Linear(64, 10), np.zeros((1, 64), np.float32))),
    "arrays": experiment(dataset=small()),
    "a part of other data": experiment(
        dataset=d5.Dataset(
            "part", d5.datasets.Subset(DIGITS.train, np.arange(50)), DIGITS.test, DIGITS.classes
        )
    ),
    "made-up images": experiment(dataset="synthetic", dataset_kwargs={"shape": (1, 8, 8), "samples": 64}),
    "a schedule": experiment(
        optimizer=d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=SCHEDULE)
    ),
    "sizes by step": experiment(batch_size=d5.schedules.Piecewise(32, {10: 128})),
    "a bound": experiment(
        optimizer=d5.optimizers.ClipNorm(d5.optimizers.AdamW(1e-3, weight_decay=0.01), 1.0)
    ),
    "events": experiment(events=(d5.events.StopAtAccuracy(0.9), d5.events.Checkpoint(every_steps=5))),
    "transformations": experiment(
        transformations=(d5.transformations.Crop(8, padding=1), d5.transformations.RandomFlip())
    ),
    **dict(cases_of("parallel", lambda: meshes().items())),
    "stragglers": experiment(
        distributed=d5.optimizers.ASGD(), agents=4,
        slow=(d5.faults.Slowdown(1, 2.5), d5.faults.HeavyTailedSlowdown(1.5)),
        late=d5.faults.Late(agent=3, seconds=0.1),
        servers=d5.Servers(2, consistency=d5.servers.StaleSynchronous(2)),
    ),
    "samplers": experiment(
        train_sampler=d5.samplers.ChoiceSampler(weights=np.linspace(0.1, 1.0, len(DIGITS.train)))
    ),
    "another framework": experiment(executor="numpy", executor_kwargs={"device": d5.CPUDevice()}),
    "a graph": experiment(topology=d5.topologies.Tree(6), distributed=d5.optimizers.DPSGD()),
    "odd numbers": experiment(
        optimizer=d5.optimizers.SGD(1e-310), timeout_seconds=1e300, model_kwargs={"hidden": {1: (1, 2.0)}}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_an_experiment_comes_back_as_it_was(name: str) -> None:
    """Every rule, and what else an experiment is made of: equal hashes, and the same objects to the last
    type, through a file that is JSON and arrays."""
    given = PARTS[name]
    form = serialized({"experiment": given})
    found = deserialized(form, "it")["experiment"]
    assert found == given
    assert found.hash == given.hash
    assert pickle.dumps(plain(vars(found))) == pickle.dumps(plain(vars(given)))
    json.loads(form.text)


@needs_kit("parallel")
def test_a_file_with_a_name_from_before_it_was_renamed_is_read() -> None:
    """And gives the same part, without a warning."""
    text = serialized({"schedule": d5.pipelines.GPipe()}).text
    assert b'"GPipe"' in text
    earlier = Serialized(text.replace(b'"GPipe"', b'"FillDrain"'), None)
    assert deserialized(earlier, "it") == {"schedule": d5.pipelines.GPipe()}


def plain(value: Any) -> Any:
    """All types and values that are within."""
    if isinstance(value, dict):
        kept = {
            k: v for k, v in value.items() if k not in ("hash", "resolved_servers", "_tables", "fingerprint")
        }
        return "dict", [(plain(key), plain(item)) for key, item in kept.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, (bool, int, float, str, bytes)) or callable(value):
        return type(value).__name__, repr(value)
    return type(value).__name__, plain(getattr(value, "__dict__", {}))


@pytest.mark.parametrize(
    "own",
    [
        experiment(distributed=Own()),
        experiment(model=lambda: nn.Linear(2, 2)),
        experiment(model=nn.Sequential(nn.Flatten(), nn.Linear(64, 10))),
        experiment(executor=lambda *_: None),
        experiment(topology=d5.topologies.Custom(networkx.cycle_graph(4)), distributed=d5.optimizers.DPSGD()),
    ],
)
def test_what_only_code_can_make_has_no_form_without(own: d5.Experiment) -> None:
    with pytest.raises(ConfigurationError, match="has no form without code"):
        serialized({"experiment": own})


# -- a file of a stranger's ----------------------------------------------------------------------------------


def part(tag: str, content: object, **more: object) -> dict[str, Any]:
    return {tag: content, **more}


STRANGE: dict[str, Any] = {
    "a function of Python's": part("class", "os.system"),
    "a class of Python's": part("make", "subprocess.Popen", state={"args": ["true"]}),
    "a private class": part("make", "d5ray.experiment._instance", state={}),
    "a class that runs C++": part("make", "CustomCppOp", state={"source": "int main() {}"}),
    "a function of d5ray's": part("class", "launch"),
    "another's optimizer": part("make", "TorchOptimizer", **{"with": {}}),
    "a method of its own": part("make", "ASGD", state={"step": 1}),
    "an unknown tag": part("reduce", ["os.system", ["true"]]),
    "an array that is not there": part("array", 3),
    "objects": part("dtype", "O"),
    "an argument too many": part("make", "SGD", **{"with": {"learning_rate": 0.1, "run": "rm"}}),
}


@pytest.mark.parametrize("name", STRANGE)
def test_a_file_makes_nothing_but_parts_of_experiments(name: str) -> None:
    """Every name that is not public and part of an experiment is refused, with an error of d5ray's."""
    text = json.dumps({"version": 1, "arrays": None, "parts": {"x": STRANGE[name]}}).encode()
    with pytest.raises(ConfigurationError, match=r"it (cannot be read|holds no experiment)"):
        deserialized(Serialized(text, None), "it")


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"[]", b'{"version": 2}', b'{"version": 1, "arrays": "0", "parts": {}}',
             b'{"version": 1, "arrays": null, "parts": {"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}"],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"it (cannot be read|holds no experiment)"):
        deserialized(Serialized(text, None), "it")


def test_arrays_with_code_are_refused() -> None:
    """An array of objects is a pickle within the .npz."""
    form = serialized({"x": np.arange(3)})
    evil = Path("evil.npz").name
    with pytest.raises(ConfigurationError, match="others than were written with it"):
        deserialized(Serialized(form.text, b"PK" + evil.encode()), "it")


# -- a folder of a stranger's --------------------------------------------------------------------------------


def ran(wanted: d5.Experiment, **how: Any) -> Run:
    with d5.simulate(wanted, **how) as group:
        group.train(2, progress=False)
    return Run(group.folder)


class Bomb:
    """Its pickle makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.marker,)


def test_a_run_keeps_its_experiment_without_code(own_home: Path) -> None:
    """Also what the simulation was told; no pickle is there, and the hash is in `runs`."""
    links = d5.simulation.UniformLinks(1e-3, 1e6)
    run = ran(experiment(dataset=small()), network=links, compute=d5.simulation.LogNormalTime(1e-3, 0.5))
    assert {EXPERIMENT, ARRAYS} <= {file.name for file in run.folder.iterdir()}
    assert not (run.folder / PICKLED).exists()
    found = experiments.read(run)
    assert found is not None
    assert found.experiment == experiment(dataset=found.experiment.dataset)
    assert found.simulated == SimulationSettings(links, d5.simulation.LogNormalTime(1e-3, 0.5))


def test_the_users_own_code_is_kept_and_known_again(own_home: Path) -> None:
    """A pickle whose hash is in `runs` and in a private folder of the home; read there without a word."""
    run = ran(experiment(distributed=Own()))
    assert (run.folder / PICKLED).exists() and not (run.folder / EXPERIMENT).exists()
    assert is_made_here(run.row["experiment_sha256"])
    found = experiments.read(run)
    assert found is not None
    assert type(found.experiment.distributed_optimizer).__name__ == "Own"


def stranger(run: Run, marker: Path) -> None:
    """The run of somebody who put code into it and its hash into the row."""
    data = pickle.dumps(Bomb(marker))
    (run.folder / PICKLED).write_bytes(data)
    RunWriter(run.folder.parent, run.name).update_run(experiment_sha256=sha256_of(data))


@pytest.mark.full
def test_code_from_elsewhere_is_refused_without_trust(own_home: Path, tmp_path: Path) -> None:
    """Neither the function nor the command runs it; with trust, and only then, it does."""
    run, marker = ran(experiment(distributed=Own())), tmp_path / "ran"
    stranger(run, marker)
    keep_parameters(run.folder, {0: np.zeros(3, np.float32)})
    for read in (lambda: experiments.read(run), lambda: d5.replay(run)):
        with pytest.raises(ConfigurationError, match=r"is a program, .* no run of yours .* --trust"):
            read()
    done = d5ray("replay", str(run.folder), env={"D5RAY_HOME": str(own_home)})
    assert (done.code, marker.exists()) == (3, False)
    assert "--trust" in done.err and "Traceback" not in done.err
    with pytest.raises(ConfigurationError, match="holds a NoneType, no experiment"):
        experiments.read(run, trust=True)
    assert marker.exists()


def test_another_home_does_not_know_the_code(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same user's folder, read where another home is set: its code is a stranger's there."""
    run = ran(experiment(distributed=Own()))
    monkeypatch.setenv("D5RAY_HOME", str(own_home.parent / "other"))
    with pytest.raises(ConfigurationError, match="is a program"):
        experiments.read(run)
    assert experiments.read(run, trust=True) is not None


def test_a_list_that_others_can_write_proves_nothing(own_home: Path) -> None:
    """Whoever could add a hash to it could have his own code run."""
    run = ran(experiment(distributed=Own()))
    (folder,) = own_home.glob("made-by-*")
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="is a program"):
        experiments.read(run)


@pytest.mark.parametrize("trust", [False, True])
def test_a_changed_file_is_refused(trust: bool, own_home: Path) -> None:
    """Of both forms: it is not the one whose hash the run recorded."""
    for wanted, name in ((experiment(), EXPERIMENT), (experiment(distributed=Own()), PICKLED)):
        run = ran(wanted)
        file = run.folder / name
        file.write_bytes(file.read_bytes() + b" ")
        with pytest.raises(ConfigurationError, match=r"is not the file that the run .* kept"):
            experiments.read(run, trust=trust)


def test_an_experiment_that_the_run_did_not_run_is_refused(own_home: Path) -> None:
    """A file in good form, and its hash in the row."""
    run = ran(experiment())
    form = experiments.kept(Archived(experiment(seed=4)), bytes)
    form.keep(run.folder)
    RunWriter(run.folder.parent, run.name).update_run(experiment_sha256=form.sha256)
    with pytest.raises(ConfigurationError, match="another experiment than the run"):
        experiments.read(run)


def test_parameters_that_are_none_are_an_error(own_home: Path) -> None:
    """Text, an array of objects, and a number for an agent's name: an error, and nothing is unpickled."""
    run = ran(experiment())
    file = run.folder / "parameters.npz"
    for write in (
        lambda: file.write_bytes(b"none"),
        lambda: np.savez(file, bomb=np.array([Bomb(own_home / "ran")], object)),
        lambda: np.savez(file, zero=np.zeros(3)),
    ):
        write()
        with pytest.raises(d5.D5Error, match="does not hold the parameters of agents"):
            d5.replay(run)
    assert not (own_home / "ran").exists()
