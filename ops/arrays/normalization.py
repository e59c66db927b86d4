"""Normalization over batches, layers, instances, groups, and by the root mean square"""

from collections.abc import Mapping

from d5ray.operators.array_operator import ArrayOperator
from d5ray.ops.arrays.batch_normalization import BatchNormalization
from d5ray.ops.arrays.group_normalization import GroupNormalization, InstanceNormalization
from d5ray.ops.arrays.layer_normalization import LayerNormalization, RMSNormalization
from d5ray.ops.arrays.mean_variance_normalization import MeanVarianceNormalization
from d5ray.ops.arrays.normalization_by_size import LRN, LpNormalization

OPERATORS: Mapping[str, ArrayOperator] = {
    "BatchNormalization": BatchNormalization(),
    "GroupNormalization": GroupNormalization(),
    "InstanceNormalization": InstanceNormalization(),
    "LRN": LRN(),
    "LayerNormalization": LayerNormalization(),
    "LpNormalization": LpNormalization(),
    "MeanVarianceNormalization": MeanVarianceNormalization(),
    "RMSNormalization": RMSNormalization(),
}
