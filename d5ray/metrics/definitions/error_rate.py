"""The label error rate: how far sequences are from the true ones, in insertions, deletions and changes"""

from collections.abc import Sequence

import numpy as np


def edits(found: Sequence[int], true: Sequence[int]) -> int:
    """The fewest insertions, deletions and changes that make one of the other (Levenshtein's distance).

    >>> edits([1, 2, 3], [2, 3, 4])
    2
    """
    steps = np.arange(len(true) + 1)
    row = steps.copy()  # from the labels so far to each beginning of the true ones
    for label in found:
        by_change = row[:-1] + (np.asarray(true) != label)
        best = np.r_[row[0] + 1, np.minimum(by_change, row[1:] + 1)]
        row = np.minimum.accumulate(best - steps) + steps  # insertions, one after the other
    return int(row[-1])


def error_rate(found: Sequence[Sequence[int]], true: Sequence[Sequence[int]]) -> float | None:
    """The edits of all sequences over all true labels; None without any."""
    labels = sum(map(len, true))
    return sum(map(edits, found, true)) / labels if labels else None
