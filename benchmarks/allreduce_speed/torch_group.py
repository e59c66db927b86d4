"""torch.distributed's gloo called directly, as a PyTorch user would: a peer of d5ray's groups"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, final

import numpy as np
import torch
import torch.distributed

dist: Any = torch.distributed  # its type stubs lack most of it
Array = np.ndarray[Any, np.dtype[np.float32]]


@final
class TorchWorld:
    """One member of a `ProcessGroupGloo` with PyTorch's defaults. file: where the members meet."""

    def __init__(self, rank: int, size: int, file: Path, timeout_seconds: float) -> None:
        torch.set_num_threads(1)
        store = dist.FileStore(str(file), size)
        self.group: Any = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=timeout_seconds))

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        """The memory of a tensor, and what sums it over all members in place."""
        tensor = torch.zeros(elements)
        group, tensors, options = self.group, [tensor], dist.AllreduceOptions()
        return tensor.numpy(), lambda: group.allreduce(tensors, options).wait()

    def largest(self, value: float) -> float:
        """The largest of all members' values, the same on each of them."""
        own, options = torch.tensor([value], dtype=torch.float64), dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self.group.allreduce([own], options).wait()
        return own.item()

    def barrier(self) -> None:
        """Return when all members have called it."""
        self.group.barrier(dist.BarrierOptions()).wait()

    def close(self) -> None:
        """Leave the group."""
        del self.group
