"""Recurrent operators step by step: any activations, peepholes, clipping, sequences of different lengths"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, final

import torch
import torch.nn.functional as F
from torch import Tensor

from d5ray.errors import ConfigurationError, nearest
from d5ray.operators.nodes.kernel_factory import Kernel
from d5ray.operators.nodes.node_context import NodeContext

Function = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True)
class Direction:
    """The weights of one direction; gates lie one after the other in their first axis."""

    r: Tensor  # (gates · hidden, hidden)
    bias_w: Tensor  # (gates · hidden,)
    bias_r: Tensor
    peepholes: Tensor | None  # (3 · hidden,): of input, output and forget gate
    functions: Sequence[Function]


class Compute(Protocol):
    """The next states, the output first, of x W' (batch, gates · hidden) and the states (batch, hidden)."""

    def __call__(
        self, context: NodeContext, at: Direction, xw: Tensor, states: tuple[Tensor, ...]
    ) -> tuple[Tensor, ...]: ...


@final
@dataclass(frozen=True)
class RecurrentStep:
    """One step of a type: its computation, the number of its states, its activations if none are named."""

    compute: Compute
    states: int
    activations: tuple[str, ...]


def _rnn(context: NodeContext, at: Direction, xw: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (f,) = at.functions
    return (f(_clipped(context, xw + at.bias_w + F.linear(states[0], at.r, at.bias_r))),)


def _gru(context: NodeContext, at: Direction, xw: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (f, g), (h,) = at.functions, states
    xz, xr, xh = (xw + at.bias_w).chunk(3, 1)
    rz, rr, rh = at.r.chunk(3)
    bz, br, bh = at.bias_r.chunk(3)
    z = f(_clipped(context, xz + F.linear(h, rz, bz)))
    r = f(_clipped(context, xr + F.linear(h, rr, br)))
    if context.attribute("linear_before_reset", 0):
        candidate = g(_clipped(context, xh + r * F.linear(h, rh, bh)))
    else:
        candidate = g(_clipped(context, xh + F.linear(r * h, rh, bh)))
    return ((1 - z) * candidate + z * h,)


def _lstm(context: NodeContext, at: Direction, xw: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (f, g, out), (h, c) = at.functions, states
    gate_i, gate_o, gate_f, gate_c = (xw + at.bias_w + F.linear(h, at.r, at.bias_r)).chunk(4, 1)
    nothing = c.new_zeros(())
    peep_i, peep_o, peep_f = (nothing,) * 3 if at.peepholes is None else at.peepholes.chunk(3)
    i = f(_clipped(context, gate_i + peep_i * c))
    forget = 1 - i if context.attribute("input_forget", 0) else f(_clipped(context, gate_f + peep_f * c))
    c = forget * c + i * g(_clipped(context, gate_c))
    o = f(_clipped(context, gate_o + peep_o * c))
    return o * out(_clipped(context, c)), c


RNN_STEP = RecurrentStep(_rnn, 1, ("tanh",))
GRU_STEP = RecurrentStep(_gru, 1, ("sigmoid", "tanh"))
LSTM_STEP = RecurrentStep(_lstm, 2, ("sigmoid", "tanh", "tanh"))


def _clipped(context: NodeContext, x: Tensor) -> Tensor:
    limit = context.attribute("clip")
    return x.clamp(-limit, limit) if limit else x


def step_by_step(context: NodeContext, step: RecurrentStep) -> Kernel:
    """A recurrent operator step by step; beyond its length, a sequence's output is 0, its state stays."""
    batch_first = bool(context.attribute("layout", 0))
    direction = context.attribute("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    count = len(step.activations)
    functions = _functions(context, activations(context, step, directions))

    def call(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        *more: Tensor | None,  # initial_h, and for an LSTM initial_c and the peepholes
    ) -> Any:
        x = x.transpose(0, 1) if batch_first else x  # (time, batch, features)
        peepholes = more[2] if len(more) > 2 else None
        biases = x.new_zeros(directions, 2 * w.shape[1]) if b is None else b
        ys, lasts = [], []
        for each in range(directions):
            bias_w, bias_r = biases[each].chunk(2)
            own = functions[each * count : (each + 1) * count]
            at = Direction(r[each], bias_w, bias_r, None if peepholes is None else peepholes[each], own)
            states = tuple(
                _first_state(state, each, x, r, batch_first) for state in (*more, None, None)[: step.states]
            )
            backwards = direction == "reverse" or each == 1
            compute = partial(step.compute, context, at)
            y, last = _all_steps(compute, F.linear(x, w[each]), states, lengths, backwards)
            ys.append(y)
            lasts.append(last)
        y = torch.stack(ys, 1)  # (time, directions, batch, hidden)
        finals = [torch.stack(last) for last in zip(*lasts, strict=True)]  # (directions, batch, hidden)
        if batch_first:
            return y.permute(2, 0, 1, 3), *(state.transpose(0, 1) for state in finals)
        return y, *finals

    return call


def _first_state(state: Tensor | None, direction: int, x: Tensor, r: Tensor, batch_first: bool) -> Tensor:
    if state is None:
        return x.new_zeros(x.shape[1], r.shape[-1])
    return state[:, direction] if batch_first else state[direction]


def _all_steps(
    compute: Callable[[Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]],
    xw: Tensor,
    states: tuple[Tensor, ...],
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The outputs (time, batch, hidden) and the last states, of xw (time, batch, gates · hidden)."""
    outputs: list[Tensor] = []
    for time in reversed(range(len(xw))) if backwards else range(len(xw)):
        found = compute(xw[time], states)
        output = found[0]
        if lengths is not None:
            within = (time < lengths).unsqueeze(1)
            output = torch.where(within, output, 0)
            found = tuple(torch.where(within, new, old) for new, old in zip(found, states, strict=True))
        states = found
        outputs.append(output)
    return torch.stack(outputs[::-1] if backwards else outputs), states


# By the names in lower case: which of alpha and beta each takes, with ONNX's defaults, and what it is.
_ACTIVATIONS: dict[str, tuple[tuple[float | None, float | None], Callable[..., Tensor]]] = {
    "affine": ((1.0, 0.0), lambda x, alpha, beta: alpha * x + beta),
    "elu": ((1.0, None), lambda x, alpha, beta: F.elu(x, alpha)),
    "hardsigmoid": ((0.2, 0.5), lambda x, alpha, beta: torch.clamp(alpha * x + beta, 0, 1)),
    "leakyrelu": ((0.01, None), lambda x, alpha, beta: F.leaky_relu(x, alpha)),
    "relu": ((None, None), lambda x, alpha, beta: torch.relu(x)),
    "scaledtanh": ((1.0, 1.0), lambda x, alpha, beta: alpha * torch.tanh(beta * x)),
    "sigmoid": ((None, None), lambda x, alpha, beta: torch.sigmoid(x)),
    "softplus": ((None, None), lambda x, alpha, beta: F.softplus(x)),
    "softsign": ((None, None), lambda x, alpha, beta: F.softsign(x)),
    "tanh": ((None, None), lambda x, alpha, beta: torch.tanh(x)),
    "thresholdedrelu": ((1.0, None), lambda x, alpha, beta: F.threshold(x, alpha, 0)),
}


def activations(context: NodeContext, step: RecurrentStep, directions: int) -> tuple[str, ...]:
    """The names of all activations, direction by direction. Raises `ConfigurationError` for unknown ones."""
    needed = len(step.activations) * directions
    names = tuple(name.lower() for name in context.attribute("activations") or step.activations * directions)
    unknown = [name for name in names if name not in _ACTIVATIONS]
    if unknown:
        raise ConfigurationError(
            f"the node {context.node} has the activation {unknown[0]!r}, which ONNX does not know: "
            + nearest(unknown[0], _ACTIVATIONS)
        )
    if len(names) < needed:
        raise ConfigurationError(
            f"the node {context.node} names {len(names)} activations: it must name {needed}, "
            f"{len(step.activations)} for each direction"
        )
    return names[:needed]


def _functions(context: NodeContext, names: Sequence[str]) -> list[Function]:
    """alpha and beta go, one after the other, to the functions that take them."""
    alphas = iter(context.attribute("activation_alpha") or ())
    betas = iter(context.attribute("activation_beta") or ())
    found: list[Function] = []
    for name in names:
        (alpha, beta), function = _ACTIVATIONS[name]
        found.append(partial(function, alpha=_next(alphas, alpha), beta=_next(betas, beta)))
    return found


def _next(values: Iterator[float], default: float | None) -> float | None:
    return None if default is None else next(values, default)
