"""Rate scaling: how the learning rate follows the global batch when agents are fewer or more than planned"""

import math


def rate_factor(rule: str, batch: float) -> float:
    """The learning rate relative to the planned one, for a global batch relative to the planned one.

    'none': 1. 'linear': B / B₀, which keeps the step a sample makes (Goyal et al., arXiv:1706.02677).
    'sqrt': √(B / B₀), which keeps the variance of a step (Krizhevsky, arXiv:1404.5997).

    >>> rate_factor("none", 0.25), rate_factor("linear", 0.25), rate_factor("sqrt", 0.25)
    (1.0, 0.25, 0.5)
    """
    return {"none": 1.0, "linear": batch, "sqrt": math.sqrt(batch)}[rule]
