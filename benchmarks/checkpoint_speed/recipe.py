"""How long a checkpoint takes: saving a training and going on from it, over writing as many bytes.

    d5ray run benchmarks/checkpoint_speed        or        python -m benchmarks.checkpoint_speed.recipe

A network of that many bytes of parameters, trained by momentum, so that the checkpoint has twice as many. In
turn it is saved, restored, and as many bytes are written to a file of the same folder in one piece; what is
written is with the disk (fsync) before the time counts, on both sides. Before a time counts, what was
restored must have the bits of what was saved. The unit is a fresh process.
"""

from benchmarks.checkpoint_speed.job import CheckpointTimes, SavedAndWritten
from benchmarks.checkpoint_speed.metrics import CheckpointTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

SIZES = ("10 MB", "100 MB")

# Fixed components: whoever competes keeps them
FIXED = {
    "job": CheckpointTimes,
    "comparisons": ((SavedAndWritten(),),),
}

# Mutable components: how much is measured
MUTABLE = {
    "sizes": SIZES,
    "repetitions": 7,
    "pairs": 10,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    CheckpointTimeRatio("checkpoint[1]", what, size) <= 1.5 for size in SIZES for what in ("save", "restore")
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
