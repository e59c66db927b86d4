"""The operators through PyTorch's own functions; importing this imports PyTorch."""

from collections.abc import Mapping

from d5ray.operators.builder import Builder

BUILDERS: Mapping[str, Builder] = {}
