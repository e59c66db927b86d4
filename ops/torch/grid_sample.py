"""GridSample: an image sampled where another tensor says"""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.arrays.grid_sample import GridSample, sampling_of
from d5ray.ops.torch.reference import by_reference
from d5ray.ops.torch.types import known_rank

MODES = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}  # in PyTorch's words


def grid_sample(context: NodeContext) -> Kernel:
    """PyTorch's own function for two and three axes of space, without cubic in three; else the reference."""
    sampling, rank = sampling_of(context), known_rank(context)
    if rank not in ((4,) if sampling.kernel == "cubic" else (4, 5)):
        return by_reference(GridSample())(context)

    def grid_sample(x: Tensor, grid: Tensor) -> Tensor:
        kind = torch.promote_types(x.dtype, grid.dtype) if x.is_floating_point() else torch.float64
        x_there, grid_there = x.to(kind), grid.to(kind)  # of one type, as PyTorch wants them
        mode, padding, corners = MODES[sampling.kernel], sampling.padding, sampling.align_corners
        return F.grid_sample(x_there, grid_there, mode, padding, corners).to(x.dtype)

    return grid_sample


FACTORIES: Mapping[str, KernelFactory] = {"GridSample": grid_sample}
