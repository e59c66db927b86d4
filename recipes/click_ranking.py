"""Click ranking of advertisements: a factorization machine, two agents, sparse pushes to a sharded server

    d5ray run click_ranking        or        python -m d5ray.recipes.click_ranking

Asynchronous SGD with AdaGrad at two shards (Dean et al., 2012). A batch touches few rows of the embedding,
and the gradient of the others is zero: `NonZeroRows` pushes the touched ones alone, exactly, and AdaGrad
leaves a parameter whose gradient is zero as it is. Dense, a push would be 4 bytes for each of the 160,001
parameters: 0.64 MB a step.

The clicks are drawn from a hidden factorization machine, so no model can predict them all. `criteo` reads
Criteo's own from $D5RAY_DATA/criteo, in a recipe of its own, since other data are another contest:

    from d5ray.recipes.click_ranking import BUCKETS, FIXED, METRICS, MUTABLE
    FIXED = FIXED | {"dataset": "criteo", "dataset_kwargs": {"buckets": BUCKETS, "rows": 2_000_000}}
"""

import d5ray as d5

# Using PyTorch as the framework
import d5ray.frameworks.torch as d5fw
from d5ray.recipes.engine.command import main
from d5ray.recipes.models import FactorizationMachine

LISTED = ("learn", "1 minute")  # by `d5ray list`; on two cores

BUCKETS, FACTORS = 20_000, 7

# Fixed components: whoever competes keeps them
FIXED = {
    "model": FactorizationMachine,
    "model_kwargs": {"buckets": BUCKETS, "factors": FACTORS},
    "dataset": "clicks",
    "dataset_kwargs": {"buckets": BUCKETS},
    "train_sampler": d5.samplers.ShuffleSampler,
    "epochs": 3,
}

# Mutable components: what may be changed to do better
MUTABLE = {
    "agents": 2,
    "batch_size": 64,  # of one agent
    "executor": d5fw.from_model,
    "executor_kwargs": {"device": d5.CPUDevice()},
    "optimizer": d5.optimizers.AdaGrad,
    "optimizer_args": (0.05,),
    "distributed": d5.optimizers.ASGD,
    "distributed_args": (d5.compression.NonZeroRows(1 + FACTORS),),
    "servers": d5.Servers(shards=2),
    "events": (d5.events.RankingQuality(),),
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    d5.metrics.AreaUnderCurve() >= 0.76,
    d5.metrics.TestLoss() <= 0.58,  # nats: the log loss
    d5.metrics.BytesSent() <= 25e6,  # of an agent; dense pushes take 0.9e9
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
