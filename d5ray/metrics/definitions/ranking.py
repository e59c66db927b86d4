"""Ranking quality: how well scores put positive samples above negative ones"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def area_under_curve(scores: Array, positive: Array) -> float | None:
    """P(s₊ > s₋) + ½ P(s₊ = s₋) over all pairs of a positive and a negative sample; None without any.

    scores: (n,); positive: (n,) of bool. It is the area under the receiver operating characteristic, and
    Mann and Whitney's U over the number of pairs (Hanley and McNeil, doi 10.1148/radiology.143.1.7063747).

    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.9]), np.array([False, False, True, True]))
    0.875
    """
    there = int(positive.sum())
    pairs = there * (len(positive) - there)
    if not pairs:
        return None
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2  # of equal scores, the mean of theirs, from 1
    return float((ranks[group[positive]].sum() - there * (there + 1) / 2) / pairs)
