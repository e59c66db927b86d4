"""What a call of an operator through d5ray costs under TensorFlow: its own functions beside it.

    d5ray run benchmarks/operator_overhead_tensorflow        (pip install 'd5ray[tensorflow]')

As `operator_overhead`, both sides as a `tf.function`. On a CPU TensorFlow convolves with channels last alone,
so both transpose.
"""

from benchmarks.operator_overhead.job import OperatorOverheads, UnderFramework
from benchmarks.operator_overhead.recipe import LONG, SHORT
from d5ray.metrics.definitions.operator_calls import AddedTime, OperatorTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

TENSORFLOW = UnderFramework("tensorflow")

# Fixed components: whoever competes keeps them
FIXED = {
    "job": OperatorOverheads,
    "comparisons": ((TENSORFLOW,),),
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
    *(AddedTime(TENSORFLOW.name, problem.name) <= 10e-6 for problem in SHORT),
    *(OperatorTimeRatio(TENSORFLOW.name, problem.name) <= 1.03 for problem in LONG),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
