"""A network that does not fit into the memory of one executor trains over three, each with part of it.

    d5ray run benchmarks/pipeline_memory        or        python -m benchmarks.pipeline_memory.recipe

A multilayer perceptron of 51 million parameters on the digits: with gradients and the velocities of momentum
they are 613 MB. A process gets 550 MB beside framework and data; one that holds more is killed, as Linux does
in a control group. One executor is; three stages, cut so that each stays within the limit, come to their end.
Without a limit one executor trains on the same batches: the losses must be equal but for rounding. The unit
is a round of fresh processes, forwards and backwards in turn; in each Ray notes that a worker was killed.
"""

import d5ray as d5
from benchmarks.pipeline_memory.job import LimitedStages, LimitedTrainings, WholeNetwork
from benchmarks.pipeline_memory.metrics import LossDeviation, OutOfMemory, PeakMemoryOf
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "5 minutes")  # by `d5ray list`; on two cores

LIMIT = 550_000_000  # bytes

# Fixed components: whoever competes keeps them
FIXED = {
    "job": LimitedTrainings,
    "comparisons": ((WholeNetwork(), WholeNetwork(limited=True), LimitedStages(3)),),
    "model": "mlp",
    "model_kwargs": {"hidden": (4096,) * 4},
    "dataset": "digits",
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.02, 0.9),
    "limit_bytes": LIMIT,
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 32,
    "micro_batches": 4,
    "threads": 1,
    "steps": 30,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    OutOfMemory("whole, limited[1]") >= 1,
    PeakMemoryOf("stages, limited[3]") <= LIMIT,
    LossDeviation(ours="stages, limited[3]", base="whole[1]") <= 1e-4,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
