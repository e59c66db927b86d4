"""A small transformer learns what byte of a text follows: two agents, AdamW, gradients averaged by allreduce.

    d5ray run text_transformer        or        python -m d5ray.recipes.text_transformer

The text is modules of Python's standard library; its last tenth is the test split. The loss is in nats a
byte, the criterion in bits: 8 is guessing. The windows of 64 bytes follow one another; what is before its
window the network does not see.

The network has 136,512 parameters: two blocks of width 64 with four heads (like GPT-2's, arXiv:1706.03762).

Runs on the libraries of different versions of Python are not comparable, since their data differ. Another
text is another contest: `wikitext` reads WikiText's files from $D5RAY_DATA/wikitext (arXiv:1609.07843), and
`text` with "paths" your own, in a recipe of its own:

    from d5ray.recipes.text_transformer import FIXED, METRICS, MUTABLE
    FIXED = FIXED | {"dataset": "wikitext", "dataset_kwargs": {"length": 64}}
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main

LISTED = ("learn", "1 minute")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "model": "transformer",
    "model_kwargs": {"width": 64, "heads": 4, "depth": 2},
    "dataset": "stdlib",
    "dataset_kwargs": {"length": 64},
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 10,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 32,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.Scheduled,
    "optimizer_args": (d5.optimizers.AdamW(0.005),),
    "optimizer_kwargs": {
        "learning_rate": d5.schedules.WarmUp(d5.schedules.Cosine(0.005, 10), 1, start=0.0005)
    },
    "distributed": d5.optimizers.AllreduceSGD,
    "communicator": "auto",  # shared memory on one node
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.BitsPerByte() <= 2.65,
    d5.metrics.StepTime() <= 0.5,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
