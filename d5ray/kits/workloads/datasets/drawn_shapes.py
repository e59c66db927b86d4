"""Drawn shapes on noise, and the boxes around them: images to learn to detect by"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.kits.workloads.metrics.average_precision import overlap
from d5ray.training.datasets.dataset import Dataset, Split

KINDS: Final = ("circle", "square", "triangle")
NO_BOX: Final = -1.0  # the class of a row that is none
TRIES: Final = 20  # to place a shape


def load_shapes(
    *,
    samples: int = 1200,
    test_samples: int = 300,
    size: int = 64,
    most: int = 3,
    noise: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Images (3, size, size) of 0..1 with one to `most` circles, squares and triangles, and their boxes.

    Targets are (most, 5) float32 a sample, a row for a box: class, x₁, y₁, x₂, y₂ in shares of the image's
    sides; rows of class −1 are no boxes. Shapes are 0.15 to 0.45 of the side, of any colour, on a ground of
    another, with normal noise; boxes overlap by 0.1 at most.

    Args:
        samples, test_samples: how many; size: of an image; most: shapes in it.
        noise: the standard deviation. seed: of everything.
    """
    for name, value, low in (
        ("samples", samples, 1), ("test_samples", test_samples, 0), ("size", size, 16), ("most", most, 1),
        ("seed", seed, 0),
    ):  # fmt: skip
        check_count(name, value, low)
    check_number("noise", noise, low=0.0, low_included=True)
    train, test = (
        _split(count, size, most, noise, np.random.default_rng([seed, part]))
        for part, count in enumerate((samples, test_samples))
    )
    return Dataset("shapes", train, test, KINDS)


def drawn(
    size: int, most: int, noise: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """One image (3, size, size), and its targets (most, 5)."""
    targets = np.full((most, 5), NO_BOX, np.float32)
    ground = rng.uniform(0, 1, 3)
    image = np.broadcast_to(ground[:, None, None], (3, size, size)).copy()
    placed = 0
    for _ in range(int(rng.integers(1, most + 1))):
        for _ in range(TRIES):
            side = rng.uniform(0.15, 0.45)
            corner = rng.uniform(0, 1 - side, 2)
            kind = int(rng.integers(len(KINDS)))
            mask = _mask(KINDS[kind], size, corner, side)
            rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
            box = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / size
            if not placed or overlap(box[None], targets[:placed, 1:]).max() <= 0.1:
                colour = (ground + rng.uniform(0.3, 0.7, 3)) % 1.0  # not that of the ground
                image[:, mask] = colour[:, None]
                targets[placed] = [kind, *box]
                placed += 1
                break
    image += noise * rng.standard_normal(image.shape)
    return np.clip(image, 0, 1).astype(np.float32), targets


def _mask(kind: str, size: int, corner: Any, side: float) -> npt.NDArray[np.bool_]:
    """The pixels (size, size) whose centres lie in the shape that fills a square."""
    middle = (np.arange(size) + 0.5) / size
    x, y = (middle[None, :] - corner[0]) / side, (middle[:, None] - corner[1]) / side
    masks: dict[str, npt.NDArray[np.bool_]] = {
        "circle": (x - 0.5) ** 2 + (y - 0.5) ** 2 <= 0.25,
        "square": (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1),
        "triangle": (y >= 0) & (y <= 1) & (np.abs(x - 0.5) <= y / 2),
    }
    return masks[kind]


def _split(count: int, size: int, most: int, noise: float, rng: np.random.Generator) -> Split:
    inputs = np.empty((count, 3, size, size), np.float32)
    targets = np.empty((count, most, 5), np.float32)
    for place in range(count):
        inputs[place], targets[place] = drawn(size, most, noise, rng)
    return Split(inputs, targets)
