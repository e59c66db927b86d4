"""Tensors that are made, not computed: constants, ranges, shapes, random numbers"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator

OPERATORS: Mapping[str, ArrayOperator] = {}
