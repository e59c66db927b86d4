"""The operators in terms of an array module: NumPy and CuPy, forwards and backwards."""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator
from d5ray.ops.catalogue import tables

OPERATORS: Mapping[str, ArrayOperator] = tables(__name__, "OPERATORS")
