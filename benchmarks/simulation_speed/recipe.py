"""What a simulation costs in real time: beside the gradients that it computes, and with a thousand agents.

    d5ray run benchmarks/simulation_speed        or        python -m benchmarks.simulation_speed.recipe

Sixteen agents train LeNet on the digits for 50 steps, 32 samples each, on the virtual clock; in the same
process, in turn, the same executors compute the gradients of the same batches in a plain loop, and nothing
else. The unit is a fresh process.

Then 1,024 agents train a network of 9,985 parameters for 100 steps, one sample each: with a parameter server
of four shards, and on a graph where everyone sends to ten others. One process on one core, from nothing to
the tables on disk; processor time and peak memory are kept beside the real time.
"""

import d5ray as d5
from benchmarks.simulation_speed.job import BesideGradients, OfMany, Simulations
from d5ray.kits.laboratory.metrics.simulations import SimulationOverhead, WallTime
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "11 minutes")  # by `d5ray list`; on two cores

BESIDE = (
    BesideGradients(d5.optimizers.AllreduceSGD(), 16),
    BesideGradients(d5.optimizers.DPSGD(), 16, d5.topologies.Ring),
    BesideGradients(d5.optimizers.ParameterServerSGD(), 16),
    BesideGradients(d5.optimizers.ASGD(), 16),
    BesideGradients(d5.optimizers.ADPSGD(), 16, d5.topologies.Ring),
)
MANY = (
    OfMany(d5.optimizers.ASGD(), 1024, shards=4),
    OfMany(d5.optimizers.DPSGD(), 1024, d5.topologies.Exponential),
)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": Simulations,
    "comparisons": (BESIDE, MANY),
    "model": "lenet",
    "dataset": "digits",
    "optimizer": d5.optimizers.SGD,
    "optimizer_args": (0.05,),
    "many_model": "mlp",
    "many_model_kwargs": {"hidden": (133,)},
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 32,  # of one agent, beside bare gradients
    "steps": 50,
    "seconds": 8.0,  # of every process
    "many_batch_size": 1,
    "many_steps": 100,
    "many_rounds": 1,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(SimulationOverhead(contender.name) <= 1.3 for contender in BESIDE),
    *(WallTime(contender.name) <= 180 for contender in MANY),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
