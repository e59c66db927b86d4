"""How quickly agents sum arrays: d5ray's shared memory and sockets against torch.distributed and OpenMPI.

    d5ray run benchmarks/allreduce_speed        or        python -m benchmarks.allreduce_speed.recipe

Allreduces of float32 arrays, from one value to 100 MB, between two and four processes of this machine with
one thread each. d5ray's arrays come from `communicator.allocate`, as in training; `torch.distributed` and
OpenMPI (`apt-get install openmpi-bin libopenmpi-dev`, `pip install 'd5ray[mpi]'`) get arrays of their own.
The time of an allreduce is that of its slowest rank; the unit is a round of fresh process groups, forwards
and backwards in turn.
"""

from benchmarks.allreduce_speed.baselines import ThroughD5ray, ThroughMPI, ThroughTorch
from benchmarks.allreduce_speed.job import AllreduceTimes
from d5ray.kits.laboratory.metrics.exchanges import AllreduceSpeedup, AllreduceTime, AllreduceTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "5 minutes")  # by `d5ray list`; on two cores

SIZES = ("4 B", "4 kB", "64 kB", "256 kB", "1 MB", "10 MB", "100 MB")
LARGE = SIZES[3:]

# Fixed components: whoever competes keeps them
FIXED = {
    "job": AllreduceTimes,
    "comparisons": tuple(
        (
            ThroughMPI(agents),
            ThroughD5ray("shared_memory", agents),
            ThroughTorch(agents),
            ThroughMPI(agents, tcp=True),
            ThroughD5ray("socket", agents),
        )
        for agents in (2, 4)
    ),
}

# Mutable components: how much is measured
MUTABLE = {
    "sizes": SIZES,
    "seconds": 0.15,  # of every size in every group
    "pairs": 10,
    "seed": 1,
}

# Acceptable metrics
FAR_AHEAD = {"1 MB": 20, "10 MB": 10, "100 MB": 4}  # times as fast as gloo, between two agents
METRICS = [
    *(
        AllreduceSpeedup("d5ray shared_memory[2]", "torch gloo[2]", size) >= FAR_AHEAD.get(size, 1)
        for size in SIZES
    ),
    *(AllreduceSpeedup("d5ray shared_memory[4]", "torch gloo[4]", size) >= 1 for size in SIZES),
    *(
        AllreduceSpeedup("d5ray shared_memory[2]", "openmpi[2]", size) >= (2 if size in FAR_AHEAD else 1)
        for size in LARGE
    ),
    *(AllreduceSpeedup("d5ray shared_memory[4]", "openmpi[4]", size) >= 1 for size in LARGE),
    AllreduceTime("d5ray shared_memory[2]", "4 kB") <= 50e-6,
    *(
        AllreduceTimeRatio(f"d5ray socket[{agents}]", f"{peer}[{agents}]", size) <= 1.0
        for peer in ("torch gloo", "openmpi tcp")
        for agents in (2, 4)
        for size in SIZES
    ),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
