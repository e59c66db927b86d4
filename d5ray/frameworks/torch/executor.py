"""The level-1 executor of PyTorch: a native module whose tensors are views into two flat buffers."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any, final

import numpy as np
import torch
from torch import nn

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch.library import Torch, numbers
from d5ray.frameworks.torch.module_buffers import ModuleBuffers, trained
from d5ray.networks.executors.evaluation import evaluated, samples_at_once
from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.flat_buffers import FlatBuffers
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.graph_executor import PASS_APART
from d5ray.operators.loss import Loss

SEEDS = 2**64


@final
class TorchExecutor(Executor):
    """Runs an `nn.Module` as it is; nothing is converted, and no hook is left in it."""

    parameters: torch.Tensor  # (n,)
    gradients: torch.Tensor  # (n,)
    untrained: torch.Tensor  # (m,)
    counters: tuple[torch.Tensor, ...]

    def __init__(self, module: nn.Module, loss: Loss, device: torch.device) -> None:
        self.module, self.loss, self.device = module, loss, device
        self._library = Torch(device)
        self._on_cpu, self._synchronize = self._library.on_host, self._library.synchronize
        named = trained(module)
        self._tensors = tuple(named.values())
        self._buffers = ModuleBuffers(module)
        counters = self._buffers.counters
        self._hold(FlatBuffers(named, self._buffers.floating, self._library, counters=counters))
        self._generator = self._library.generator
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
        return numbers(scores)

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
        self._buffers.adopt()
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
        counted = labels.size if self.loss.classifies else len(labels)
        with self._evaluating():
            batch = samples_at_once(inputs, counted)
            return evaluated(self._judged, self.loss, inputs, labels, batch)

    def _judged(self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> tuple[float, int]:
        """The mean loss of some inputs, and how many are right."""
        truth = self._tensor(labels)
        scores = self.module(self._tensor(inputs))
        loss = self.loss.torch(scores, truth).item()
        return loss, int((scores.argmax(dim=-1) == truth).sum().item()) if self.loss.classifies else 0

    def named_state(self) -> dict[str, np.ndarray[Any, Any]]:
        self._buffers.adopt()
        return {name: self._library.get(buffer) for name, buffer in self._buffers.named.items()}

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
