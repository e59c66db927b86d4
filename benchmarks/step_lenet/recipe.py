"""A training step of LeNet: d5ray's agents against DistributedDataParallel and Ray Train, side by side.

    d5ray run benchmarks/step_lenet        or        python -m benchmarks.step_lenet.recipe

LeNet on the digits, 64 samples a process and step. Two and four agents, which exchange through shared
memory where they share a machine, run against as many processes of `DistributedDataParallel` and of Ray
Train's `TorchTrainer`, both on gloo, and two agents against one alone. All read the loss at every step and
use the same number of threads. The unit is a round of fresh processes, forwards and backwards in turn.

Two agents that compute at the same time slow each other down also without a word between them, where cores
share power, caches and memory with each other and with Ray's own processes. So two are also compared with
two `apart`: the same processes, each with a model of its own. That ratio is what the exchange costs.
"""

import d5ray as d5
from benchmarks.step_times import StepTimes
from benchmarks.trainers import Agents, DataParallel, RayTrain
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "8 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": StepTimes,
    "comparisons": (
        (Agents(2), DataParallel(2), RayTrain(2), Agents(1), Agents(2, apart=True)),
        (Agents(4), DataParallel(4), RayTrain(4)),
    ),
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
    "steps": 250,  # measured, of every process
    "warmup_steps": 30,
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
