"""The experiment whose checkpoint of the first format lies beside this file, as it was written then

python -m tests.distributed.checkpoints.former_format FOLDER     with the d5ray that wrote that format
"""

import sys
from pathlib import Path
from typing import Any

from torch import nn

import d5ray as d5

FOLDER = Path(__file__).parent / "former_format"
STEP = 12


def small() -> nn.Module:
    """A network with parameters, statistics and a counter."""
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 10))


def experiment(**changes: Any) -> d5.Experiment:
    """Two agents with momentum, one epoch of which are 12 steps."""
    values: dict[str, Any] = {
        "model": small, "dataset": "digits", "optimizer": d5.optimizers.Momentum(0.05, 0.9), "agents": 2,
        "epochs": 2, "batch_size": 64, "seed": 3,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


if __name__ == "__main__":
    with d5.simulate(experiment(events=d5.events.Checkpoint(sys.argv[1]))) as group:
        group.train(STEP, progress=False)
