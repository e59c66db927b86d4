"""The level-1 executor of PyTorch: a native module whose tensors are views into two flat buffers."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import flat_tensors
from d5ray.networks.executors.executor import Allocate, Evaluation, Executor
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.operators.loss import Loss

EVALUATION_BATCH = 1024  # labels at a time, so that a large test split fits the memory
EVALUATION_BYTES = 1 << 24  # of inputs at a time: what the layers make of them is a multiple
PASS_APART = 0x9E3779B97F4A7C15  # between the seeds of one pass and of the next; odd, so that none returns
SEEDS = 2**64


@final
class TorchExecutor(Executor):
    """Runs an `nn.Module` as it is; nothing is converted, and no hook is left in it."""

    parameters: torch.Tensor  # (n,)
    gradients: torch.Tensor  # (n,)
    untrained: torch.Tensor  # (m,)
    counters: tuple[torch.Tensor, ...]

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device) -> None:
        self.module = module
        self.loss = loss
        self.device = device
        self._on_cpu = device.type == "cpu"
        named = flat_tensors.trained(module)
        self._tensors = tuple(named.values())
        self._buffers = flat_tensors.Buffers(named, like=self._tensors[0])
        self.slots = self._buffers.slots
        self.parameters, self.gradients = self._buffers.parameters, self._buffers.gradients
        self._state = flat_tensors.State(module, like=self.parameters)
        self.untrained, self.counters = self._state.floating, self._state.counters
        self._generator = generator_of(device)
        self._first_seed = 0  # of what the network draws in training,
        self._passes = 0  # the passes until now

    def draw_from(self, seed: int, rank: int) -> None:
        self._passes = 0
        self._first_seed = int(np.random.SeedSequence([seed, rank]).generate_state(1, np.uint64)[0])

    def inference(self, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with self._evaluating():
            scores = self.module(self._tensor(inputs))
        if not isinstance(scores, torch.Tensor):
            raise ConfigurationError(
                f"the model returned a {type(scores).__name__}, the loss needs one tensor of scores"
            )
        return flat_tensors.numbers(scores)

    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        self.gradients.zero_()
        begin = perf_counter_ns()
        self._passes += 1
        self._generator.manual_seed((self._first_seed + self._passes * PASS_APART) % SEEDS)
        loss = self.loss.torch(self.module(self._tensor(inputs)), self._tensor(labels))
        self._synchronize()
        middle = perf_counter_ns()
        elsewhere = 0
        if on_ready is None:
            torch.autograd.backward(loss)
        else:
            elsewhere = self._announcing_backward(loss, on_ready)
        self._synchronize()
        self.forward_ns += middle - begin
        self.backward_ns += perf_counter_ns() - middle - elsewhere
        self._state.adopt()
        return loss.item()

    def _announcing_backward(self, loss: torch.Tensor, on_ready: OnReady) -> int:
        """The backward pass with a hook on every parameter; returns the nanoseconds spent in on_ready."""
        announcer = self._announcer(on_ready)
        hooks = [
            tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, slot=slot: announcer.arrived(slot)
            )
            for slot, tensor in enumerate(self._tensors)
            if tensor.requires_grad  # it may have been frozen since
        ]
        try:
            torch.autograd.backward(loss)
        finally:
            for hook in hooks:
                hook.remove()
        announcer.finish()
        return announcer.nanoseconds

    def evaluate(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> Evaluation:
        total, right = 0.0, 0
        parts = labels.size if self.loss.classifies else len(labels)
        labels_at_once = EVALUATION_BATCH * len(labels) // max(1, parts)
        bytes_at_once = EVALUATION_BYTES * len(inputs) // max(1, inputs.nbytes)
        batch = max(1, min(labels_at_once, bytes_at_once))
        with self._evaluating():
            for start in range(0, len(labels), batch):
                truth = self._tensor(labels[start : start + batch])
                scores = self.module(self._tensor(inputs[start : start + batch]))
                total += self.loss.torch(scores, truth).item() * len(truth)
                if self.loss.classifies:
                    right += int((scores.argmax(dim=-1) == truth).sum().item())
        accuracy = right / labels.size if self.loss.classifies else math.nan
        return Evaluation(loss=total / len(labels), accuracy=accuracy)

    def numpy_parameters(self) -> np.ndarray[Any, Any]:
        return flat_tensors.numbers(self.parameters).copy()

    def named_state(self) -> dict[str, np.ndarray[Any, Any]]:
        return self._state.named()

    def random_state(self) -> np.ndarray[Any, Any]:
        states = [torch.tensor([self._passes]).view(torch.uint8), torch.get_rng_state()]
        if not self._on_cpu:
            states.append(torch.cuda.get_rng_state(self.device))
        return np.concatenate([state.numpy() for state in states])

    def set_random_state(self, state: np.ndarray[Any, Any]) -> None:
        passes, own, other = np.split(state.copy(), np.cumsum([8, len(torch.get_rng_state())]))
        self._passes = int(passes.view(np.int64)[0])
        torch.set_rng_state(torch.from_numpy(own))
        if not self._on_cpu:
            torch.cuda.set_rng_state(torch.from_numpy(other), self.device)

    def use_buffers(self, allocate: Allocate) -> None:
        if not self._on_cpu:
            return
        self._buffers.use(allocate)
        self.parameters, self.gradients = self._buffers.parameters, self._buffers.gradients

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


def generator_of(device: torch.device) -> torch.Generator:
    """The generator that PyTorch's own modules draw from on this device."""
    if device.type != "cuda":
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.cuda.default_generators[index]
