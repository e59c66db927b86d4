"""Claims about average precision: COCO's own implementation finds the same, and small cases by hand"""

import contextlib
import io
from collections.abc import Sequence

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from d5ray.kits.workloads.metrics.average_precision import Boxes, average_precision, overlap


def by_coco(detected: Sequence[Boxes], true: Sequence[Boxes]) -> tuple[float, float]:
    """AP@[.5:.95] and AP@.5 by pycocotools, which takes boxes as left, top, width, height."""

    def listed(boxes: Boxes, image: int) -> list[dict[str, object]]:
        return [
            {"image_id": image, "category_id": int(kind) + 1, "iscrowd": 0, "area": float(w * h),
             "bbox": [float(x), float(y), float(w), float(h)]}
            for (x, y, w, h), kind in zip(
                np.concatenate([boxes.corners[:, :2], boxes.corners[:, 2:] - boxes.corners[:, :2]], axis=1),
                boxes.classes, strict=True,
            )
        ]  # fmt: skip

    truths = [each for image, boxes in enumerate(true) for each in listed(boxes, image)]
    found = []
    for image, boxes in enumerate(detected):
        assert boxes.scores is not None
        for each, score in zip(listed(boxes, image), boxes.scores, strict=True):
            found.append(each | {"score": float(score)})
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {}, "images": [{"id": image} for image in range(len(true))],
            "annotations": [each | {"id": place + 1} for place, each in enumerate(truths)],
            "categories": [{"id": kind + 1} for kind in range(4)],
        }  # fmt: skip
        coco.createIndex()
        evaluation = COCOeval(coco, coco.loadRes(found), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return float(evaluation.stats[0]), float(evaluation.stats[1])


def images(rng: np.random.Generator, count: int) -> tuple[list[Boxes], list[Boxes]]:
    """True boxes, and detections near them: some twice, some of the wrong class, some of nothing, ties."""
    detected, true = [], []
    for _ in range(count):
        corner = rng.uniform(0, 60, (int(rng.integers(0, 6)), 2))
        truth = np.concatenate([corner, corner + rng.uniform(5, 40, corner.shape)], axis=1)
        kinds = rng.integers(0, 4, len(truth))
        copies = rng.integers(0, 3, len(truth))
        near = np.repeat(truth, copies, axis=0) + rng.normal(0, 3, (copies.sum(), 4))
        near[:, 2:] = np.maximum(near[:, 2:], near[:, :2] + 1)
        classes = np.where(
            rng.random(len(near)) < 0.8, np.repeat(kinds, copies), rng.integers(0, 4, len(near))
        )
        scores = rng.integers(0, 20, len(near)) / 20
        detected.append(Boxes(near, classes, scores))
        true.append(Boxes(truth, kinds))
    return detected, true


@pytest.mark.parametrize("seed", range(5))
def test_it_is_that_of_pycocotools(seed: int) -> None:
    """In boxes of 5 to 40 pixels, 40 images, four classes."""
    detected, true = images(np.random.default_rng(seed), 40)
    found = average_precision(detected, true)
    assert found.shape == (10, 4)
    expected = by_coco(detected, true)
    assert 0.05 < expected[0] < expected[1] < 0.95
    assert (found.mean(), found[0].mean()) == pytest.approx(expected, abs=1e-9)


def test_more_than_a_hundred_detections_of_an_image_do_not_count() -> None:
    rng = np.random.default_rng(1)
    truth = np.array([[0.0, 0.0, 10.0, 10.0]])
    far = np.tile([[50.0, 50.0, 60.0, 60.0]], (120, 1))
    corners, scores = np.concatenate([far, truth]), np.append(rng.random(120) + 1, 0.5)
    detected = [Boxes(corners, np.zeros(121, int), scores)]
    true = [Boxes(truth, np.zeros(1, int))]
    assert average_precision(detected, true).max() == 0.0 == by_coco(detected, true)[0]


def test_small_cases_by_hand() -> None:
    """All found: 1. Half found, the wrong one surer: precision 1/2 up to recall 1/2, 51 of 101 recalls."""
    truth = np.array([[0.0, 0.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    kinds = np.zeros(2, int)
    assert (average_precision([Boxes(truth, kinds, np.ones(2))], [Boxes(truth, kinds)]) == 1.0).all()
    half = Boxes(np.array([[40.0, 40.0, 50.0, 50.0], truth[0]]), kinds, np.array([0.9, 0.8]))
    np.testing.assert_allclose(average_precision([half], [Boxes(truth, kinds)]), 0.5 * 51 / 101)
    nothing = Boxes(np.empty((0, 4)), np.empty(0, int), np.empty(0))
    assert (average_precision([nothing], [Boxes(truth, kinds)]) == 0.0).all()
    assert average_precision([nothing], [nothing]).shape == (10, 0)


def test_overlap_is_intersection_over_union() -> None:
    boxes = np.array([[0.0, 0.0, 2.0, 2.0], [1.0, 1.0, 3.0, 3.0], [5.0, 5.0, 5.0, 9.0]])
    expected = np.array([[1, 1 / 7, 0], [1 / 7, 1, 0], [0, 0, 0]])
    np.testing.assert_allclose(overlap(boxes, boxes), expected)
