"""CIFAR-10 with ResNet-44 and momentum, as on Deep500's slide: the final test accuracy counts.

    d5ray run cifar10_resnet44        or        python -m d5ray.recipes.cifar10_resnet44

It runs wherever the data set is (in D5RAY_DATA), on a GPU if the agents see one. The keys are the slide's;
the training is that of He et al. (arXiv:1512.03385, section 4.2): 64,000 steps of 128 samples are 164
epochs, the learning rate falls after 82 and 123 of them, weights decay by 1e-4, images are padded by 4
pixels, cropped and flipped. The paper's ResNet-44 comes to 92.83 %.

The original's own file drops its rate at epochs 81, 122 and 164 of 90, so that two drops never happen; here
that is warned of.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "hours on a GPU")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "resnet",
    "model_kwargs": {"depth": 44},
    "dataset": "cifar10",
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 164,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 1,
    "batch_size": 128,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.BestDevice()},
    "optimizer": d5.optimizers.WeightDecay,
    "optimizer_args": (
        d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1, 0.9),
            learning_rate=d5.schedules.Piecewise(0.1, {82: 0.01, 123: 0.001}),
        ),
        1e-4,
    ),
    "transformations": (
        d5.transformations.Crop(32, padding=4),
        d5.transformations.RandomFlip(),
        d5.transformations.Normalize((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    ),
    "distributed": d5.optimizers.AllreduceSGD,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    (d5.metrics.TestAccuracy(), 0.93),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
