"""Claims about a wall clock that is set during a run: the run goes on, and its times agree with each other"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import d5ray as d5
from tests.checked import assert_breaks
from tests.clocks import HOUR, Clock
from tests.patience import patience

SIMULATION = """
import struct, sys, time
from pathlib import Path
import d5ray as d5

experiment = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=2, batch_size=64, evaluate=False)
before = time.time()
with d5.simulate(experiment, root=Path(sys.argv[2])) as group:
    group.train(3, progress=False)
    with open(sys.argv[1], "r+b") as file:
        file.write(struct.pack("q", int(sys.argv[3])))
    group.train(3, progress=False)
print(round((time.time() - before) / 3600))
"""


@pytest.mark.parametrize("jump", [pytest.param(HOUR, marks=pytest.mark.full), -HOUR])
def test_a_simulation_whose_clock_is_set_is_complete_and_right(jump: int, tmp_path: Path) -> None:
    """It ends after it began, within seconds, and `d5ray check` finds nothing; the clock was set indeed."""
    clock, root = Clock(tmp_path), tmp_path / "runs"
    child = subprocess.run(
        [sys.executable, "-c", SIMULATION, clock.environment["D5RAY_TEST_CLOCK"], str(root), str(jump)],
        env=os.environ | clock.environment, capture_output=True, text=True, timeout=patience(60), check=False,
    )  # fmt: skip
    assert child.stdout.strip() == str(jump // HOUR), child.stderr
    (folder,) = root.iterdir()
    run = d5.Run(folder)
    assert 0 <= (run.row["ended"] - run.row["started"]).total_seconds() < patience(60)
    assert_breaks(run)
