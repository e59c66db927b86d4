"""Claims about going on from a checkpoint whose model, rules, sampler and transformation are the user's"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from d5ray.metrics.record.reader import list_runs
from tests.conftest import d5ray
from tests.patience import patience

BESIDE = """
from torch import nn

WIDTH = 8


def loss(output, labels):
    return nn.functional.cross_entropy(output, labels, label_smoothing=0.1)
"""
PARTS = """
import json
from dataclasses import dataclass

from beside import WIDTH, loss
from torch import nn

import d5ray as d5


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

    def forward(self, x):
        return self.layers(x)


@dataclass(frozen=True)
class Rule(d5.Optimizer):
    learning_rate: float = 0.1

    def state(self, x):
        return {"v": 0 * x}

    def update(self, x, gradient, state):
        state["v"] *= 0.9
        state["v"] += gradient
        x -= self.learning_rate * state["v"]


@dataclass(frozen=True)
class Falling(d5.Schedule):
    start: float = 0.05

    def value(self, time):
        return self.start / (1 + time)


class Backwards(d5.Sampler):
    def order(self, samples, *, epoch, seed):
        return d5.samplers.ShuffleSampler().order(samples, epoch=epoch, seed=seed)[::-1].copy()


@dataclass(frozen=True)
class Halved(d5.Transformation):
    def output_shape(self, shape):
        return shape

    def apply(self, samples):
        return samples.with_inputs(samples.inputs / 2)

    def at_test(self):
        return self


class Averaging(d5.DistributedOptimizer):
    invariant = "one model"

    def step(self, batch):
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


class Seen(d5.Event):
    def after_step(self, moment):
        self.steps = moment.step


def parts():
    return {
        "model": Net, "dataset": "digits", "loss": loss, "train_sampler": Backwards(), "batch_size": 100,
        "optimizer": d5.optimizers.Scheduled(Rule(), learning_rate=Falling()), "distributed": Averaging,
        "transformations": (Halved(),), "agents": 2, "epochs": 2, "seed": 3, "cpus_per_agent": 0.25,
        "events": (d5.events.Checkpoint(every_steps=2, keep=0), Seen()),
    }
"""
BEGIN = """
with d5.launch(d5.Experiment(**parts())) as group:
    group.train(4, progress=False)
"""
GO_ON = """
ended = []
for resume in "last", None:
    with d5.simulate(d5.Experiment(**parts()), resume=resume) as group:
        step = group.train(progress=False).step
        ended.append([step, *(agent.parameters_sha256() for agent in group.agents)])
print(json.dumps(ended))
"""
CELLS = """
import linecache, sys
for number, cell in enumerate(CELLS):
    name = f"<cell {number}>"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    exec(compile(cell, name, "exec"), vars(sys.modules["__main__"]))
"""


def run(folder: Path, way: str, text: str) -> str:
    """What a program prints that consists of the user's parts and this text; it begins anew each time."""
    folder.mkdir(exist_ok=True)
    (folder / "beside.py").write_text(BESIDE)
    program = f"CELLS = {[PARTS, text]!r}\n{CELLS}" if way == "notebook" else PARTS + text
    (folder / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "-" if way == "standard input" else "program.py"],
        input=program, cwd=folder, capture_output=True, text=True, timeout=patience(120),
        env=os.environ | {"D5RAY_HOME": str(folder / "home"), "RAY_DEDUP_LOGS": "0"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
@pytest.mark.parametrize("way", ["script", "notebook", "standard input"])
def test_a_program_goes_on_from_its_own_checkpoint(way: str, tmp_path: Path) -> None:
    """From that of real agents, by `last`, in a new process, to the bits of a run that nothing stopped."""
    run(tmp_path / "own", way, BEGIN)
    resumed, whole = json.loads(run(tmp_path / "own", way, GO_ON).splitlines()[-1])
    assert resumed == whole and resumed[0] == 16


@pytest.mark.full
def test_a_recipe_file_goes_on_from_its_own_checkpoint(tmp_path: Path) -> None:
    """`d5ray run mine.py --resume last`, after a run that an event stopped."""
    recipe = (
        f"{PARTS}\nMUTABLE = parts()\nFIXED = {{name: MUTABLE.pop(name) for name in ('model', 'dataset')}}\n"
        "METRICS = [d5.metrics.StepTime() <= 60.0]\n"
    )
    (tmp_path / "beside.py").write_text(BESIDE)
    (tmp_path / "mine.py").write_text(recipe)
    home = {"D5RAY_HOME": str(tmp_path / "home")}
    stops = "events=(Checkpoint(every_steps=2), StopAfterSteps(4))"
    d5ray("run", "mine.py", "--set", stops, env=home, cwd=tmp_path)
    found = d5ray("run", "mine.py", "--resume", "last", env=home, cwd=tmp_path)
    last, first = (run.row["steps"] for run in list_runs(tmp_path / "home" / "runs"))
    assert first < last == 16, found.err
