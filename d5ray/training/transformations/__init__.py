"""Transformations of a batch's samples before the step: crops, flips, normalization and their like"""

from d5ray.training.transformations.composition import (
    at_test,
    check_transformations,
    shape_after,
    transformed,
)
from d5ray.training.transformations.images import CentreCrop, Crop, Cutout, RandomFlip, Resize
from d5ray.training.transformations.normalize import Normalize, ScalePixels
from d5ray.training.transformations.replicate import ReplicateBatch
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
