"""The operators through PyTorch's own functions; importing this imports PyTorch."""

from collections.abc import Mapping

from d5ray.operators.nodes.node_context import KernelFactory
from d5ray.ops.arrays import OPERATORS
from d5ray.ops.catalogue import GROUPS, tables
from d5ray.ops.torch.reference import by_reference

REFERRED = ("quantization", "regions", "sequences", "sets", "spectra")  # PyTorch has no functions for them

FACTORIES: Mapping[str, KernelFactory] = {
    **{name: by_reference(OPERATORS[name]) for group in REFERRED for name in GROUPS[group]},
    **tables(__name__, "FACTORIES"),
}
