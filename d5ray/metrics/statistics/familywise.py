"""Familywise error: which of many metrics differ, by levels that hold for the whole family of them

Holm's step-down procedure (Scandinavian Journal of Statistics 6, 1979) with levels from the signs of pairs,
which keep how metrics depend on each other: Westfall and Young, Resampling-Based Multiple Testing (1993),
algorithm 2.8.
"""

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FAMILY_LEVEL: Final = 0.05  # how often equal sides may be told apart by any of the metrics
MOST_SIGNS: Final = 1 << 13  # of pairs: all of them up to 13 pairs, that many random ones of more


def adjusted_levels(differences: Floats) -> Floats:
    """(metrics,): the level at which each metric's differences are positive, among all metrics together.

    differences: (pairs, metrics), such as log-ratios; NaN where a pair has no value.

    Where both sides of a pair are equal in all, it is chance which of them is called the first: every choice
    of a sign for each pair, the same for all metrics, is as probable as the one that was found. The level of
    a metric is the share of choices in which some metric has as large a mean over its standard deviation;
    those that are larger in what was found are left out one after the other. No distribution is assumed, and
    with six pairs a level can be as low as 1/64, however many metrics there are.

    >>> adjusted_levels(np.array([[1.0, 0.2], [1.1, -0.1], [0.9, 0.1], [1.0, -0.2], [1.2, 0.3], [0.8, 0.0]]))
    array([0.015625, 0.34375 ])
    """
    there = np.isfinite(differences)
    values, n = np.where(there, differences, 0.0), np.maximum(there.sum(axis=0), 1)
    means = _signs(len(differences)) @ values / n  # (choices, metrics); the first is what was found
    squares = np.sum(values**2, axis=0) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        # mean over root mean square: it grows with Student's t, and is 1 where all differences are equal
        sizes = np.where(squares > 0, means / np.sqrt(squares), 0.0)
    found = sizes[0]
    order = np.argsort(-found)
    largest = np.maximum.accumulate(sizes[:, order[::-1]], axis=1)[
        :, ::-1
    ]  # of a metric and all smaller ones
    levels = np.mean(largest >= found[order] - 1e-9, axis=0)
    adjusted = np.empty(len(found))
    adjusted[order] = np.maximum.accumulate(levels)
    return adjusted


@lru_cache(maxsize=16)
def _signs(pairs: int) -> Floats:
    """(choices, pairs) of 1 and −1, the first all 1."""
    if 1 << pairs <= MOST_SIGNS:
        bits = np.arange(1 << pairs)[:, None] >> np.arange(pairs) & 1
    else:
        bits = np.random.default_rng(0).integers(0, 2, (MOST_SIGNS, pairs))
        bits[0] = 0
    return (1 - 2 * bits).astype(np.float64)
