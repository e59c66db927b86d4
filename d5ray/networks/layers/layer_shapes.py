"""Shapes of one sample, and the checks that layers share"""

from typing import Any

from d5ray.errors import ConfigurationError

Shape = tuple[int, ...]  # of one sample, without the batch


def check_whole(layer: Any, **least: int) -> None:
    """Raise `ConfigurationError` unless these fields of a layer are integers of at least so much."""
    for name, low in least.items():
        value = getattr(layer, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            raise ConfigurationError(f"{name} of {layer} must be an integer from {low} up")


def check_image(layer: Any, shape: Shape) -> None:
    """Raise `ConfigurationError` unless samples are images."""
    if len(shape) != 3:
        raise ConfigurationError(
            f"{layer} needs samples of shape (channels, height, width), found {shape}: "
            "choose a model without convolutions, such as 'mlp'"
        )


def check_sequence(layer: Any, shape: Shape) -> None:
    """Raise `ConfigurationError` unless samples are sequences of vectors."""
    if len(shape) != 2:
        raise ConfigurationError(
            f"{layer} needs samples of shape (length, width), found {shape}: put an Embedding before it"
        )


def positive(layer: Any, before: Shape, after: Shape) -> Shape:
    """The shape after a layer; raises `ConfigurationError` where nothing is left of the samples."""
    if min(after) < 1:
        raise ConfigurationError(
            f"{layer} makes {after} of samples of shape {before}: the samples are too small"
        )
    return after
