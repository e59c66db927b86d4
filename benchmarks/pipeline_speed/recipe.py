"""A training step of a transformer in two stages on two cores, against one agent on one core, side by side.

    d5ray run benchmarks/pipeline_speed        or        python -m benchmarks.pipeline_speed.recipe

A transformer of eight layers of width 192 on bytes of text, 128 windows of 64 a step. One agent computes with
one thread; two agents have half of the network each, balanced by counted operations, and pass on 16
micro-batches, first all forwards, then all backwards (arXiv:1811.06965), which waits for fewer messages than
one forward, one backward does. Both do the same work on the same batches. With stages that take equally long
and transfers that take no time a step takes (M + S − 1)/(M · S) = 0.53125 of one core's. A pipeline wants
large batches: with fewer windows its micro-batches are so small that layers cost more by the sample, and
messages count for more; `--set batch_size=32` shows it. The unit is a round of fresh processes, forwards and
backwards in turn.
"""

import d5ray as d5
from benchmarks.step_times import StepTimes
from benchmarks.trainers import Agents, Stages
from d5ray.metrics.definitions.side_by_side import StepTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "8 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": StepTimes,
    "comparisons": ((Agents(1), Stages(2, 16, d5.pipelines.GPipe())),),
    "model": "transformer",
    "model_kwargs": {"width": 192, "heads": 4, "depth": 8},
    "dataset": "text",
    "dataset_kwargs": {"length": 64},
    "train_sampler": d5.samplers.ShuffleSampler,
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 128,
    "threads": 1,
    "steps": 10,  # measured, of every process
    "warmup_steps": 2,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    StepTimeRatio(ours="stages[2]", base="d5ray[1]") <= 0.65,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
