"""Images as seen through sliding windows: padded, tap by tap, and as columns of a matrix"""

import itertools
from collections.abc import Iterator
from typing import Any

from d5ray.operators.array_operator import Array
from d5ray.ops.geometry.windows import Windows


def padded(xp: Any, images: Array, windows: Windows, fill: Any = 0) -> Array:
    """The images (batch, channels, *image) with all that the windows reach; themselves if that is so."""
    if not any(windows.before) and all(
        reach <= size for reach, size in zip(windows.reach, windows.image, strict=True)
    ):
        return images
    result = xp.full((*images.shape[:2], *_padded_sizes(windows)), fill, dtype=images.dtype)
    result[(..., *_inside(windows))] = images
    return result


def gathered(xp: Any, shape: tuple[int, ...], dtype: Any, windows: Windows) -> tuple[Array, Array]:
    """An image of zeros to add to tap by tap: as the windows see it, padded, and what is left without."""
    whole = xp.zeros((*shape[:2], *_padded_sizes(windows)), dtype=dtype)
    return whole, whole[(..., *_inside(windows))]


def taps(image: Array, windows: Windows) -> Iterator[Array]:
    """The view (batch, channels, *counts) of the image under each element of the kernel."""
    for offsets in itertools.product(*map(range, windows.kernel)):
        spans = (
            slice(k * dilation, k * dilation + (count - 1) * stride + 1, stride)
            for k, dilation, count, stride in zip(
                offsets, windows.dilations, windows.counts, windows.strides, strict=True
            )
        )
        yield image[(..., *spans)]


def seen(xp: Any, image: Array, windows: Windows) -> Array:
    """The view (batch, channels, *kernel, *counts) of a padded image: no element is copied."""
    steps = image.strides
    spatial = steps[2:]
    return xp.lib.stride_tricks.as_strided(
        image,
        (*image.shape[:2], *windows.kernel, *windows.counts),
        (
            *steps[:2],
            *(step * dilation for step, dilation in zip(spatial, windows.dilations, strict=True)),
            *(step * stride for step, stride in zip(spatial, windows.strides, strict=True)),
        ),
    )


def _padded_sizes(windows: Windows) -> tuple[int, ...]:
    return tuple(
        max(reach, before + size)
        for reach, before, size in zip(windows.reach, windows.before, windows.image, strict=True)
    )


def _inside(windows: Windows) -> tuple[slice, ...]:
    return tuple(
        slice(before, before + size) for before, size in zip(windows.before, windows.image, strict=True)
    )
