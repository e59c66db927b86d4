"""What it costs that Ray's metrics show a run: agents train with the exporter and without it, in turn.

    d5ray run benchmarks/mirror_overhead        or        python -m benchmarks.mirror_overhead.recipe

LeNet on the digits by one agent, and by two that exchange at every step. In every fresh set of processes the
agents train with their exporter's thread and without it in turn, forwards and backwards; what is compared are
mean steps of turns side by side, since the exporter looks once a second. That thread's processor time is
measured beside it.
"""

import d5ray as d5
from benchmarks.mirror_overhead.job import MirroredAgents
from benchmarks.mirror_overhead.metrics import MirrorShare, MirrorTimeRatio
from benchmarks.step_times import StepTimes
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "8 minutes")  # by `d5ray list`; on two cores

MEASURED = (MirroredAgents(1), MirroredAgents(2))

# Fixed components: whoever competes keeps them
FIXED = {
    "job": StepTimes,
    "comparisons": tuple((each,) for each in MEASURED),
    "model": "lenet",
    "dataset": "digits",
    "train_sampler": d5.samplers.ShuffleSampler,
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 64,  # of one process
    "threads": 1,
    "steps": 1000,  # of every turn
    "warmup_steps": 200,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(MirrorTimeRatio(each.name) <= 1.005 for each in MEASURED),
    *(MirrorShare(each.name) <= 0.005 for each in MEASURED),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
