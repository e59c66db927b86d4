"""How quickly agents push and pull: d5ray's parameter server against two that Ray users write.

    d5ray run benchmarks/server_speed        or        python -m benchmarks.server_speed.recipe

Two and four agents of one machine push a gradient and pull the parameters, 1 to 100 MB of float32; an update
is both, and the rate that of all agents together. d5ray's server has two shards, one for every core.
`ray docs` is the asynchronous parameter server of Ray's documentation, in NumPy: gradients and weights are
arguments and results of actor calls, and the driver passes on every one of them. In `ray snapshots` the
agents loop by themselves, and the server puts every version into Ray's object store once, from where they
pull it by its reference. All end with the parameters in memory that the agent may write to. Before a rate
counts, the parameters must be those that all pushes make. The unit is a round of fresh processes, forwards
and backwards in turn.

`one push` compares the time of a push in the shard with that of x ← x − η g by itself, which reads x and g
once and writes x once, in one process.
"""

from benchmarks.server_speed.baselines import AsDocumented, ServiceAndUpdate, ThroughServers, ThroughSnapshots
from benchmarks.server_speed.job import ServerUpdates
from d5ray.kits.laboratory.metrics.rates import ServiceTimeRatio, UpdateRateRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "5 minutes")  # by `d5ray list`; on two cores

SIZES = ("1 MB", "10 MB", "100 MB")
AGENTS = (2, 4)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": ServerUpdates,
    "comparisons": (
        *((ThroughServers(agents), AsDocumented(agents), ThroughSnapshots(agents)) for agents in AGENTS),
        (ServiceAndUpdate(),),
    ),
}

# Mutable components: how much is measured
MUTABLE = {
    "sizes": SIZES,
    "seconds": 1.0,  # of every size in every group
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(
        UpdateRateRatio(f"d5ray[{agents}]", f"{peer}[{agents}]", size) >= 5
        for agents in AGENTS
        for peer in ("ray docs", "ray snapshots")
        for size in SIZES
    ),
    *(ServiceTimeRatio("one push[1]", size) <= 1.2 for size in SIZES),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
