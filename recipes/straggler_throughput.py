"""Cost of one slow agent for all: samples a second of synchronous and of asynchronous training, side by side.

    d5ray run straggler_throughput        or        python -m d5ray.recipes.straggler_throughput

LeNet on the digits by four agents, one of which takes four times as long for a gradient. The rate is the sum
over the agents of the samples that each trains a second in its own steps, while all of them train. Without
any cost of exchanges a synchronous training has 4 samples where an asynchronous one has 3 · 4 + 1 = 13: a
ratio of 3.25.

Each rule runs three times. `ASGD[4]` are agents that compute on the cores there are: with fewer than four
they wait for cores as well as for each other. On `devices` a gradient takes 20 ms more, the slow agent's 80,
in which the core is free, as if every agent had a device of its own to compute on. `simulated` are agents on
the virtual clock, whose gradients take 20 ms, over 50 µs and 10 Gbit/s. The unit is a round of fresh
processes, forwards and backwards in turn; a simulation gives the same in every round.
"""

import d5ray as d5
from d5ray.kits.laboratory.jobs.stragglers import OnCores, OnDevices, Simulated, StragglerRates
from d5ray.kits.laboratory.metrics.rates import SampleRateRatio
from d5ray.recipes.engine.command import main

LISTED = ("scale", "12 minutes")  # by `d5ray list`; on two cores

ASYNCHRONOUS = (d5.optimizers.ASGD(), d5.optimizers.ADPSGD())
SYNCHRONOUS = (d5.optimizers.ParameterServerSGD(), d5.optimizers.AllreduceSGD())
WORLDS = (Simulated, OnDevices, OnCores)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": StragglerRates,
    "comparisons": tuple(tuple(world(rule, 4) for rule in (*ASYNCHRONOUS, *SYNCHRONOUS)) for world in WORLDS),
    "model": "lenet",
    "dataset": "digits",
    "optimizer": d5.optimizers.Momentum,
    "optimizer_args": (0.05, 0.9),
    "factor": 4,
}

# Mutable components: how much is measured
MUTABLE = {
    "batch_size": 32,  # of one agent
    "threads": 1,
    "device_seconds": 0.02,
    "steps": 100,  # of every agent, on devices and in the simulation
    "core_steps": 400,
    "warmup_steps": 10,
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    SampleRateRatio(world(quick, 4).name, world(slow, 4).name) >= 3
    for world in WORLDS
    for quick in ASYNCHRONOUS
    for slow in SYNCHRONOUS
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
