"""Operators that rearrange elements: Reshape, Transpose, Concat, Slice, Pad and their family"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator
from d5ray.ops.arrays import pad, pieces, rearranging, repeating, reshaping

OPERATORS: Mapping[str, ArrayOperator] = {
    **pad.OPERATORS,
    **pieces.OPERATORS,
    **rearranging.OPERATORS,
    **repeating.OPERATORS,
    **reshaping.OPERATORS,
}
