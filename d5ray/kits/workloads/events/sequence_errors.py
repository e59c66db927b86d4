"""The quality of a network that writes down sequences: what it makes of frames, beside what is true"""

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.losses.ctc_loss import CTCLoss
from d5ray.kits.workloads.metrics.qualities import ERROR_RATE
from d5ray.training.events.evaluations import Pieces, Quality


@final
class SequenceErrors(Quality):
    """The label error rate of a network whose loss is `CTCLoss`; see `LabelErrorRate`.

    Of every frame the likeliest is taken, repetitions are left out, then blanks (best path decoding, Graves
    et al., doi 10.1145/1143844.1143891, section 3.2).
    """

    records = (ERROR_RATE,)

    def check(self, experiment: Any) -> None:
        super().check(experiment)
        if not isinstance(experiment.loss, CTCLoss):
            raise ConfigurationError(
                f"{self!r} reads the scores of frames, which {experiment.loss!r} does not train: set "
                "loss=d5.operators.CTCLoss()"
            )

    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        found: list[list[int]] = []
        true: list[list[int]] = []
        for outputs, labels in pieces:
            found += [best_path(scores) for scores in outputs]
            true += [row[row >= 0].tolist() for row in labels]
        return {ERROR_RATE: error_rate(found, true)}


def best_path(scores: npt.NDArray[np.floating[Any]]) -> list[int]:
    """The labels of scores (frames, classes + 1), the last of which is the blank's.

    >>> best_path(np.eye(3)[[0, 0, 2, 0, 1, 2]])
    [0, 0, 1]
    """
    likeliest = scores.argmax(axis=1)
    begins = np.r_[True, likeliest[1:] != likeliest[:-1]]
    labels: list[int] = likeliest[begins & (likeliest != scores.shape[1] - 1)].tolist()
    return labels


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
