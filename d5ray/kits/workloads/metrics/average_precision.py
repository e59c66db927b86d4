"""The average precision of detected boxes, as COCO defines it"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]
THRESHOLDS: Final = np.linspace(0.5, 0.95, 10)  # of overlap
RECALLS: Final = np.linspace(0.0, 1.0, 101)
MOST: Final = 100  # detections of a class in an image that count


@final
@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of one image: corners (n, 4) as x₁, y₁, x₂, y₂, classes (n,), and scores (n,) if detected."""

    corners: Floats
    classes: Integers
    scores: Floats | None = None


def average_precision(
    detected: Sequence[Boxes], true: Sequence[Boxes], thresholds: Floats = THRESHOLDS
) -> npt.NDArray[np.float64]:
    """(thresholds, classes): for the classes that a true box has, in their order, AP at each overlap.

    The images' boxes in the same order. At each overlap, the detections of a class, the surest first, take
    the box of the same image and class that overlaps most and is not taken, if it does so by the threshold
    at least; who gets none is wrong. AP is the mean over the recalls 0, 0.01, …, 1 of the highest precision
    at that recall or a higher one, 0 where it is not reached. A class has at most 100 detections an image.
    Boxes "iscrowd" and sizes of area are not known here. (Lin et al., arXiv:1405.0312, and its `COCOeval`.)
    """
    classes = sorted({int(each) for boxes in true for each in boxes.classes})
    found = np.zeros((len(thresholds), len(classes)))
    for column, kind in enumerate(classes):
        scores, hits, count = [], [], 0
        for ours, theirs in zip(detected, true, strict=True):
            assert ours.scores is not None
            own, truth = ours.classes == kind, theirs.corners[theirs.classes == kind]
            order = np.argsort(-ours.scores[own], kind="stable")[:MOST]
            scores.append(ours.scores[own][order])
            hits.append(_hits(overlap(ours.corners[own][order], truth), thresholds))
            count += len(truth)
        order = np.argsort(-np.concatenate(scores), kind="stable")
        found[:, column] = [_area(hit[order], count) for hit in np.concatenate(hits, axis=1)]
    return found


def overlap(first: Floats, second: Floats) -> Floats:
    """Intersection over union (n, m) of boxes (n, 4) and (m, 4), each x₁, y₁, x₂, y₂."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.maximum(high - low, 0.0), axis=2)
    areas = [np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), axis=1) for boxes in (first, second)]
    union = areas[0][:, None] + areas[1][None, :] - shared
    share: Floats = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return share


def _hits(overlaps: Floats, thresholds: Floats) -> npt.NDArray[np.bool_]:
    """(thresholds, n): which of the detections, the surest first, get a true box of (n, m) overlaps."""
    hits = np.zeros((len(thresholds), len(overlaps)), bool)
    if not overlaps.size:
        return hits
    least, last = np.minimum(thresholds, 1 - 1e-10), overlaps.shape[1] - 1
    left = np.repeat(overlaps[None], len(thresholds), axis=0)  # (thresholds, n, m), -1 where it is taken
    for place in np.flatnonzero(overlaps.max(axis=1) >= least.min()):
        best = last - left[:, place, ::-1].argmax(axis=1)  # of equal ones the last, as COCOeval
        got = np.flatnonzero(left[np.arange(len(least)), place, best] >= least)
        hits[got, place] = True
        left[got, :, best[got]] = -1.0
    return hits


def _area(hits: npt.NDArray[np.bool_], count: int) -> float:
    """The average precision of detections (n,), the surest first, of `count` boxes."""
    if not len(hits):
        return 0.0
    right = np.cumsum(hits)
    precision = np.maximum.accumulate((right / np.arange(1, len(hits) + 1))[::-1])[::-1]
    places = np.searchsorted(right / count, RECALLS, side="left")
    reached = places < len(hits)
    return float(np.where(reached, precision[np.minimum(places, len(hits) - 1)], 0.0).mean())
