"""COCO: photographs and the boxes of what is on them; read when they are asked for"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import DataError
from d5ray.kits.workloads.datasets.drawn_shapes import NO_BOX
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.image_files import image_shape, squeezed
from d5ray.training.datasets.published_files import by_hand, folders_of, reading, unfit
from d5ray.training.datasets.samples import Array, Labels, OnDemand

ADDRESS = "https://cocodataset.org"


@final
class BoxedImages(OnDemand):
    """Images (3, H, W) of 0..1 from files, squeezed to one size, and their boxes (N, most, 5).

    folder: what the names (N,) are relative to; agents get the path, so every node must have it.
    """

    def __init__(self, folder: Path, names: list[str], boxes: npt.NDArray[np.float32], size: object) -> None:
        self.folder, self.sample_shape = folder, image_shape(size, 3)
        self._names, self._boxes = names, boxes

    def __len__(self) -> int:
        return len(self._names)

    @property
    def labels(self) -> Labels:
        """The boxes of each image, (N, most, 5)."""
        return self._boxes

    @property
    def highest_label(self) -> int:
        return -1

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        inputs = np.empty((len(indices), *self.sample_shape), np.float32)
        for place, index in enumerate(indices):
            file = self.folder / self._names[index]
            inputs[place] = squeezed(file, self.sample_shape, str(file))
        return inputs, self._boxes[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """The files' names, the boxes, and the size that images get; not what the files hold."""
        digest.update(f"{part} boxes {self.sample_shape} {self._boxes.shape} {self._names}\n".encode())
        digest.update(self._boxes.astype("<f4", copy=False).tobytes())


def load_coco(
    root: Path,
    download: bool,
    *,
    size: int | tuple[int, int] = 128,
    most: int = 16,
    year: int = 2017,
    categories: Sequence[str] = (),
) -> Dataset:
    """COCO's photographs, squeezed to (3, size, size), and boxes (most, 5) as `load_shapes` has them.

    `root/coco` (or `root`) has annotations/instances_train2017.json, annotations/instances_val2017.json and
    the folders train2017/ and val2017/; the latter is the test split. Classes are the categories in the order
    of their ids. Boxes of crowds ("iscrowd") and without area are left out, and images without a box.

    Args:
        root: where the folder lies.
        size: pixels, or (height, width).
        most: boxes of an image, the largest first.
        year: of the files' names.
        categories: the names of those to detect; all if none are named.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: a file is missing, is no such JSON, or, later, an image cannot be read.

    Source: Lin et al., arXiv:1405.0312.
    """
    check_count("most", most)
    check_count("year", year)
    folders = folders_of("coco", root)
    parts = [f"train{year}", f"val{year}"]
    files = [f"annotations/instances_{part}.json" for part in parts]
    folder = next((each for each in folders if all((each / file).is_file() for file in files)), None)
    if folder is None:
        needed = f"{' and '.join(files)}, with the images in {' and '.join(f'{part}/' for part in parts)}"
        raise by_hand("coco", needed, folders, ADDRESS, download)
    read = [_read(folder / file) for file in files]
    named = {each["id"]: str(each["name"]) for each in sorted(read[0]["categories"], key=lambda c: c["id"])}
    known = tuple(named.values())
    if lacking := [name for name in categories if name not in known]:
        raise DataError(
            f"{folder / files[0]}: found no category {', '.join(map(repr, lacking))}, only {', '.join(known)}"
        )
    chosen = tuple(name for name in known if name in categories) if categories else known
    labels = {number: chosen.index(name) for number, name in named.items() if name in chosen}
    train, test = (
        BoxedImages(folder / part, *_boxed(found, labels, most, folder / file), size)
        for part, file, found in zip(parts, files, read, strict=True)
    )
    return Dataset("coco", train, test, chosen)


def _read(path: Path) -> dict[str, Any]:
    with reading(path, ValueError):
        found = json.loads(path.read_bytes())
    keys = ("images", "annotations", "categories")
    if not isinstance(found, dict) or not all(isinstance(found.get(key), list) for key in keys):
        raise unfit(path, "JSON of another kind", f"an object with the lists {', '.join(keys)}")
    return found


def _boxed(
    found: dict[str, Any], labels: dict[int, int], most: int, path: Path
) -> tuple[list[str], npt.NDArray[np.float32]]:
    """The names of the images that have boxes, and these (N, most, 5)."""
    try:
        rows = defaultdict(list)
        for each in found["annotations"]:
            left, top, width, height = each["bbox"]
            if not each.get("iscrowd") and each["category_id"] in labels and width > 0 and height > 0:
                box = (width * height, labels[each["category_id"]], left, top, left + width, top + height)
                rows[each["image_id"]].append(box)
        images = [image for image in found["images"] if image["id"] in rows]
        boxes = np.full((len(images), most, 5), NO_BOX, np.float32)
        for place, image in enumerate(images):
            largest = np.array(sorted(rows[image["id"]], reverse=True)[:most], np.float64)[:, 1:]
            sides = (image["width"], image["height"])
            largest[:, 1:] = np.clip(largest[:, 1:] / (2 * sides), 0.0, 1.0)
            boxes[place, : len(largest)] = largest
        return [str(image["file_name"]) for image in images], boxes
    except (KeyError, TypeError, ValueError) as error:
        raise unfit(
            path, f"an image or annotation that lacks something ({error!r})",
            "images with id, file_name, width, height, annotations with image_id, category_id, bbox",
        ) from error  # fmt: skip
