"""The level-1 executor of PyTorch: a native module whose tensors are views into two flat buffers."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.networks.executor import Evaluation, Executor, Slot
from d5ray.operators.loss import Loss

EVALUATION_BATCH = 1024  # samples at a time, so that a large test split fits the memory


@final
class TorchExecutor(Executor):
    """Runs an `nn.Module` as it is; nothing is converted, and no hook is left in it."""

    parameters: torch.Tensor  # (n,)
    gradients: torch.Tensor  # (n,)

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device) -> None:
        self.module = module
        self.loss = loss
        self.device = device
        self.slots, self.parameters, self.gradients = _flatten(module)
        self._on_cpu = device.type == "cpu"

    def inference(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with self._evaluating():
            scores = self.module(self._tensor(inputs))
        if not isinstance(scores, torch.Tensor):
            raise ConfigurationError(
                f"the model returned a {type(scores).__name__}, the loss needs one tensor of scores"
            )
        return np.asarray(scores.cpu().numpy())

    def inference_and_backprop(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> float:
        self.gradients.zero_()
        begin = perf_counter_ns()
        loss = self.loss.torch(self.module(self._tensor(inputs)), self._tensor(labels))
        self._synchronize()
        middle = perf_counter_ns()
        torch.autograd.backward(loss)
        self._synchronize()
        self.forward_ns += middle - begin
        self.backward_ns += perf_counter_ns() - middle
        return loss.item()

    def evaluate(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Evaluation:
        total, right = 0.0, 0
        with self._evaluating():
            for start in range(0, len(labels), EVALUATION_BATCH):
                truth = self._tensor(labels[start : start + EVALUATION_BATCH])
                scores = self.module(self._tensor(inputs[start : start + EVALUATION_BATCH]))
                total += self.loss.torch(scores, truth).item() * len(truth)
                right += int((scores.argmax(dim=1) == truth).sum().item())
        return Evaluation(loss=total / len(labels), accuracy=right / len(labels))

    def numpy_parameters(self) -> np.ndarray[Any, Any]:
        return np.array(self.parameters.cpu().numpy(), copy=True)

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients; afterwards every part is in the mode it was in before."""
        training = [part for part in self.module.modules() if part.training]
        self.module.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            for part in training:
                part.training = True

    def _tensor(self, array: np.ndarray[Any, Any]) -> torch.Tensor:
        if not array.flags.writeable:  # views of Ray's object store are not; PyTorch knows no such tensor
            array = array.copy()
        tensor = torch.from_numpy(array)
        return tensor if self._on_cpu else tensor.to(self.device)

    def _synchronize(self) -> None:
        if not self._on_cpu:
            torch.cuda.synchronize(self.device)


def _flatten(module: nn.Module) -> tuple[tuple[Slot, ...], torch.Tensor, torch.Tensor]:
    """Move a module's trained tensors, and their gradients, into two flat buffers of which they are views."""
    named = [(name, tensor) for name, tensor in module.named_parameters() if tensor.requires_grad]
    if not named:
        raise ConfigurationError(
            "the model has no parameters to train: give it at least one layer with weights"
        )
    types = {tensor.dtype for _, tensor in named}
    if len(types) > 1:
        raise ConfigurationError(
            f"the model's parameters are of several types ({', '.join(sorted(map(str, types)))}), but the "
            "flat buffer needs one: convert the model with .to(torch.float32)"
        )
    slots: list[Slot] = []
    offset = 0
    for name, tensor in named:
        slots.append(Slot(name, offset, tuple(tensor.shape)))
        offset += tensor.numel()
    values = torch.empty(offset, dtype=named[0][1].dtype, device=named[0][1].device)
    gradients = torch.zeros_like(values)
    for slot, (_, tensor) in zip(slots, named, strict=True):
        piece = slice(slot.offset, slot.offset + slot.size)
        values[piece] = tensor.detach().reshape(-1)
        tensor.data = values[piece].view(slot.shape)
        tensor.grad = gradients[piece].view(slot.shape)
    return tuple(slots), values, gradients
