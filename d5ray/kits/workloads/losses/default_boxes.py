"""Default boxes of a single-shot detector: where they lie, and boxes as offsets from them and back"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_items, check_number
from d5ray.errors import ConfigurationError

MOST_CELLS = 4096  # of a side
Floats = npt.NDArray[np.floating[Any]]
CENTRE, SIZE = 0.1, 0.2  # what offsets of centres and of sizes are divided by (the paper's "variances")


@final
@dataclass(frozen=True)
class DefaultBoxes:
    """A boxes over the cells of square grids, as SSD has them (Liu et al., arXiv:1512.02325).

    Every cell of grids[k] has a box of each of sizes[k] (a share of the image's side, the root of the area)
    in each of the ratios (width over height), in this order: grid, row, column, size, ratio. What a network
    gives for a box, (A, 4 + 1 + classes), is the offset, the score of "nothing", and the classes' scores.
    Boxes are x₁, y₁, x₂, y₂, as shares of the image's sides.
    """

    grids: tuple[int, ...] = (8, 4)
    sizes: tuple[tuple[float, ...], ...] = ((0.2, 0.3), (0.45,))
    ratios: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        for name in ("grids", "sizes", "ratios"):
            object.__setattr__(self, name, check_items(name, getattr(self, name), "a tuple"))
        for each in self.sizes:
            check_items("sizes", each, "a tuple of tuples of numbers")
        for grid in self.grids:
            check_count("a grid", grid, high=MOST_CELLS)
        if not self.grids or len(self.sizes) != len(self.grids) or not all(self.sizes) or not self.ratios:
            raise ConfigurationError(
                f"{self!r} has {len(self.grids)} grids and {len(self.sizes)} tuples of sizes: it must have "
                "one for each, none of them empty, such as grids=(8, 4), sizes=((0.2, 0.3), (0.45,))"
            )
        for value in (*(size for each in self.sizes for size in each), *self.ratios):
            check_number("a size or ratio", value, low=0.0, low_included=False)

    @property
    def per_cell(self) -> tuple[int, ...]:
        """The number of boxes in a cell of each grid."""
        return tuple(len(sizes) * len(self.ratios) for sizes in self.sizes)

    @cached_property
    def centred(self) -> npt.NDArray[np.float32]:
        """(A, 4): the centres' x and y, width and height."""
        boxes = [
            ((column + 0.5) / grid, (row + 0.5) / grid, size * ratio**0.5, size / ratio**0.5)
            for grid, sizes in zip(self.grids, self.sizes, strict=True)
            for row in range(grid)
            for column in range(grid)
            for size in sizes
            for ratio in self.ratios
        ]
        return np.array(boxes, np.float32)

    @cached_property
    def corners(self) -> npt.NDArray[np.float32]:
        """(A, 4): x₁, y₁, x₂, y₂."""
        centre, size = self.centred[:, :2], self.centred[:, 2:]
        return np.concatenate([centre - size / 2, centre + size / 2], axis=1)

    def boxes(self, offsets: Floats) -> Floats:
        """Corners (..., A, 4) of offsets (..., A, 4)."""
        centre = self.centred[:, :2] + CENTRE * offsets[..., :2] * self.centred[:, 2:]
        half = self.centred[:, 2:] * np.exp(np.minimum(SIZE * offsets[..., 2:], 5.0)) / 2
        return np.concatenate([centre - half, centre + half], axis=-1)

    def check(self, output_shape: Sequence[int], classes: int) -> None:
        """Raise `ConfigurationError` unless a network's output (batch, ...) is for these boxes."""
        expected = (len(self.centred), 5 + classes)
        if tuple(output_shape[1:]) != expected:
            raise ConfigurationError(
                f"the model's output has the shape {tuple(output_shape[1:])} a sample, but {self!r} with "
                f"{classes} classes needs {expected}: 4 offsets and 1 + {classes} scores for every box"
            )
