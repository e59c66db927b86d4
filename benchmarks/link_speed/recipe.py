"""How quickly agents on hosts of their own sum arrays: sockets, plain and under TLS, against gloo.

    d5ray run benchmarks/link_speed        or        python -m benchmarks.link_speed.recipe

Needs root: the hosts are network namespaces of this machine, whose links carry 1 and 10 Gbit/s. Arrays,
times and rounds are those of `benchmarks/allreduce_speed`; OpenMPI is left out, whose `mpirun` reaches other
hosts by ssh. What TLS costs where the processors are quicker than the network is a goal; elsewhere it is
told.
"""

from benchmarks.allreduce_speed.job import AllreduceTimes
from benchmarks.link_speed.hosts import Gloo, OverSockets, UnderTLS
from d5ray.kits.laboratory.metrics.exchanges import AllreduceTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "10 minutes")  # by `d5ray list`; on two cores

SIZES = ("4 B", "4 kB", "64 kB", "1 MB", "10 MB", "100 MB")
AGENTS, GIGABITS = (2, 4), (1, 10)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": AllreduceTimes,
    "comparisons": tuple(
        (OverSockets(agents, gigabits), UnderTLS(agents, gigabits), Gloo(agents, gigabits))
        for agents in AGENTS
        for gigabits in GIGABITS
    ),
}

# Mutable components: how much is measured
MUTABLE = {
    "sizes": SIZES,
    "seconds": 0.15,  # of every size in every group
    "pairs": 6,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(
        AllreduceTimeRatio(OverSockets(agents, gigabits).name, Gloo(agents, gigabits).name, size) <= 1.0
        for agents in AGENTS
        for gigabits in GIGABITS
        for size in SIZES
    ),
    *(
        AllreduceTimeRatio(UnderTLS(agents, gigabits).name, OverSockets(agents, gigabits).name, size)
        <= (1.05 if gigabits == 1 else 3.0)
        for agents in AGENTS
        for gigabits in GIGABITS
        for size in SIZES
    ),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
