"""A training step of ResNet-8: d5ray's agents against DistributedDataParallel and Ray Train, side by side.

    d5ray run benchmarks/step_resnet8        or        python -m benchmarks.step_resnet8.recipe

As `step_lenet`, with a network that has batch normalisation: `DistributedDataParallel` sends the first
process's running statistics to the others at every step (its default), d5ray's agents keep their own.
"""

from benchmarks.step_lenet import recipe as step_lenet
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "10 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = step_lenet.FIXED | {"model": "resnet8"}

# Mutable components: how much is measured
MUTABLE = step_lenet.MUTABLE | {"steps": 60, "warmup_steps": 10}

# Acceptable metrics
METRICS = step_lenet.METRICS

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
