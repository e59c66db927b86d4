"""A training step of ResNet-8: d5ray's agents against DistributedDataParallel and Ray Train, side by side.

    d5ray run benchmarks/step_resnet8        or        python -m benchmarks.step_resnet8.recipe

As `step_lenet`, with a network that has batch normalisation: `DistributedDataParallel` sends the first
process's running statistics to the others at every step (its default), d5ray's agents keep their own.
"""

import d5ray as d5
from benchmarks.step_times import StepTimes
from benchmarks.trainers import Agents, DataParallel, RayTrain
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "10 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": StepTimes,
    "comparisons": (
        (Agents(2), DataParallel(2), RayTrain(2), Agents(1), Agents(2, apart=True)),
        (Agents(4), DataParallel(4), RayTrain(4)),
    ),
    "model": "resnet8",
    "dataset": "digits",
    "train_sampler": d5.samplers.ShuffleSampler,
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 64,  # of one process
    "threads": 1,
    "steps": 60,  # measured, of every process
    "warmup_steps": 10,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    StepTimeRatio(ours="d5ray[2]", base="ddp[2]") <= 0.90,
    StepTimeRatio(ours="d5ray[4]", base="ddp[4]") <= 0.90,
    StepTimeRatio(ours="d5ray[2]", base="ray.train[2]") <= 0.90,
    StepTimeRatio(ours="d5ray[4]", base="ray.train[4]") <= 0.90,
    StepTimeRatio(ours="d5ray[2]", base="d5ray[1]") <= 1.03,
    StepTimeRatio(ours="d5ray[2]", base="d5ray apart[2]") <= 1.03,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
