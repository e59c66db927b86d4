"""Outputs whose size the values decide: NonMaxSuppression and Unique; counts of n-grams"""

from collections.abc import Mapping

from d5ray.operators.nodes.kernel_factory import KernelFactory
from d5ray.ops.arrays import sets as reference
from d5ray.ops.tensorflow.reference import by_reference

FACTORIES: Mapping[str, KernelFactory] = {
    name: by_reference(operator) for name, operator in reference.OPERATORS.items()
}
