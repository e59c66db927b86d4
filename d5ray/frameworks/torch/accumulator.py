"""Gradients of several passes under PyTorch, added up where they are: on the device, without copies"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np
import torch

from d5ray.frameworks.torch.library import array_of
from d5ray.networks.microbatch.accumulator import Accumulator, Array


@final
class TorchAccumulator(Accumulator):
    """An accumulator on the device. take: hands over a pass's gradients; the first ones become the sums."""

    def __init__(self, take: Callable[[], Mapping[str, torch.Tensor | None]]) -> None:
        self._take = take
        self._sums: dict[str, torch.Tensor] = {}

    def begin(self) -> None:
        self._sums = {}

    def add(self, parameters: Sequence[str], weight: float) -> None:
        gradients = self._take()
        owners = Counter(_memory(each) for each in gradients.values() if each is not None)
        with torch.no_grad():
            for name in parameters:
                found = gradients.get(name)
                if found is None:
                    continue
                if name in self._sums:
                    self._sums[name].add_(found, alpha=weight)
                elif owners[_memory(found)] == 1 and _fills_its_memory(found):
                    self._sums[name] = found.mul_(weight)
                else:  # expanded, or handed to several parameters: written anew
                    self._sums[name] = found * weight

    def gradient(self, parameter: str) -> Array | None:
        found = self._sums.get(parameter)
        return None if found is None else np.array(array_of(found))


def _memory(tensor: torch.Tensor) -> int:
    """The address of the tensor's memory."""
    return tensor.untyped_storage().data_ptr()


def _fills_its_memory(tensor: torch.Tensor) -> bool:
    """True if the tensor's elements are all that lies in its memory, each once."""
    size = tensor.numel() * tensor.element_size()
    return tensor.is_contiguous() and tensor.untyped_storage().nbytes() == size
