"""Numbers on a grid: QuantizeLinear and DequantizeLinear, and products of quantized numbers"""

from collections.abc import Mapping

from d5ray.operators.nodes.kernel_factory import KernelFactory
from d5ray.ops.arrays import quantization as reference
from d5ray.ops.tensorflow.reference import by_reference

FACTORIES: Mapping[str, KernelFactory] = {
    name: by_reference(operator) for name, operator in reference.OPERATORS.items()
}
