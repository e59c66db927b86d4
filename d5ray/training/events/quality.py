"""Qualities that an evaluation measures beside loss and accuracy: one's own, and that of a ranking"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from d5ray.metrics.definitions.qualities import AREA
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.events.event import Event, check_evaluates
from d5ray.training.events.moment import Moment

Array = np.ndarray[Any, Any]
Pieces = Iterator[tuple[Array, Array]]  # outputs (n, ...) of the network, and the targets (n, ...)
PIECE = 256  # samples


class Quality(Event, ABC):
    """Subclass it, name what it measures in `records`, and write `measure`; it is one of the `events`.

    Every evaluation ends with a pass of its own over its samples. A criterion on a value is one on a
    `LastEvaluation` of its name.
    """

    @abstractmethod
    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        """A value for every name in `records`: of the network's outputs and the targets, piece by piece.

        None is a value that cannot be told. Outputs are those of `Executor.inference`.
        """

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)

    @final
    def after_test(self, moment: Moment) -> None:
        tested = pieces_to_test(moment.evaluated, moment.transformations, PIECE)
        found = self.measure((moment.executor.inference(inputs), targets) for inputs, targets in tested)
        for name in self.records:
            moment.record(name, found[name], phase=moment.split, step=moment.step - 1)


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
