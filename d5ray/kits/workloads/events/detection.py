"""The quality of a detector: its boxes on the test set against the true ones"""

from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from d5ray.checks import check_count, check_kind, check_share
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.losses.default_boxes import DefaultBoxes
from d5ray.kits.workloads.metrics.average_precision import Boxes, average_precision, overlap
from d5ray.kits.workloads.metrics.qualities import PRECISION, PRECISION_50
from d5ray.training.events.evaluations import Pieces, Quality
from d5ray.training.transformations.images import CentreCrop, Crop, RandomFlip

Array = np.ndarray[Any, Any]


@final
class DetectionQuality(Quality):
    """AP@[.5:.95] and AP@.5, of a network whose output is that of `MultiBoxLoss`; see `MeanAveragePrecision`.

    A class's boxes with a probability of at least `least` are taken, the surest first, but none that overlaps
    one of the same class that was taken by more than `overlap`; the `most` surest of an image are kept.
    """

    records = (PRECISION, PRECISION_50)

    def __init__(
        self, boxes: DefaultBoxes, overlap: float = 0.45, least: float = 0.01, most: int = 100
    ) -> None:
        check_kind("boxes", boxes, DefaultBoxes, "DefaultBoxes, those of the loss")
        check_share("overlap", overlap)
        check_share("least", least)
        check_count("most", most)
        self.boxes = boxes
        self.overlap = overlap
        self.least = least
        self.most = most

    def check(self, experiment: Any) -> None:
        super().check(experiment)
        moving = [one for one in experiment.pipeline if isinstance(one, Crop | CentreCrop | RandomFlip)]
        if moving:
            raise ConfigurationError(
                f"transformations has {moving[0]!r}, which moves what is on an image, but not the boxes "
                "around it: leave it out, or write a transformation that moves both"
            )

    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        detected: list[Boxes] = []
        true: list[Boxes] = []
        for outputs, targets in pieces:
            detected += self.detected(outputs)
            true += [Boxes(each[:, 1:], each[:, 0].astype(np.int64)) for each in _there(targets)]
        found = average_precision(detected, true)  # (thresholds, classes)
        if not found.size:
            return {PRECISION: None, PRECISION_50: None}
        return {PRECISION: float(found.mean()), PRECISION_50: float(found[0].mean())}

    def detected(self, outputs: Array) -> Iterator[Boxes]:
        """The boxes that are found in each of the images: outputs (n, A, 5 + classes)."""
        shifted = outputs[..., 4:] - outputs[..., 4:].max(axis=-1, keepdims=True)
        shares = np.exp(shifted)
        shares = (shares / shares.sum(axis=-1, keepdims=True))[..., 1:]  # (n, A, classes)
        for corners, share in zip(self.boxes.boxes(outputs[..., :4]), shares, strict=True):
            kept = [
                (kind, place)
                for kind in range(share.shape[1])
                for place in self._surest(corners, share[:, kind])
            ]
            kinds = np.array([kind for kind, _ in kept], np.int64)
            places = np.array([place for _, place in kept], np.int64)
            best = np.argsort(-share[places, kinds], kind="stable")[: self.most]
            kinds, places = kinds[best], places[best]
            yield Boxes(corners[places], kinds, share[places, kinds])

    def _surest(self, corners: Array, share: Array) -> list[int]:
        """The places of the boxes (A, 4) that are taken of one class, the surest first."""
        places = np.flatnonzero(share >= self.least)
        places = places[np.argsort(-share[places], kind="stable")][: 4 * self.most]
        near = overlap(corners[places], corners[places]) > self.overlap
        left = np.ones(len(places), bool)
        taken = []
        for row, place in enumerate(places):
            if left[row]:
                taken.append(int(place))
                left &= ~near[row]
        return taken


def _there(targets: Array) -> Iterator[Array]:
    """The rows of each image's targets (n, most, 5) that are boxes."""
    for each in targets:
        yield each[each[:, 0] >= 0]
