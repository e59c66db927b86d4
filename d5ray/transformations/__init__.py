"""Transformations of a batch's samples before the step: crops, flips, normalization and their like"""

from d5ray.names.lazy import lazily

__getattr__, __dir__ = lazily(__name__)
