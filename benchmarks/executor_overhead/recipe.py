"""What d5ray's executor of a network costs: the model written by hand for the framework beside it.

    d5ray run benchmarks/executor_overhead        or        python -m benchmarks.executor_overhead.recipe

LeNet, ResNet-18 on small images, and a transformer of four layers, each as a Network of ONNX operators that
d5ray has written code of, and as a model that a user of PyTorch or Keras writes. In every fresh process both
infer in turn, and both train in turn: forwards, with the loss, and backwards. NumPy arrays go in, scores or
the loss come out. Before anything counts, both must have given the same scores, loss and gradients.

`FRAMEWORK` says of which framework: with "tensorflow" both sides are a `tf.function`, and Keras's model has
its channels last, and gets images that have them there too.
"""

from typing import Any, Final

from benchmarks.executor_overhead.job import ExecutorOverheads, HandWrittenNetwork
from benchmarks.executor_overhead.metrics import INFERENCE, TRAINING, ExecutorTimeRatio
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "4 minutes")  # by `d5ray list`; on two cores

FRAMEWORK: Final = "torch"  # or "tensorflow", which takes twice as long
GOALS: Final = {"torch": 1.01, "tensorflow": 1.03}

WIDTHS = {"width": 128, "heads": 4, "depth": 4}
NETWORKS: Final[tuple[dict[str, Any], ...]] = (
    {"network": "lenet", "sample_shape": (1, 28, 28), "classes": 10, "batch_size": 64},
    {"network": "resnet18", "sample_shape": (3, 32, 32), "classes": 10, "batch_size": 16},
    {"network": "transformer", "sample_shape": (64,), "classes": 256, "batch_size": 8, "options": WIDTHS},
)
MEASURED = tuple(HandWrittenNetwork(FRAMEWORK, **each) for each in NETWORKS)

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
METRICS = [
    ExecutorTimeRatio(each.name, work) <= GOALS[FRAMEWORK]
    for each in MEASURED
    for work in (INFERENCE, TRAINING)
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
