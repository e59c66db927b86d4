"""Pooling: the greatest, the mean, the norm, in windows and over whole images"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator

OPERATORS: Mapping[str, ArrayOperator] = {}
