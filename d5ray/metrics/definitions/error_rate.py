"""The label error rate: how far sequences are from the true ones, in insertions, deletions and changes"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.metrics.definitions.families import LastEvaluation

ERROR_RATE = "label_error_rate"


@final
class LabelErrorRate(LastEvaluation):
    """Edits that make the found sequences the true ones, over the true labels: rows of `SequenceErrors`.

    Where labels are words it is the word error rate.
    """

    name = ERROR_RATE
    direction = "min"
    description = "edits from the sequences that were found to the true ones, over the number of true labels"


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
