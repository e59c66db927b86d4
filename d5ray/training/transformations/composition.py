"""Transformations one after the other: their shapes, and what they make of a batch"""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.trees import Tree, form_of, is_inner, leaves, mapped
from d5ray.training.batches import sample_randomness
from d5ray.training.transformations.normalize import ScalePixels
from d5ray.training.transformations.transformation import Sampled, Shape, Transformation

Transformations = tuple[Transformation, ...]


def check_transformations(given: object) -> Transformations:
    """The transformations as a tuple; raises `ConfigurationError` for what is none."""
    listed = (given,) if isinstance(given, Transformation) else given
    if not isinstance(listed, (tuple, list)):
        raise ConfigurationError(
            f"transformations is {given!r}: it must be a tuple such as (Crop(32, padding=4), RandomFlip())"
        )
    for one in listed:
        if not isinstance(one, Transformation):
            raise ConfigurationError(
                f"transformations has {one!r}: it must be a Transformation such as RandomFlip()"
            )
    return tuple(listed)


def at_test(transformations: Transformations) -> Transformations:
    """The transformations of test samples: nothing that depends on chance."""
    found = (one.at_test() for one in transformations)
    return tuple(one for one in found if one is not None)


def shape_after(transformations: Transformations, shape: Shape) -> Shape:
    """The shape of a sample after all of them, in training and in tests.

    Raises `ConfigurationError` if one does not take what the one before gives, or if the two differ.
    Samples that are trees of arrays are only scaled.
    """
    for one in transformations if is_inner(shape) else ():
        if not isinstance(one, ScalePixels):
            raise ConfigurationError(
                f"{one!r} takes one array, the samples have {form_of(shape)}: leave it out, or transform the "
                "samples where they come from"
            )
    train, test = (
        functools.reduce(lambda now, one: one.output_shape(now), each, shape)
        for each in (transformations, at_test(transformations))
    )
    if train != test:
        raise ConfigurationError(
            f"after {transformations!r} a training sample has the shape {train}, but a test sample {test}: "
            "let at_test() of each give the same shape"
        )
    return train


def transformed(
    transformations: Transformations,
    inputs: Tree,
    labels: npt.NDArray[Any],
    indices: npt.NDArray[np.int64],
    *,
    seed: int,
    epoch: int,
) -> Sampled:
    """The samples with these indices (n,), after all transformations in this epoch.

    Pixels are scaled before all others, unless one of them does it.
    """
    numbers = indices.astype(np.uint64)
    samples = Sampled(inputs, labels, numbers)
    if has_pixels(inputs) and not any(isinstance(one, ScalePixels) for one in transformations):
        samples = ScalePixels().apply(samples)
    for place, transformation in enumerate(transformations):
        keys = sample_randomness.mixed(samples.keys, seed, epoch, place)  # unrelated to those before
        samples = transformation.apply(Sampled(samples.inputs, samples.labels, keys))
    return Sampled(mapped(np.ascontiguousarray, samples.inputs), samples.labels, samples.keys)


def has_pixels(inputs: Tree) -> bool:
    """True if an array of the inputs is of pixels, which no network takes as they are."""
    return any(array.dtype == np.uint8 for _, array in leaves(inputs))
