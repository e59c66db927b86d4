"""An executor that keeps a hash of everything it computes, to find the operation that is not repeatable"""

import hashlib
import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import torch
from torch import nn

from d5ray.networks.executors import traces
from d5ray.networks.executors.executor import Executor
from d5ray.networks.executors.gradient_buckets import OnReady
from d5ray.networks.executors.traces import Entry
from d5ray.networks.executors.wrapped import WrappedExecutor

_NOT_DETERMINISTIC = "deterministic"  # stands in every warning of PyTorch about it


@final
class Traced:
    """A factory in the place of `Experiment.executor`, whose executors keep a trace."""

    def __init__(self, inner: Callable[..., Executor]) -> None:
        self.inner = inner

    def __call__(self, *args: Any, **kwargs: Any) -> "TracedExecutor":
        return TracedExecutor(self.inner(*args, **kwargs))


@final
class TracedExecutor(WrappedExecutor):
    """Another executor with a trace: batch, random state, parameters, what every part of a PyTorch module
    gets and gives, the gradients in the order in which they come, and the loss."""

    def __init__(self, inner: Executor) -> None:
        super().__init__(inner)
        self.trace: list[Entry] = []
        self._step = -1
        self._recording = False
        self._drew: set[str] = set()  # generators that the model drew from, and that no seed reaches
        self._last: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None
        module = getattr(inner, "module", None)
        if isinstance(module, nn.Module):
            self._hook(module)

    def inference_and_backprop(
        self, inputs: np.ndarray[Any, Any], labels: np.ndarray[Any, Any], on_ready: OnReady | None = None
    ) -> float:
        self._step += 1
        self._last = inputs, labels
        self._note(traces.DATA, (inputs, labels))
        self._note(traces.RANDOM, torch.get_rng_state())
        self._note(traces.PARAMETERS, self._inner.parameters)
        self._note(traces.STATE, (self._inner.untrained, *self._inner.counters))
        if self._buckets is not None:
            self._inner._buckets = self._buckets  # that were set here
        before = _unseeded()
        self._recording = True
        try:
            loss = self._inner.inference_and_backprop(inputs, labels, on_ready)
        finally:
            self._recording = False
        self._drew |= {name for name, state in _unseeded().items() if state != before[name]}
        self.forward_ns, self.backward_ns = self._inner.forward_ns, self._inner.backward_ns
        self._note(traces.LOSS, repr(loss))
        return loss

    def warned(self) -> list[str]:
        """Operations that PyTorch says do not repeat, found in one more step; and generators.

        The step's gradients overwrite those that are there.
        """
        drew = [f"the model draws from {name}, which the recipe's seed does not reach" for name in self._drew]
        if self._last is None:
            return drew
        before = torch.are_deterministic_algorithms_enabled()
        quietly = torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self._inner.inference_and_backprop(*self._last)
        finally:
            torch.use_deterministic_algorithms(before, warn_only=quietly)
        lines = [str(warning.message).partition("\n")[0] for warning in caught]
        return sorted(drew) + list(dict.fromkeys(line for line in lines if _NOT_DETERMINISTIC in line))

    def _hook(self, module: nn.Module) -> None:
        """Let every part of the module, and every gradient when it comes, leave its hash."""
        for name, part in module.named_modules():
            whole = f"{name or 'the model'} ({type(part).__name__})"
            part.register_forward_pre_hook(self._noting(f"{traces.INPUT}{whole}", 1))
            part.register_forward_hook(self._noting(f"{traces.OUTPUT}{whole}", 2))
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                what = f"{traces.GRADIENT}{name}"
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    lambda tensor, what=what: self._note_if(what, tensor.grad)
                )

    def _noting(self, what: str, argument: int) -> Callable[..., None]:
        return lambda *arguments: self._note_if(what, arguments[argument])

    def _note_if(self, what: str, value: Any) -> None:
        if self._recording:
            self._note(what, value)

    def _note(self, what: str, value: Any) -> None:
        digest = hashlib.blake2b(digest_size=8)
        for part in _bytes(value):
            digest.update(part)
        self.trace.append(Entry(self._step, what, digest.hexdigest()))


def _unseeded() -> dict[str, str]:
    """The states of the generators that a process seeds from the system's entropy."""
    numpy = repr(np.random.get_state())  # noqa: NPY002 - that which the user's code may use
    return {"NumPy's global generator": numpy, "Python's `random`": repr(random.getstate())}


def _bytes(value: Any) -> Iterator[bytes]:
    """The bytes of all tensors and arrays in a value, and of texts."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        yield flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    elif isinstance(value, np.ndarray):
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, str):
        yield value.encode()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _bytes(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _bytes(item)
