"""Zero mean and unit variance over some axes, and the way back: what most normalizations share"""

from collections.abc import Sequence
from typing import Any

from d5ray.operators.array_operator import Array

Axes = tuple[int, ...]
EPSILON = 1e-5  # ONNX's default


def standardized(xp: Any, x: Array, axes: Axes, epsilon: float) -> tuple[Array, Array, Array, Array]:
    """(x − mean) · scale over the axes; the mean, the variance, and the scale 1 / √(variance + epsilon)."""
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    variance = xp.square(centred).mean(axis=axes, keepdims=True)
    scale = 1 / xp.sqrt(variance + epsilon)
    centred *= scale
    return centred, mean, variance, scale


def through_standardized(gradient: Array, normalized: Array, scale: Array, axes: Axes) -> Array:
    """The gradient with respect to x of what was standardized.

    dx = scale · (g − mean(g) − y · mean(g · y))   (Ioffe and Szegedy, arXiv:1502.03167, section 3)
    """
    result = gradient - gradient.mean(axis=axes, keepdims=True)
    result -= normalized * (gradient * normalized).mean(axis=axes, keepdims=True)
    result *= scale
    return result


def along_channels(vector: Array, rank: int) -> Array:
    """A vector (channels,) to be broadcast over (batch, channels, ...), or one number over (batch,)."""
    return vector.reshape(-1, *(1,) * (rank - 2)) if rank > 1 else vector


def but_channels(rank: int) -> Axes:
    """All axes but the second, which are those that a channel's statistics are taken over."""
    return (0, *range(2, rank))


def affine_gradients(gradient: Array, normalized: Array, channels: Sequence[int]) -> tuple[Array, Array]:
    """The gradients of normalized · scale + shift with respect to scale and shift, both (channels,)."""
    axes = but_channels(gradient.ndim)
    of_scale, of_shift = (gradient * normalized).sum(axis=axes), gradient.sum(axis=axes)
    return of_scale.reshape(channels), of_shift.reshape(channels)
