"""A user's file, away from the checkout: mypy and pyright know d5ray there, and find what is misspelt"""

import re
import sys
from pathlib import Path

import pytest

from tests.conftest import python

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
CODE = """\
import d5ray as d5
from d5ray.optimizers import Adam


class Mine(d5.DistributedOptimizer):
    def step(self, batch: d5.Batch) -> None:
        reveal_type(self.x)
        reveal_type(self.gradient(batch))
        self.x -= 0.1 * self.gradient(batch)


experiment = d5.Experiment("lenet", "digits", Adam(0.1), agents=4, topology=d5.topologies.Ring(4))
with d5.launch(experiment) as group:
    reveal_type(group.agents)
    reveal_type(group.tables())
with d5.simulate(experiment) as simulated:
    reveal_type(simulated.agents)
    reveal_type(d5.metrics.TestAccuracy() >= 0.9)
reveal_type(experiment.agents)
"""
MISSPELT = """\
import d5ray as d5

d5.Experiment("lenet", "digits", d5.optimizers.SGD(0.1), agnets=4)
d5.Experiment("lenet", "digits", d5.optimizers.SGD(0.1)).agnets
d5.topologies.Rnig(4)
d5.Momentum(0.1, 0.9)
d5.Momentun(0.1, 0.9)
"""
MYPY = [
    "d5ray.networks.vector.Vector",
    "d5ray.networks.vector.Vector",
    "list[ray.actor.ActorHandle[d5ray.agent.training_agent.TrainingAgent]]",
    "dict[str, pyarrow.__lib_pxi.table.Table]",
    "list[d5ray.agent.training_agent.TrainingAgent]",
    "d5ray.metrics.judge.criteria.Criterion",
    "int | None",
]


def said(tool: str, code: str, folder: Path) -> str:
    """What the type checker says of a file with this code, in the environment that runs the tests."""
    (folder / "user.py").write_text(code)
    option = {"mypy": "--python-executable", "pyright": "--pythonpath"}[tool]
    done = python("-m", tool, option, sys.executable, "user.py", cwd=folder, seconds=500, fails=True)
    assert done.code in (0, 1), done
    return done.out


def short(shown: str) -> str:
    """A type without the modules of its names, as pyright shows it."""
    return re.sub(r"\w+\.", "", shown)


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_the_types_of_what_a_user_touches_are_known(tool: str, tmp_path: Path) -> None:
    lines = said(tool, CODE, tmp_path)
    shown = re.findall(r'(?:Revealed type|Type of ".*") is "(.*)"', lines)
    assert shown == (MYPY if tool == "mypy" else [short(each) for each in MYPY])
    assert " error" not in lines.replace("0 errors", "")


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
def test_a_misspelt_name_is_found(tool: str, tmp_path: Path) -> None:
    """An argument and a field of Experiment, a name of a namespace, and one that has moved."""
    lines = said(tool, MISSPELT, tmp_path).splitlines()
    wrong = {int(line.split(":")[1]) for line in lines if ": error" in line or " - error" in line}
    assert wrong == {3, 4, 5, 6, 7}
