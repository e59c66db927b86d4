"""The quality of a ranking: the area under the receiver operating characteristic"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from d5ray.kits.workloads.metrics.qualities import AREA
from d5ray.training.events.evaluations import Pieces, Quality

Array = np.ndarray[Any, Any]


@final
class RankingQuality(Quality):
    """The area under the receiver operating characteristic, of a network that tells two classes apart.

    Outputs are (n, 2), the scores of class 0 and of class 1; labels (n,) are 0 or 1. See `AreaUnderCurve`.
    """

    records = (AREA,)

    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        found = [(outputs[:, 1] - outputs[:, 0], labels) for outputs, labels in pieces]
        scores, labels = (np.concatenate(each) for each in zip(*found, strict=True))
        return {AREA: area_under_curve(scores, labels == 1)}


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
