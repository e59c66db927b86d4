"""Conv and ConvTranspose, in one and two dimensions, grouped, dilated, strided"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator

OPERATORS: Mapping[str, ArrayOperator] = {}
