"""Images decoded from files or bytes, each to an array of one size"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_items
from d5ray.errors import ConfigurationError, DataError, first_line
from d5ray.training.datasets.samples import Shape

MOST_PIXELS = 65_536  # of a side
MODES = {1: "L", 3: "RGB"}


def image_shape(size: object, channels: object) -> Shape:
    """(C, H, W) of decoded images; raises `ConfigurationError`."""
    check_count("channels", channels)
    if channels not in MODES:
        raise ConfigurationError(f"channels is {channels!r}: it must be 3 for colours, or 1 for greys")
    height, width = size if isinstance(size, (tuple, list)) and len(size) == 2 else (size, size)
    for name, pixels in (("the height of size", height), ("the width of size", width)):
        check_count(name, pixels, high=MOST_PIXELS)
    return channels, height, width  # type: ignore[return-value]


def numbers_shape(shape: object) -> Shape | None:
    """The shape of samples whose files do not say it, where it is given; raises `ConfigurationError`."""
    if shape is None:
        return None
    found = check_items("shape", shape, "a tuple of sizes")
    for each in found:
        check_count("a size of shape", each)
    return found


def decoded(source: Path | bytes, shape: Shape, name: str) -> npt.NDArray[np.float32]:
    """An image as (C, H, W) of 0..1: scaled until it just covers H × W, cut at its centre.

    Source: a file, or its bytes. A JPEG much larger than that is decoded at a half, quarter or eighth.
    Raises `DataError` with the name for what is no whole image.
    """
    from PIL import ImageOps  # noqa: PLC0415 - loaded when asked for

    return _decoded(source, shape, name, ImageOps.fit)


def squeezed(source: Path | bytes, shape: Shape, name: str) -> npt.NDArray[np.float32]:
    """An image as (C, H, W) of 0..1: the whole of it, whatever its proportions; else as `decoded`."""
    return _decoded(source, shape, name, lambda pixels, size, method: pixels.resize(size, method))


def _decoded(
    source: Path | bytes, shape: Shape, name: str, fit: Callable[..., Any]
) -> npt.NDArray[np.float32]:
    from PIL import Image  # noqa: PLC0415 - loaded when asked for

    channels, height, width = shape
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            image.draft(MODES[channels], (2 * width, 2 * height))
            pixels: Any = image.convert(MODES[channels])
            if pixels.size != (width, height):
                pixels = fit(pixels, (width, height), Image.Resampling.BILINEAR)
            numbers = np.asarray(pixels, dtype=np.float32).reshape(height, width, channels)
    except Exception as error:  # Pillow raises of every kind, SyntaxError too
        raise DataError(
            f"{name}: found an unreadable image ({first_line(error)}), expected a whole one of a known format"
            ": check its rights, and on every node that it is there; replace it, or remove it"
        ) from error
    return np.ascontiguousarray(numbers.transpose(2, 0, 1)) / np.float32(255)
