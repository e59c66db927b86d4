"""Normalization over batches, layers, instances, groups, and by the root mean square"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator

OPERATORS: Mapping[str, ArrayOperator] = {}
