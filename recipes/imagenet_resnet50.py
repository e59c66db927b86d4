"""ImageNet with ResNet-50 and momentum, as in Deep500's recipe: the final test accuracy counts.

    d5ray run imagenet_resnet50 --set agents=8        or        python -m d5ray.recipes.imagenet_resnet50

It runs wherever the images are, `imagenet/train/CLASS/*.JPEG` and `imagenet/val/CLASS/*.JPEG` in
D5RAY_DATA, on a GPU if the agents see one. The training is that of Goyal et al. (arXiv:1706.02677) for 256
samples a step: 90 epochs, the learning rate rises for five of them and falls after 30, 60 and 80, weights
decay by 1e-4. Whoever takes k times as many samples a step multiplies the rate by k. Their ResNet-50 comes
to 76.4 %; here images are cropped at random from 256 × 256 pixels, where theirs are also scaled at random.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "days on GPUs")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "resnet",
    "model_kwargs": {"depth": 50},
    "dataset": "imagenet",
    "dataset_kwargs": {"size": 256},
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 90,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 1,
    "batch_size": 256,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.BestDevice()},
    "optimizer": d5.optimizers.WeightDecay,
    "optimizer_args": (
        d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1, 0.9),
            learning_rate=d5.schedules.WarmUp(
                d5.schedules.Piecewise(0.1, {30: 0.01, 60: 0.001, 80: 0.0001}), 5
            ),
        ),
        1e-4,
    ),
    "transformations": (
        d5.transformations.Crop(224),
        d5.transformations.RandomFlip(),
        d5.transformations.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ),
    "prefetch": 4,
    "cpus_per_agent": 4,
    "distributed": d5.optimizers.OverlappedAllreduceSGD,
    "events": d5.events.Checkpoint(),
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    (d5.metrics.TestAccuracy(), 0.75),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
