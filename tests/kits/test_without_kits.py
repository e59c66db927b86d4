"""The core needs no kit: it trains and judges without them, and names what there is"""

import os
import pkgutil
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import d5ray.kits
from tests.conftest import REPOSITORY

WITHOUT = """
import d5ray.kits
d5ray.kits.__path__ = []  # as if their folders were deleted
import sys
import d5ray as d5
from d5ray.dashboards.terminal.cut_tables import rows_of
from d5ray.cli.app import COMMANDS, app
from d5ray.recipes.engine import library, run_recipe, runner
from d5ray.recipes.engine.recipe import Recipe
from d5ray.metrics.views.verdicts import KNOWN
from d5ray.training.datasets.catalogue import dataset_names

assert not [name for name in KNOWN if "kits" in KNOWN[name].__module__]
assert "digits" in dataset_names() and "shapes" not in dataset_names()
try:
    d5.Experiment(model="lenet", dataset="shapes", optimizer=d5.optimizers.SGD(0.1))
except d5.D5Error as error:
    assert "unknown data set 'shapes'" in str(error), error
else:
    raise AssertionError("a data set of a kit that is not there")
for missing in (
    lambda: d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), mesh=d5.Mesh(2, stages=2)),
    lambda: d5.pipelines.GPipe(),
    lambda: d5.networks.split,
    lambda: rows_of(d5.Network("none"), 2, None),
):
    try:
        missing()
    except (AttributeError, d5.D5Error) as error:
        assert str(error).endswith(" is in a kit that is not there: install d5ray/kits/parallel"), error
    else:
        raise AssertionError("model parallelism without its kit")
experiment = d5.Experiment(
    model="mlp", dataset="digits", optimizer=d5.optimizers.Momentum(0.05, 0.9),
    distributed=d5.optimizers.AllreduceSGD, topology=d5.topologies.Ring(2),
)
with d5.simulate(experiment) as group:
    group.train(epochs=4)
    assert d5.metrics.TestAccuracy().estimate(group.tables()).value > 0.8
recipe = Recipe.of(
    {"model": "mlp", "dataset": "digits", "evaluate": True},
    {"optimizer": d5.optimizers.Momentum(0.05, 0.9), "epochs": 4, "agents": 2},
    [d5.metrics.TestAccuracy() >= 0.8],
    name="plain",
)
result = runner.run(recipe, address=None, quiet=True, by=d5.simulate)
assert result.verdict == "PASS", result
for arguments in (["--help"], ["run", "--help"], ["show", result.run_id]):
    app(arguments, standalone_mode=False)
try:
    run_recipe.run_recipe(recipe.fixed, recipe.mutable, recipe.criteria, name="plain", seeds=6)
except d5.D5Error as error:
    assert "several seeds need a kit" in str(error), error
else:
    raise AssertionError("several seeds without the kit that repeats recipes")
assert "run" in COMMANDS and "compare" not in COMMANDS
try:
    library.load("optimizer_comparison")
except d5.D5Error as error:
    assert "the recipe optimizer_comparison needs the kit 'laboratory'" in str(error), error
else:
    raise AssertionError("a comparison without the kit that makes it")
assert not (there := [name for name in sys.modules if name.startswith("d5ray.kits.")]), there
"""


def test_the_core_trains_and_judges_without_kits(tmp_path: Path) -> None:
    """With `d5ray/kits` empty: a data set of a kit is then an unknown one, and a comparison names its kit."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        cwd=REPOSITORY,
        env={**os.environ, "D5RAY_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Commands" in done.stdout and "test_accuracy" in done.stdout and "PASS" in done.stdout


BEFORE = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
from d5ray.recipes.jobs.trainings import Training
from d5ray.recipes.jobs import contest
from d5ray.metrics.definitions.trainings import UpdatesRatio
import d5ray.recipes.engine.comparisons.rounds as rounds
import d5ray.kits.laboratory as laboratory
from d5ray.kits.laboratory.comparisons import rounds as now
from d5ray.kits.laboratory.jobs import contest as contest_now, trainings
from d5ray.kits.laboratory.metrics import trainings as metrics

assert Training is trainings.Training and contest.Contest is contest_now.Contest and rounds is now
assert UpdatesRatio is metrics.UpdatesRatio
warnings.simplefilter("error")
try:
    import d5ray.recipes.jobs.stragglers
except DeprecationWarning as warned:
    assert "d5ray.kits.laboratory.jobs.stragglers now" in str(warned), warned
else:
    raise AssertionError("no warning")
for gone in ("d5ray.recipes.jobs.nothing", "d5ray.nothing"):
    try:
        __import__(gone)
    except (ModuleNotFoundError, DeprecationWarning):
        pass
    else:
        raise AssertionError(gone)
"""


def test_modules_that_went_into_a_kit_are_imported_by_their_names_of_before() -> None:
    """The same objects, with a warning; what never was is not found."""
    done = subprocess.run([sys.executable, "-c", BEFORE], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SAMPLE = "test_experiment or test_names or test_archive or test_table_ii or test_every_rule"
KITS = [kit.name for kit in pkgutil.iter_modules(d5ray.kits.__path__)]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kit", KITS)
def test_the_cores_tests_do_not_need_a_kits_folder(kit: str, tmp_path: Path) -> None:
    """In a copy without it and without its tests all others are collected, and a broad sample passes."""
    copy = tmp_path / "copy"
    hidden = shutil.ignore_patterns(".*", "__pycache__", "build", "*.egg-info")
    shutil.copytree(REPOSITORY, copy, symlinks=True, ignore=hidden)
    for folder in (f"d5ray/kits/{kit}", f"tests/kits/{kit}"):
        shutil.rmtree(copy / folder)
    done = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow and not full",
            "-k", SAMPLE,
        ],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert f"without the kit {kit!r}: its files are not collected" in done.stdout
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 300, done.stdout[-3000:]
