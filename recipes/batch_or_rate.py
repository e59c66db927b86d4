"""Don't decay the learning rate, increase the batch size: both, side by side, on the handwritten digits.

    d5ray run batch_or_rate        or        python -m d5ray.recipes.batch_or_rate

Two agents train LeNet for 40 epochs, with the same seed in each pair. One divides the learning rate by 5 at
epochs 20 and 30; the other keeps the rate and multiplies the batch by 5 there, which lets the noise of the
gradients fall alike (Smith, Kindermans, Ying, Le, arXiv:1711.00489), in fewer updates and exchanges.
"""

import d5ray as d5
from d5ray.kits.laboratory.jobs.trainings import Training, Trainings
from d5ray.kits.laboratory.metrics.trainings import AccuracyDifference, TrainingTimeRatio, UpdatesRatio
from d5ray.recipes.engine.command import main

LISTED = ("compare", "5 minutes")  # by `d5ray list`; on two cores

RATE = d5.schedules.Piecewise(0.05, {20: 0.01, 30: 0.002})
BATCH_SIZE = 16  # of an agent, at the start

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Trainings,
    "comparisons": (
        (
            Training(
                "growing batch", d5.optimizers.Momentum(0.05, 0.9), d5.schedules.InverseTo(BATCH_SIZE, RATE)
            ),
            Training(
                "decaying rate",
                d5.optimizers.Scheduled(d5.optimizers.Momentum(0.05, 0.9), learning_rate=RATE),
                BATCH_SIZE,
            ),
        ),
    ),
    "model": "lenet",
    "dataset": "digits",
    "epochs": 40,
}

# Mutable components: how much is measured
MUTABLE = {
    "threads": 1,
    "pairs": 12,
    "seed": 1,
}

# Acceptable metrics
BOTH = ("growing batch[2]", "decaying rate[2]")
METRICS = [
    AccuracyDifference(*BOTH) >= -0.01,
    UpdatesRatio(*BOTH) <= 0.6,
    TrainingTimeRatio(*BOTH) <= 0.8,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
