"""Claims about images with boxes: drawn shapes fill their boxes, and COCO's files are read as published"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from d5ray.errors import DataError
from d5ray.kits.workloads.metrics.average_precision import overlap
from d5ray.training.datasets.catalogue import load_dataset


def test_a_shape_fills_its_box() -> None:
    """Without noise: outside of all boxes there is the ground alone, each box's sides touch its shape."""
    data = load_dataset("shapes", samples=30, test_samples=0, noise=0.0, seed=3)
    for image, targets in zip(data.train.inputs, data.train.labels, strict=True):
        boxes = targets[targets[:, 0] >= 0]
        assert 1 <= len(boxes) <= 3 and set(boxes[:, 0]) <= {0.0, 1.0, 2.0}
        covered = np.zeros((64, 64), bool)
        for x1, y1, x2, y2 in np.round(boxes[:, 1:] * 64).astype(int):
            covered[y1:y2, x1:x2] = True
        ground = image[:, ~covered][:, :1]
        assert (image[:, ~covered] == ground).all()
        for x1, y1, x2, y2 in np.round(boxes[:, 1:] * 64).astype(int):
            drawn = (image[:, y1:y2, x1:x2] != ground[..., None]).any(axis=0)
            assert drawn[0].any() and drawn[-1].any() and drawn[:, 0].any() and drawn[:, -1].any()
        apart = overlap(boxes[:, 1:], boxes[:, 1:]) - np.eye(len(boxes))
        assert apart.max() <= 0.1 + 1e-6


def test_shapes_follow_from_their_seed() -> None:
    first, again, other = (load_dataset("shapes", samples=5, test_samples=5, seed=seed) for seed in (1, 1, 2))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert not np.array_equal(first.train.inputs, first.test.inputs)
    assert first.train.highest_label == -1 and first.sample_shape == (3, 64, 64)


IMAGES: list[dict[str, Any]] = [
    {"id": 7, "file_name": "a.jpg", "width": 40, "height": 20},
    {"id": 9, "file_name": "b.jpg", "width": 20, "height": 20},
    {"id": 8, "file_name": "c.jpg", "width": 20, "height": 20},
]
CATEGORIES = [{"id": 3, "name": "cat"}, {"id": 1, "name": "dog"}, {"id": 90, "name": "tooth"}]


def box(image: int, category: int, *bbox: float, crowd: int = 0) -> dict[str, Any]:
    return {"image_id": image, "category_id": category, "bbox": list(bbox), "iscrowd": crowd}


ANNOTATIONS = [
    box(7, 3, 4, 2, 8, 4), box(7, 1, 0, 0, 40, 20), box(7, 90, 1, 1, 2, 2), box(7, 3, 0, 0, 30, 20, crowd=1),
    box(9, 90, 5, 5, 10, 20), box(9, 1, 0, 0, 0, 5),
]  # fmt: skip


def write_coco(folder: Path) -> None:
    """Training and validation have the same three images, in red, green and blue."""
    (folder / "annotations").mkdir(parents=True)
    for part in ("train2017", "val2017"):
        (folder / part).mkdir()
        for channel, image in enumerate(IMAGES):
            pixels = np.zeros((image["height"], image["width"], 3), np.uint8)
            pixels[..., channel] = 200
            Image.fromarray(pixels).save(folder / part / str(image["file_name"]), quality=95)
        found = {"images": IMAGES, "annotations": ANNOTATIONS, "categories": CATEGORIES}
        (folder / "annotations" / f"instances_{part}.json").write_text(json.dumps(found))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder in which coco/ is."""
    write_coco(tmp_path / "coco")
    return tmp_path


def test_coco_is_read_as_it_was_published(root: Path) -> None:
    """Categories by id, boxes as shares of the image, the largest first; no crowds, no empty boxes."""
    data = load_dataset("coco", root=root, size=16, most=2)
    assert data.classes == ("dog", "cat", "tooth") and data.sample_shape == (3, 16, 16)
    assert len(data.train) == len(data.test) == 2
    inputs, targets = data.train.take(np.array([1, 0]))
    np.testing.assert_allclose(targets[1], [[0.0, 0, 0, 1, 1], [1, 0.1, 0.1, 0.3, 0.3]], rtol=1e-6)
    np.testing.assert_allclose(
        targets[0], [[2.0, 0.25, 0.25, 0.75, 1.0], 5 * [-1.0]], rtol=1e-6
    )  # cut at the edge
    assert inputs[0].mean(axis=(1, 2)).argmax() == 1 and inputs[1].mean(axis=(1, 2)).argmax() == 0


def test_coco_can_be_narrowed_to_categories(root: Path) -> None:
    data = load_dataset("coco", root=root, size=16, categories=("tooth", "cat"))
    assert data.classes == ("cat", "tooth")
    _, targets = data.test.take(np.arange(2))
    assert [row[row[:, 0] >= 0, 0].tolist() for row in targets] == [[0, 1], [1]]


def test_what_is_wrong_with_coco_is_said(root: Path) -> None:
    """A category that is not there, an annotation file that is damaged, an image that is none."""
    with pytest.raises(DataError, match="found no category 'bird', only dog, cat, tooth"):
        load_dataset("coco", root=root, categories=("bird",))
    (root / "coco" / "train2017" / "a.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"a.jpg: found an unreadable image"):
        load_dataset("coco", root=root).train.take(np.array([0]))
    (root / "coco" / "annotations" / "instances_val2017.json").write_text("{")
    with pytest.raises(DataError, match=r"instances_val2017\.json: found an unreadable file"):
        load_dataset("coco", root=root)
