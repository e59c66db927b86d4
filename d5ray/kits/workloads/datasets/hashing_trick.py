"""Values of many fields as rows of one embedding: the hashing trick"""

from typing import Any

import numpy as np
import numpy.typing as npt

from d5ray.training.batches import sample_randomness

Integers = npt.NDArray[np.int64]


def hashed(values: npt.NDArray[Any], field: int, buckets: int) -> Integers:
    """The row (n,) of 0..buckets−1 of each value (n,) uint64; equal values of another field have other rows.

    Two values may fall into one row, rarely if there are many (Weinberger et al., arXiv:0902.2206).
    """
    keys = sample_randomness.mixed(values.astype(np.uint64), 0xF1E1D, field)
    return (keys % np.uint64(buckets)).astype(np.int64)
