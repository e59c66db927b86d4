"""A module's forward pass, compiled by PyTorch, and the check that its gradients are those of the module"""

from collections.abc import Iterable
from typing import Any, Final, final

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException

from d5ray.errors import ConfigurationError, first_line
from d5ray.networks.executors.flat_buffers import Slot, by_name

MOST_CHECKS: Final = 2  # PyTorch compiles for the first size of a batch, and for all others once more
APART: Final = {True: (0.5, 1e-2), False: (0.05, 1e-4)}  # by half precision: of a tensor, of the gradient


@final
class CompiledForward:
    """A module's call through `torch.compile`; its tensors stay where they are, and may be moved.

    Random numbers are those of the module as it is. Raises `ConfigurationError`, in the first call, for a
    module that PyTorch cannot compile.
    """

    def __init__(self, module: nn.Module) -> None:
        self._name = type(module).__name__
        self._call = torch.compile(module, options={"fallback_random": True})
        self._checked: set[int] = set()  # sizes of batches

    def __call__(self, *given: Any, **named: Any) -> Any:
        try:
            return self._call(*given, **named)
        except TorchDynamoException as error:
            raise ConfigurationError(
                f"PyTorch cannot compile the model, {self._name}: {first_line(error)}: change the model "
                "there, or leave compile out; torch.compile also needs a C++ compiler such as g++, and "
                "Python's headers"
            ) from error

    def due(self, samples: int) -> bool:
        """True if gradients of a batch of this size are to be compared before it counts."""
        if samples in self._checked or len(self._checked) == MOST_CHECKS:
            return False
        self._checked.add(samples)
        return True

    def compare(self, slots: Iterable[Slot], plain: torch.Tensor, found: torch.Tensor, *, half: bool) -> None:
        """Raise `ConfigurationError` unless gradients (n,) are those without compilation, but for rounding.

        half: whether products were rounded to types of half the width.
        """
        slots, (share, floor) = tuple(slots), APART[half]
        least = floor * float(plain.norm())
        own, compiled = by_name(plain, slots), by_name(found, slots)
        for slot in slots:
            size, apart = float(own[slot.name].norm()), float((compiled[slot.name] - own[slot.name]).norm())
            if apart > share * size + least:
                raise ConfigurationError(
                    f"PyTorch {torch.__version__} compiles {self._name} to wrong gradients: that of "
                    f"{slot.name} has the norm {float(compiled[slot.name].norm()):.3g}, without compile "
                    f"{size:.3g}, and they are {apart:.3g} apart: leave compile out"
                )
