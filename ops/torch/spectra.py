"""Spectra: DFT, STFT and MelWeightMatrix; a complex number is a pair of real ones on the last axis"""

from collections.abc import Mapping

from d5ray.operators.nodes.kernel_factory import KernelFactory
from d5ray.ops.arrays import spectra as reference
from d5ray.ops.torch.reference import by_reference

FACTORIES: Mapping[str, KernelFactory] = {
    name: by_reference(operator) for name, operator in reference.OPERATORS.items()
}
