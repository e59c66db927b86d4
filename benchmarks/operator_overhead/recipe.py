"""What a call of an operator through d5ray costs: PyTorch's own functions beside it, at DeepBench's sizes.

    d5ray run benchmarks/operator_overhead        or        python -m benchmarks.operator_overhead.recipe

Products and convolutions of DeepBench's training and inference sets, forwards, without autograd. In every
fresh process d5ray's built function and the native one work in turn on the same arrays; before anything
counts, both must have given the same outputs. Calls that take less than a millisecond are judged by the time
that is added to them, longer ones by the ratio.
"""

from benchmarks.operator_overhead.job import OperatorOverheads, UnderFramework
from d5ray.metrics.definitions.operator_calls import AddedTime, OperatorTimeRatio
from d5ray.ops.deepbench.problems import convolution, gemm
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

TORCH = UnderFramework("torch")
# Below a millisecond on any processor of today
SHORT = (
    gemm(512, 1, 512, "NN"),
    gemm(512, 16, 512, "NN"),
    gemm(512, 16, 512, "NT"),
    gemm(1024, 16, 512, "NN"),
    convolution(1, (14, 14, 256, 256, 1, 1, 0, 1)),
    convolution(1, (7, 7, 512, 512, 1, 1, 0, 1)),
    convolution(1, (60, 6, 64, 128, 3, 3, 1, 1)),
)
# A millisecond or more: at least half a GFLOP on one thread
LONG = (
    gemm(1760, 128, 1760, "NN"),
    gemm(1760, 128, 1760, "TN"),
    gemm(1024, 700, 512, "NN"),
    gemm(3072, 128, 1024, "TN"),
    convolution(16, (28, 28, 192, 32, 5, 5, 2, 1)),
    convolution(8, (28, 28, 128, 128, 3, 3, 1, 1)),
    convolution(8, (14, 14, 256, 1024, 1, 1, 0, 1)),
)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": OperatorOverheads,
    "comparisons": ((TORCH,),),
    "problems": (*SHORT, *LONG),
}

# Mutable components: how much is measured
MUTABLE = {
    "threads": 1,
    "seconds": 0.5,  # of every problem
    "pairs": 10,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(AddedTime(TORCH.name, problem.name) <= 10e-6 for problem in SHORT),
    *(OperatorTimeRatio(TORCH.name, problem.name) <= 1.01 for problem in LONG),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
