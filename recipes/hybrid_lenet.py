"""LeNet as the survey's hybrid: convolutions data-parallel, fully connected layers split over the agents.

    d5ray run hybrid_lenet        or        python -m d5ray.recipes.hybrid_lenet

Two agents hold one network (arXiv:1404.5997; arXiv:1802.09941, section 6.4). Of the convolutions each
computes its half of the batch, with all the filters, whose gradients are summed; of the fully connected
layers, which have 98 % of the parameters, each holds its half and computes it for the whole batch. So
activations travel at the border, and the gradients of the filters, instead of all gradients: the agents may
send no more than half of what two data-parallel ones send for the same steps, an allreduce of all parameters
each. The data are the digits that ship inside scikit-learn.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "30 seconds")  # by `d5ray list`; on two cores

EPOCHS, STEPS = 60, 23  # of an epoch: 1,438 samples in batches of 64
DATA_PARALLEL_BYTES = EPOCHS * STEPS * 4 * 169_750  # that one of two agents sends: as many as there are

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "lenet",
    "model_kwargs": {"hidden": (512, 256)},
    "dataset": "digits",
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": EPOCHS,
    "batch_size": 64,  # of both agents
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "mesh": d5.Mesh(
        1, parts=2, micro_batches=1, split=d5.networks.FullyConnectedSplit(d5.networks.BySamples())
    ),
    "executor": d5fw.from_model,
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.TestAccuracy() >= 0.97,
    d5.metrics.PartBytesSent() <= DATA_PARALLEL_BYTES / 2,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
