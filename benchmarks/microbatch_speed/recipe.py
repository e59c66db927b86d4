"""What a training step costs that has a quarter of its memory: ResNet-50 in micro-batches and as a whole.

    d5ray run benchmarks/microbatch_speed        or        python -m benchmarks.microbatch_speed.recipe

ResNet-50 with frozen statistics, which mixes no samples, on random images of 96 × 96 pixels under PyTorch.
First fresh processes measure the step as a whole and in micro-batches of each of `sizes`; the quickest that
stays clearly within `share` of the whole one's peak memory is then measured beside the whole, in turn in
fresh processes. A step is the forward and backward pass: what a rule's update takes comes on both sides.
Before anything counts, both must have given the same gradients.
"""

from benchmarks.microbatch_speed.job import InMicroBatches, MicrobatchSteps, WholeBatches
from benchmarks.microbatch_speed.metrics import PeakMemoryRatio
from d5ray.kits.laboratory.metrics.side_by_side import StepTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "15 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": MicrobatchSteps,
    "comparisons": ((WholeBatches(), InMicroBatches()),),
    "network": "resnet50",
    "sample_shape": (3, 96, 96),
    "share": 0.25,  # of the whole step's peak memory
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 128,
    "sizes": (8, 10, 12, 16, 32),  # of micro-batches
    "threads": 1,
    "steps": 3,  # measured, of every process
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    PeakMemoryRatio(ours="micro[1]", base="whole[1]") <= 0.25,
    StepTimeRatio(ours="micro[1]", base="whole[1]") <= 1.10,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
