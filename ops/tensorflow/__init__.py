"""The operators through TensorFlow's own functions; importing this imports TensorFlow."""

from collections.abc import Mapping

from d5ray.operators.builder import Builder

BUILDERS: Mapping[str, Builder] = {}
