"""Precision of a module's training passes: autocast with parameters in float32, TF32, or float64"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final, final

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from d5ray.errors import ConfigurationError

HALVES: Final = {"bfloat16": torch.bfloat16, "float16": torch.float16}
AMPERE: Final = (8, 0)  # the first compute capability with TF32
FIRST_SCALE: Final = 2.0**16
SMALLEST_SCALE: Final = 2.0**-14
GROWS_AFTER: Final = 2000  # passes


@final
class PassPrecision:
    """The types of a training pass by a precision's name; evaluations compute in those of the parameters.

    scale: of the loss, where its gradients may be too small for the type, or too large; None in others.
    """

    def __init__(self, name: str, device: torch.device) -> None:
        self.name, self._device = name, device
        self._half = HALVES.get(name)
        self._floats = torch.float64 if name == "float64" else None
        self.scale = LossScale() if name == "float16" else None

    def prepared(self, module: nn.Module) -> nn.Module:
        """The module with parameters and buffers of the type that they need.

        Raises `ConfigurationError` where they have another, and for a device that lacks the precision.
        """
        if self.name == "float64":
            return module.double()
        if self.name == "tf32":
            _check_has_tf32(self._device)
        if self.name != "float32":
            _check_is_float32(self.name, module)
        return module

    @property
    def is_half(self) -> bool:
        """True if products have operands of half the width of the parameters."""
        return self._half is not None

    def sample(self, tensor: torch.Tensor) -> torch.Tensor:
        """Samples or labels as the module takes them."""
        if self._floats is None or not tensor.is_floating_point():
            return tensor
        return tensor.to(self._floats)

    def computing(self) -> AbstractContextManager[Any]:
        """The context of a forward pass and the loss."""
        if self._half is not None:
            return torch.autocast(self._device.type, dtype=self._half)
        return _tf32() if self.name == "tf32" else nullcontext()

    def differentiating(self) -> AbstractContextManager[Any]:
        """The context of a backward pass, whose operations have the types of the forward pass."""
        return _tf32() if self.name == "tf32" else nullcontext()

    def output(self, found: Any) -> Any:
        """A module's output as the loss takes it: tensors of half the width as float32, wherever they are."""
        if (half := self._half) is None:
            return found
        return tree_map_only(torch.Tensor, lambda each: each.float() if each.dtype == half else each, found)


@final
class LossScale:
    """A factor of the loss that keeps gradients within float16 (Micikevicius et al., arXiv:1710.03740).

    It begins with 2¹⁶, is halved when a gradient overflows, after which the same batch is computed again,
    and doubled after 2,000 passes without (the numbers of `torch.amp.GradScaler`, which leaves the batch
    out). So no agent leaves a step out that the others do.
    """

    def __init__(self) -> None:
        self.value, self._passes = FIRST_SCALE, 0

    def fits(self, gradients: torch.Tensor, loss: float) -> bool:
        """True if gradients of the scaled loss are finite; else the scale is smaller from now on.

        A loss that is not finite itself has no gradients that could be: it is for those who see it.
        """
        if bool(torch.isfinite(gradients).all()):
            self._passes += 1
            return True
        self._passes = 0
        if not np.isfinite(loss) or self.value <= SMALLEST_SCALE:
            return True
        self.value /= 2
        return False

    def grow(self) -> None:
        """Double the scale where it has fitted for long; called when the gradients are unscaled."""
        if self._passes >= GROWS_AFTER:
            self.value, self._passes = 2 * self.value, 0

    @property
    def state(self) -> np.ndarray[Any, Any]:
        """The scale, and how long it has fitted, as bytes (16,)."""
        return np.array([self.value, self._passes]).view(np.uint8)

    @state.setter
    def state(self, state: np.ndarray[Any, Any]) -> None:
        value, passes = state.copy().view(np.float64)
        self.value, self._passes = float(value), int(passes)


@contextmanager
def _tf32() -> Iterator[None]:
    """Products of float32 in TF32, as PyTorch's settings of the whole process say it."""
    cudnn: Any = torch.backends.cudnn
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn)
    before = [backend.fp32_precision for backend in backends]
    try:
        for backend in backends:
            backend.fp32_precision = "tf32"
        yield
    finally:
        for backend, own in zip(backends, before, strict=True):
            backend.fp32_precision = own


def _check_has_tf32(device: torch.device) -> None:
    found = torch.cuda.get_device_capability(device) if device.type == "cuda" else None
    if found is None or found < AMPERE:
        name = "the processor" if found is None else torch.cuda.get_device_name(device)
        raise ConfigurationError(
            f"precision is 'tf32', which {name} lacks: NVIDIA's graphics processors have it from compute "
            "capability 8.0 (Ampere) on; take 'float32'"
        )


def _check_is_float32(name: str, module: nn.Module) -> None:
    for called, tensor in module.named_parameters():
        if tensor.is_floating_point() and tensor.dtype != torch.float32:
            raise ConfigurationError(
                f"precision is {name!r}, which keeps parameters in float32, and the model's {called} is of "
                f"{tensor.dtype}: convert the model with .float(), or leave precision out, which trains it "
                "as it is"
            )
