"""Watched operators: the observer's calls before and after each, forwards and backwards"""

from collections.abc import Sequence
from typing import Any, final

import torch

from d5ray.networks.events.event import BACKWARD, FORWARD
from d5ray.networks.events.observer import Observer
from d5ray.operators.nodes.node import Node

Tensors = tuple[torch.Tensor | None, ...]


@final
class Watch:
    """One operator. Its inputs pass through `enter`, its outputs through `leave`, both unchanged.

    Gradients come back the other way: through `leave` when all those of the outputs are there, and through
    `enter` when the operator has run backwards, since autograd takes what was called last first.
    """

    def __init__(self, observer: Observer, node: Node, index: int) -> None:
        self.observer, self.node, self.index = observer, node, index
        self._inputs: Tensors = ()
        self._gradients: Tensors = ()

    def enter(self, *inputs: torch.Tensor | None) -> Tensors:
        """The inputs unchanged, with the operator's begin reported to the observer."""
        passed: Tensors = _Enter.apply(self, *inputs)  # type: ignore[no-untyped-call]
        self._inputs = _detached(inputs)
        self.observer.before_operator(self.node, self.index, FORWARD, self._inputs)
        return passed

    def leave(self, outputs: Any) -> Any:
        """The outputs unchanged, with the operator's end reported to the observer."""
        several = not isinstance(outputs, torch.Tensor)
        made = tuple(outputs) if several else (outputs,)
        self.observer.after_operator(self.node, self.index, FORWARD, self._inputs, _detached(made))
        self._inputs = ()
        passed = _Leave.apply(self, *made)  # type: ignore[no-untyped-call]
        return passed if several else passed[0]

    def before_backward(self, gradients: Tensors) -> None:
        """Report the begin of the operator's backward pass, with the gradients of its outputs."""
        self._gradients = gradients
        self.observer.before_operator(self.node, self.index, BACKWARD, gradients)

    def after_backward(self, gradients: Tensors) -> None:
        """Report the end of the operator's backward pass, with the gradients of its inputs."""
        self.observer.after_operator(self.node, self.index, BACKWARD, self._gradients, gradients)
        self._gradients = ()


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, watch: Watch, *inputs: torch.Tensor | None) -> Tensors:
        ctx.watch = watch
        ctx.set_materialize_grads(False)
        needed = ctx.needs_input_grad[1:]  # what needs no gradient is not to get one because somebody watches
        others = [each for each, needs in zip(inputs, needed, strict=True) if each is not None and not needs]
        ctx.mark_non_differentiable(*others)
        return inputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        ctx.watch.after_backward(gradients)
        return None, *gradients


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, watch: Watch, *outputs: torch.Tensor | None) -> Tensors:
        ctx.watch = watch
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        ctx.watch.before_backward(gradients)
        return None, *gradients


def _detached(tensors: Sequence[torch.Tensor | None]) -> Tensors:
    return tuple(None if tensor is None else tensor.detach() for tensor in tensors)
