"""The peak of the memory that PyTorch has allocated on a GPU"""

from typing import final

import torch

from d5ray.networks.microbatch.peak import PeakMemory


@final
class TorchPeak(PeakMemory):
    """The peak of tensors as PyTorch's allocator counts them; what it keeps in reserve is not among them."""

    def __init__(self, device: int = 0) -> None:
        self._device, self._base = device, 0

    def begin(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)
        self._base = int(torch.cuda.memory_allocated(self._device))

    def bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        return int(torch.cuda.max_memory_allocated(self._device)) - self._base
