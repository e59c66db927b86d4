"""What d5ray's executor of a network costs under TensorFlow: the Keras model written by hand beside it.

    d5ray run benchmarks/executor_overhead_tensorflow        (pip install 'd5ray[tensorflow]')

As `executor_overhead`, both sides as a `tf.function`. The model that is written by hand has its channels
last, and gets images that have them there too.
"""

from benchmarks.executor_overhead.job import ExecutorOverheads, HandWrittenNetwork
from benchmarks.executor_overhead.metrics import INFERENCE, TRAINING, ExecutorTimeRatio
from benchmarks.executor_overhead.recipe import NETWORKS
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "8 minutes")  # by `d5ray list`; on two cores

MEASURED = tuple(HandWrittenNetwork("tensorflow", **each) for each in NETWORKS)

# Fixed components: whoever competes keeps them
FIXED = {
    "job": ExecutorOverheads,
    "comparisons": tuple((each,) for each in MEASURED),
}

# Mutable components: how much is measured
MUTABLE = {
    "threads": 1,
    "seconds": 4.0,  # of each kind of pass
    "pairs": 10,
    "seed": 1,
}

# Acceptable metrics
METRICS = [ExecutorTimeRatio(each.name, work) <= 1.03 for each in MEASURED for work in (INFERENCE, TRAINING)]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
