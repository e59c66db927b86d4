"""Scaling of training: simulated times to an accuracy over agents, algorithms, networks and stragglers.

    d5ray run scale_study        or        python -m d5ray.recipes.scale_study
    d5ray run scale_study --set 'agents=(8, 32)' --set "algorithms=('allreduce', 'ADPSGD')"

A perceptron of 76,810 parameters learns the digits, 448 samples a step that all agents share evenly, at a
millisecond a sample, by the same plain SGD everywhere. The time is virtual, from the first step to the first
agent's first evaluation, one an epoch, with an accuracy of 0.90. Parameter servers are one shard for every
four agents. A straggler is the last agent, four times as slow; ADPSGD does not wait for it.

Beside it stands what one exchange of the gradient costs in closed form (P agents, m parameters of γ bytes, s
shards, latency L, G seconds a byte): through parameter servers T = 2 L + 2 P (γm/s) G, by allreduce
T = 2 L log₂ P + 2 γm G (P−1)/P. The simulated exchange is that of the first step, into which all go at once.
All send to the first shard first, so that the last one hears of them up to one gradient's time (γm G) later:
of the 2 P/s = 8 that the formula has. That order is kept since it is quicker from then on: who is served
first computes while the others are.
The formula of the allreduce is for gradients whose bytes take longer than the latency: a smaller one the
simulation exchanges by recursive doubling, and so more quickly.

Two and four real agents exchange the same gradient; their formula has the latency and the time a byte that
`d5ray doctor --network` measures. What the agents, and the cores they share, do to each other it leaves out.
"""

import d5ray as d5
from d5ray.kits.laboratory.jobs.scaled import ALGORITHMS
from d5ray.kits.laboratory.jobs.scaling import ScaleStudy
from d5ray.kits.laboratory.metrics.simulations import HighestPredictionRatio, LowestPredictionRatio
from d5ray.recipes.engine.command import main

LISTED = ("scale", "7 minutes")  # by `d5ray list`; on two cores

# Fixed components: whoever competes keeps them
FIXED = {
    "job": ScaleStudy,
    "networks": {
        "fast": d5.simulation.UniformLinks(latency_seconds=50e-6, bytes_per_second=1.25e9),  # 10 Gbit/s
        "slow": d5.simulation.UniformLinks(latency_seconds=1e-3, bytes_per_second=12.5e6),  # 100 Mbit/s
    },
    "dataset": "digits",
    "accuracy": 0.9,
}

# Mutable components: what is combined
MUTABLE = {
    "agents": (1, 4, 16, 64),
    "algorithms": tuple(ALGORITHMS),
    "model": "mlp",
    "model_kwargs": {"hidden": (1024,)},
    "optimizer": d5.optimizers.SGD,
    "optimizer_args": (0.2,),
    "samples_per_step": 448,  # of all agents together
    "sample_seconds": 1e-3,
    "factor": 4,
    "epochs": 25,
    "real_agents": (2, 4),
    "real_steps": 100,
    "seed": 1,
}

# Acceptable metrics: virtual times are those of the formulas
METRICS = [
    LowestPredictionRatio("parameter server") >= 0.99,
    HighestPredictionRatio("parameter server") <= 1.1,
    LowestPredictionRatio("allreduce") >= 0.99,
    HighestPredictionRatio("allreduce") <= 1.01,
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
