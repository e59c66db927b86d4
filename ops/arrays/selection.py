"""Operators that choose elements by index: Gather, Scatter, TopK, OneHot and their kin"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator

OPERATORS: Mapping[str, ArrayOperator] = {}
