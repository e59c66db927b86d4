"""Keyword spotting: a small convolutional network on log-mel pictures of ten words, two agents, Adam

    d5ray run keyword_spotting        or        python -m d5ray.recipes.keyword_spotting

The words are synthesised, each by a voice of its own, with noise. `speech_commands` reads Google's recordings
from $D5RAY_DATA/speech_commands, whose pictures have the same shape (arXiv:1804.03209), in a recipe of its
own, since other data are another contest:

    from d5ray.recipes.keyword_spotting import FIXED, METRICS, MUTABLE
    WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    FIXED = FIXED | {"dataset": "speech_commands", "dataset_kwargs": {"words": WORDS}}
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "30 seconds")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "lenet",
    "model_kwargs": {"channels": (8, 16), "hidden": (64, 32)},
    "dataset": "keywords",
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 20,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 32,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "transformations": (d5.transformations.Normalize(-1.0, 2.7),),
    "optimizer": d5.optimizers.Adam,
    "optimizer_args": (0.002,),
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.TestAccuracy() >= 0.95,
    d5.metrics.StepTime() <= 0.2,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
