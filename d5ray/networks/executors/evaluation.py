"""Evaluations over many samples: as many at a time as fit the memory, and what they add up to"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from d5ray.networks.executors.executor import Evaluation
from d5ray.networks.executors.trees import leaves, rows
from d5ray.operators.loss import Loss

Array = np.ndarray[Any, Any]
# The mean loss of some inputs and labels; how many are right, 0 where the loss does not classify; and the
# weight that the loss has given them, if it has.
Judged = tuple[float, int, float | None]
Judge = Callable[[Array, Array], Judged]

LABELS_AT_ONCE = 1024  # so that a large test split fits the memory
BYTES_AT_ONCE = 1 << 24  # of inputs: what the network makes of them is a multiple


def evaluated(judge: Judge, loss: Loss, inputs: Array, labels: Array) -> Evaluation:
    """The evaluation of all samples, as many at a time as fit the memory."""
    batch = samples_at_once(inputs, labels.size if loss.classifies else len(labels))
    total, weights, right, given = 0.0, 0.0, 0, False
    for start in range(0, len(labels), batch):
        truth = labels[start : start + batch]
        mean, found, weight = judge(rows(inputs, slice(start, start + batch)), truth)
        given = weight is not None
        own = counted(loss, truth, len(truth)) if weight is None else weight
        total += mean * own
        weights += own
        right += found
    return concluded(loss, total, right, labels, weights if given else None)


def concluded(
    loss: Loss, total: float, right: float, labels: Array, weight: float | None = None
) -> Evaluation:
    """The evaluation, of a loss that was added up over the samples; right: how many labels are.

    weight: of all samples, where the loss has given it.
    """
    labels = classes_in(loss, labels)
    that_count = counted(loss, labels, labels.size)
    accuracy = right / max(1, that_count) if loss.classifies else math.nan
    samples = counted(loss, labels, len(labels)) if weight is None else weight
    return Evaluation(
        loss=total / (samples or 1),
        accuracy=accuracy,
        weight=samples if weight is not None or loss.ignored is not None else None,
        counted=None if loss.ignored is None else that_count,
    )


def classes_in(loss: Loss, labels: Any) -> Any:
    """The labels; of probabilities of all classes, which some losses take, the likeliest class."""
    real = "float" in str(labels.dtype)
    return labels.argmax(loss.classes_axis) if loss.classifies and real else labels


def counted(loss: Loss, labels: Array, otherwise: int) -> int:
    """The labels that a loss does not ignore; where it ignores none, the other number."""
    return otherwise if loss.ignored is None else loss.counted(classes_in(loss, labels))


def samples_at_once(inputs: Array, labels: int) -> int:
    """The number of samples evaluated at a time, of inputs that have that many labels."""
    arrays: list[Array] = [array for _, array in leaves(inputs)]
    count = len(arrays[0])
    by_labels = LABELS_AT_ONCE * count // max(1, labels)
    by_bytes = BYTES_AT_ONCE * count // max(1, sum(each.nbytes for each in arrays))
    return max(1, min(by_labels, by_bytes))


def judged(loss: Loss, scores: Array, labels: Array) -> Judged:
    """The mean loss of scores, and how many labels have the largest one."""
    right = int((scores.argmax(axis=-1) == labels).sum()) if loss.classifies else 0
    return loss.numpy(scores, labels), right, None
