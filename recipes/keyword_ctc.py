"""Keywords in their order, without being told when: frames scored by convolutions, trained by CTC, two agents

    d5ray run keyword_ctc        or        python -m d5ray.recipes.keyword_ctc

One to three of the words of `keyword_spotting` in three seconds. Each is synthesised by a voice of its own,
with noise; which second is silent is not told, nor when a word begins. The network scores ten words and the
blank every 80 ms; connectionist temporal classification (doi 10.1145/1143844.1143891) sums over all ways to
say the words at these frames. What is judged is the word error rate of the likeliest path: insertions,
deletions and changes, over the words that were said.
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import FrameScores

LISTED = ("learn", "1 minute")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "dataset": "keyword_sequences",
    "loss": d5.operators.CTCLoss(),
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 12,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 16,  # of one agent
    "model": FrameScores,
    "model_kwargs": {"bands": 40, "classes": 10},
    "events": (d5.events.SequenceErrors(),),
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
    d5.metrics.LabelErrorRate() <= 0.1,
    d5.metrics.StepTime() <= 0.5,  # s, the median over steps
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
