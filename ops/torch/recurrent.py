"""RNN, GRU and LSTM by PyTorch's own kernels, or step by step for what those cannot"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.recurrence.activations import activations_of
from d5ray.ops.recurrence.by_steps import by_steps
from d5ray.ops.recurrence.formulas import ways_of
from d5ray.ops.torch.builders import asked
from d5ray.ops.torch.recurrent_steps import STEPS
from d5ray.ops.torch.types import known_sizes

AllSteps = Callable[[Tensor, tuple[Tensor, ...], list[Tensor], bool, bool, bool], tuple[Tensor, ...]]


@final
@dataclass(frozen=True)
class Kernels:
    """PyTorch's kernels of a type, by the activations of one direction; the places of their gates in ONNX."""

    order: tuple[int, ...]
    kernels: Mapping[tuple[str, ...], AllSteps]


def recurrent(context: NodeContext) -> Kernel:
    """RNN, GRU or LSTM: by PyTorch's kernel where one has the activations, else by steps."""
    first, *others = ([name for name, _ in each] for each in activations_of(context))
    own = KERNELS[context.node.type]
    kernel = own.kernels.get(tuple(first))
    if kernel is None or any(each != first for each in others) or _needs_steps(context):
        return asked(context, by_steps(context, STEPS))
    return asked(context, _by_kernel(context, kernel, own.order))


def _needs_steps(context: NodeContext) -> bool:
    """True if a node asks for what PyTorch's kernels cannot."""
    if context.attribute("clip") or context.attribute("input_forget", 0) or context.has_input(7):
        return True
    if context.node.type == "GRU" and not context.attribute("linear_before_reset", 0):
        return True
    return context.has_input(4) and not _full(context)


def _full(context: NodeContext) -> bool:
    """True if the lengths of the sequences are known, and leave nothing out."""
    sizes, lengths = known_sizes(context), context.constants.get(4)
    time = 1 if context.attribute("layout", 0) else 0
    return sizes is not None and lengths is not None and bool((lengths == sizes[time]).all())


def _by_kernel(context: NodeContext, kernel: AllSteps, order: tuple[int, ...]) -> Kernel:
    """Gradients go through the rearranged weights to ONNX's."""
    batch_first = bool(context.attribute("layout", 0))
    direction = context.attribute("direction", "forward")
    directions, time = len(ways_of(context)), 1 if batch_first else 0

    def call(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        *states: Tensor | None,  # initial_h and for an LSTM initial_c
    ) -> Any:
        hidden, batch = r.shape[-1], x.shape[1 - time]
        first = []
        for state in (*states, None, None)[:2]:
            if state is None:
                first.append(x.new_zeros(directions, batch, hidden))
            else:
                first.append(state.transpose(0, 1).contiguous() if batch_first else state)
        weights = [_reordered(w, order), _reordered(r, order)]  # each (directions, gates · hidden, …)
        if b is not None:
            weights += [_reordered(half, order) for half in b.chunk(2, 1)]
        flat = [weight[each] for each in range(directions) for weight in weights]
        given = x.flip(time) if direction == "reverse" else x
        y, *last = kernel(given, tuple(first), flat, b is not None, directions == 2, batch_first)
        y = y.reshape(
            *y.shape[:2], directions, hidden
        )  # (time, batch, directions, hidden), or the batch first
        y = y.flip(time) if direction == "reverse" else y
        if batch_first:
            return y, *(state.transpose(0, 1) for state in last)
        return y.transpose(1, 2), *last

    return call


def _reordered(weight: Tensor, order: tuple[int, ...]) -> Tensor:
    """(directions, gates · hidden, …) with the gates in another order."""
    if len(order) == 1:
        return weight
    gates = weight.chunk(len(order), 1)
    return torch.cat([gates[gate] for gate in order], 1)


def _plain(function: Callable[..., tuple[Tensor, Tensor]]) -> AllSteps:
    """A kernel whose only state is the output."""

    def kernel(
        x: Tensor, states: tuple[Tensor, ...], flat: list[Tensor], biased: bool, both: bool, batch_first: bool
    ) -> tuple[Tensor, ...]:
        trained = torch.is_grad_enabled()  # cuDNN keeps then what the backward pass needs
        return function(x, states[0], flat, biased, 1, 0.0, trained, both, batch_first)

    return kernel


def _lstm(
    x: Tensor, states: tuple[Tensor, ...], flat: list[Tensor], biased: bool, both: bool, batch_first: bool
) -> tuple[Tensor, ...]:
    result: tuple[Tensor, ...] = torch.lstm(
        x, states, flat, biased, 1, 0.0, torch.is_grad_enabled(), both, batch_first
    )
    return result


KERNELS: Mapping[str, Kernels] = {
    # ONNX: update, reset, hidden. PyTorch: reset, update, new.
    "GRU": Kernels((1, 0, 2), {("Sigmoid", "Tanh"): _plain(torch.gru)}),
    # ONNX: input, output, forget, cell. PyTorch: input, forget, cell, output.
    "LSTM": Kernels((0, 2, 3, 1), {("Sigmoid", "Tanh", "Tanh"): _lstm}),
    "RNN": Kernels((0,), {("Tanh",): _plain(torch.rnn_tanh), ("Relu",): _plain(torch.rnn_relu)}),
}
FACTORIES: Mapping[str, KernelFactory] = dict.fromkeys(KERNELS, recurrent)
