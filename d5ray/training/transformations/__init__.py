"""Transformations of a batch's samples before the step: crops, flips, normalization and their like"""

from d5ray.training.transformations.composition import (
    at_test,
    check_transformations,
    shape_after,
    transformed,
)
from d5ray.training.transformations.crop import CentreCrop, Crop
from d5ray.training.transformations.cutout import Cutout
from d5ray.training.transformations.flip import RandomFlip
from d5ray.training.transformations.normalize import Normalize
from d5ray.training.transformations.replicate import ReplicateBatch
from d5ray.training.transformations.resize import Resize
from d5ray.training.transformations.scale_pixels import ScalePixels
from d5ray.training.transformations.transformation import Sampled, Transformation

__all__ = [
    "CentreCrop",
    "Crop",
    "Cutout",
    "Normalize",
    "RandomFlip",
    "ReplicateBatch",
    "Resize",
    "Sampled",
    "ScalePixels",
    "Transformation",
    "at_test",
    "check_transformations",
    "shape_after",
    "transformed",
]
