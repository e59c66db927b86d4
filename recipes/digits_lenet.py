"""Handwritten digits with LeNet: two agents, momentum SGD, gradients averaged by allreduce every step.

    d5ray run digits_lenet        or        python -m d5ray.recipes.digits_lenet

The data are the 1,797 digits that ship inside scikit-learn (8 × 8 pixels), split by a fixed seed.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "20 seconds")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "lenet",
    "dataset": "digits",
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 60,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 32,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.TestAccuracy() >= 0.97,
    d5.metrics.StepTime() <= 0.050,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
