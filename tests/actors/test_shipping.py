"""Claims about sending the user's code: what an agent could not import travels by value, nothing else."""

import functools
import importlib
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest
import ray

from d5ray.actors.shipping import ship
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.networks.device import CPUDevice
from d5ray.training.optimizers.gradient_descent import SGD

BESIDE = """
    FACTOR = 3

    def scaled(value):
        return FACTOR * value
"""
MINE = """
    from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
    from shipped_beside import scaled

    class Rule(DistributedOptimizer):
        period = 5

        def __init__(self, slack=2):
            self.slack = slack

        def step(self, batch):
            return scaled(self.period + self.slack)

    def model(width=1):
        return scaled(width)

    class Device:
        width = 4

    def executor(*given, device, **options):
        return device
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """`shipped_mine` and, beside it, `shipped_beside` that it imports: for this process alone."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "shipped_beside.py").write_text(textwrap.dedent(BESIDE))
    (folder / "shipped_mine.py").write_text(textwrap.dedent(MINE))
    monkeypatch.syspath_prepend(folder)
    before = set(sys.modules)
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("shipped_"):
            unregister(sys.modules.pop(name))


def unregister(module: ModuleType) -> None:
    for pickler in (cloudpickle, ray.cloudpickle):
        if module.__name__ in pickler.list_registry_pickle_by_value():
            pickler.unregister_pickle_by_value(module)


def mine() -> Any:
    import shipped_mine  # type: ignore[import-not-found]  # noqa: PLC0415 - made by the fixture

    return shipped_mine


def experiment(**values: Any) -> Experiment:
    given: dict[str, Any] = {"model": "mlp", "dataset": "digits", "optimizer": SGD(0.1)}
    return Experiment(**given | values)


def elsewhere(pickled: bytes, expression: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """The expression of the experiment `e` in a process that has d5ray but none of the user's modules."""
    code = (
        "import sys, importlib.util, pickle\n"
        "assert importlib.util.find_spec('shipped_mine') is None\n"
        "assert importlib.util.find_spec('shipped_beside') is None\n"
        "e = pickle.loads(sys.stdin.buffer.read())\n"
        f"print({expression})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickled, cwd=cwd, capture_output=True, timeout=60
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


SHIPPED: dict[str, tuple[Callable[[Any], Experiment], str, str]] = {
    "a rule": (lambda mine: experiment(distributed=mine.Rule(slack=4)), "e.distributed.step(None)", "27"),
    "a function": (lambda mine: experiment(model=mine.model), "e.model(7)", "21"),
    "a partial function": (
        lambda mine: experiment(model=functools.partial(mine.model, width=5)), "e.model()", "15",
    ),
    "a class in a list in options": (
        lambda mine: experiment(model_kwargs={"hidden": [{"kind": mine.Device}]}),
        "e.model_kwargs['hidden'][0]['kind'].width", "4",
    ),
}  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("case", SHIPPED)
def test_what_the_user_wrote_works_where_it_cannot_be_imported(
    modules: Path, tmp_path: Path, case: str
) -> None:
    """With the module beside that it uses; the values are those that it gives here."""
    make, expression, expected = SHIPPED[case]
    made = make(mine())
    assert str(eval(expression, {"e": made})) == expected
    ship(made)
    done = elsewhere(ray.cloudpickle.dumps(made), expression, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected + "\n", "")


def test_the_hash_and_the_values_arrive(modules: Path, tmp_path: Path) -> None:
    """A hash that was taken here is the hash there, where the source is not to be had."""
    made = experiment(distributed=mine().Rule, seed=3)
    ship(made)
    here = made.hash
    done = elsewhere(ray.cloudpickle.dumps(made), "(e.hash, e.seed)", tmp_path)
    assert done.stdout == f"{(here, 3)}\n"


def test_installed_parts_stay_references() -> None:
    """Nothing is registered, and the pickle names d5ray's classes without their code."""
    made = experiment(executor=from_model, executor_kwargs={"device": CPUDevice()})
    before = set(ray.cloudpickle.list_registry_pickle_by_value())
    ship(made)
    assert set(ray.cloudpickle.list_registry_pickle_by_value()) == before
    pickled = ray.cloudpickle.dumps(made)
    assert b"d5ray.distributed.optimizers.allreduce" in pickled and b"AllreduceSGD" in pickled
    assert b"co_code" not in pickled and b"_make_skeleton_class" not in pickled
    assert len(pickled) < 2000


def test_packages_of_another_environment_stay_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which this one sees: the user's own, the system's, or one that a path file names."""
    (folder := tmp_path / "lib" / "dist-packages").mkdir(parents=True)
    (folder / "shipped_beside.py").write_text(textwrap.dedent(BESIDE))
    (folder / "shipped_installed.py").write_text(textwrap.dedent(MINE))
    monkeypatch.syspath_prepend(folder)
    module = importlib.import_module("shipped_installed")
    before = set(ray.cloudpickle.list_registry_pickle_by_value())
    try:
        ship(experiment(distributed=module.Rule))
        assert set(ray.cloudpickle.list_registry_pickle_by_value()) == before
    finally:
        for shipped in ("shipped_installed", "shipped_beside"):
            unregister(sys.modules[shipped])
            del sys.modules[shipped]


def test_a_part_that_cannot_be_pickled_is_refused_with_the_remedy(tmp_path: Path) -> None:
    """An open file in a model's options: before anything is sent."""
    with (tmp_path / "log").open("w") as log, pytest.raises(ConfigurationError) as caught:
        ship(experiment(model_kwargs={"hidden": log}))
    for words in (
        "cannot be sent to the agents",
        "files that are not opened for reading",
        "make such objects",
        "in `start`",
    ):
        assert words in str(caught.value)
