"""Pixels and labels: stored bytes to numbers in 0..1, and labels that have a class"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from d5ray.training.datasets.published_files import unfit


def scaled(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Grey or colour values 0..255 as float32 in 0..1, of the same shape, C-contiguous."""
    return np.divide(pixels, np.float32(255), dtype=np.float32, order="C")


def checked_labels(
    labels: npt.NDArray[np.integer], classes: int, origin: Path | str
) -> npt.NDArray[np.int64]:
    """Labels (N,) as int64; DataError names the file, the place and the value of one that has no class."""
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        raise unfit(origin, f"label {labels[outside[0]]} at sample {outside[0]}", f"0 to {classes - 1}")
    return labels.astype(np.int64)
