"""What a custom operator costs, in Python and in C++: PyTorch's own function of the same beside it.

    d5ray run benchmarks/custom_overhead        or        python -m benchmarks.custom_overhead.recipe

The cube of one number, forwards, and forwards and backwards, in turn in fresh processes: what is longer than
PyTorch's own is the way into the operator and out again. `--set elements=1000000` asks for large tensors.
"""

from benchmarks.custom_overhead.job import CustomOperator, CustomOverheads
from benchmarks.custom_overhead.passes import BOTH, FORWARD
from d5ray.metrics.definitions.operator_calls import AddedTime
from d5ray.recipes.engine.command import main

LISTED = ("benchmarks", "2 minutes")  # by `d5ray list`; on two cores

LANGUAGES = (CustomOperator("Python"), CustomOperator("C++"))

# Fixed components: whoever competes keeps them
FIXED = {
    "job": CustomOverheads,
    "comparisons": tuple((each,) for each in LANGUAGES),
}

# Mutable components: how much is measured
MUTABLE = {
    "elements": 1,
    "threads": 1,
    "seconds": 0.5,  # of each pass
    "pairs": 10,
    "seed": 1,
}

# Acceptable metrics
METRICS = [
    *(AddedTime(each.name, FORWARD) <= 10e-6 for each in LANGUAGES),
    *(AddedTime(each.name, BOTH) <= 20e-6 for each in LANGUAGES),
]

if __name__ == "__main__":
    main(FIXED, MUTABLE, METRICS)
