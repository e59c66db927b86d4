"""torch.distributed's gloo or NCCL called directly, as a PyTorch user would: a peer of d5ray's groups"""

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
    """One member of a `ProcessGroupGloo` with PyTorch's defaults, on a GPU of a `ProcessGroupNCCL`.

    file: where the members meet.
    """

    def __init__(self, rank: int, size: int, file: Path, timeout_seconds: float, device: str = "cpu") -> None:
        torch.set_num_threads(1)
        self.device = torch.device(device)
        store = dist.FileStore(str(file), size)
        kind = dist.ProcessGroupGloo if device == "cpu" else dist.ProcessGroupNCCL
        self.group: Any = kind(store, rank, size, timedelta(seconds=timeout_seconds))

    def reduction(self, elements: int) -> tuple[Array, Callable[[], object]]:
        """The memory of a tensor, and what sums it over all members in place."""
        tensor, reduce = self.tensor_reduction(elements)
        return tensor.numpy(), reduce

    def tensor_reduction(self, elements: int) -> tuple[torch.Tensor, Callable[[], object]]:
        """A tensor, and what sums it over all members in place; done on the device when it returns."""
        tensor = torch.zeros(elements, device=self.device)
        group, tensors, options = self.group, [tensor], dist.AllreduceOptions()
        if self.device.type == "cpu":
            return tensor, lambda: group.allreduce(tensors, options).wait()

        def reduce() -> None:
            group.allreduce(tensors, options).wait()  # of the stream, not of the caller
            torch.cuda.current_stream(self.device).synchronize()

        return tensor, reduce

    def largest(self, value: float) -> float:
        """The largest of all members' values, the same on each of them."""
        own, options = torch.tensor([value], dtype=torch.float64).to(self.device), dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self.group.allreduce([own], options).wait()
        return own.item()

    def barrier(self) -> None:
        """Return when all members have called it."""
        self.group.barrier(dist.BarrierOptions()).wait()

    def close(self) -> None:
        """Leave the group."""
        del self.group
