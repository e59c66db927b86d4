"""The core needs no kit: it trains and judges without them, and names what there is"""

import subprocess
import sys

from tests.conftest import REPOSITORY

WITHOUT = """
import d5ray.kits
d5ray.kits.__path__ = []  # as if their folders were deleted
import sys
import d5ray as d5
from d5ray.dashboards.terminal.cut_tables import rows_of
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
from d5ray.cli.app import COMMANDS
from d5ray.recipes.engine import library

assert "run" in COMMANDS and "compare" not in COMMANDS
try:
    library.load("optimizer_comparison")
except d5.D5Error as error:
    assert "the recipe optimizer_comparison needs the kit 'laboratory'" in str(error), error
else:
    raise AssertionError("a comparison without the kit that makes it")
assert not (there := [name for name in sys.modules if name.startswith("d5ray.kits.")]), there
"""


def test_the_core_trains_and_judges_without_kits() -> None:
    """With `d5ray/kits` empty: a data set of a kit is unknown then, and a name says which kit has it."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
