"""One direction of an RNN, a GRU or an LSTM backwards through time"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.gate_functions import GateFunction
from d5ray.ops.recurrence.formulas import Direction, States


@final
@dataclass(frozen=True)
class ForwardPass:
    """One direction through a batch of sequences. Sizes: T steps, B sequences, H hidden, G gates.

    times: the steps in the order in which they are taken. active (T, B, 1): false behind a sequence's end,
    where the state stands still and the output is 0; None where all have the same length. recurrence (G·H,
    H); at: what steps compute with; states (B, H): the first ones.
    """

    times: Sequence[int]
    active: Array | None
    recurrence: Array
    functions: Sequence[GateFunction]
    at: Direction
    states: States

    def going_on(self, time: int, gradient: Array) -> tuple[Array, Array | int]:
        """A gradient in two parts: of the sequences that are going on, and of those that have ended."""
        if self.active is None:
            return gradient, 0
        going = gradient * self.active[time]
        return going, gradient - going


@final
@dataclass(frozen=True)
class DirectionGradients:
    """The gradients of one direction: of the gates (T, B, G·H), its parameters, its first states."""

    gates: Array
    recurrence: Array
    bias: Array
    states: States
    peepholes: Array | None = None


# The gradients back through time, from those of the outputs (T, B, H) and last states (B, H), and what was
# kept: the gates' sums (T, B, G·H), the states before every step, and what else its `Step` gives (T, B, H).
Back = Callable[[Any, NodeContext, ForwardPass, Sequence[Array], Array, States], DirectionGradients]


def rnn(
    xp: Any, context: NodeContext, forward: ForwardPass, kept: Sequence[Array], outputs: Array, states: States
) -> DirectionGradients:
    """Gradients of h' = f(Wx + Rh + b)."""
    (gates, before), (f,), (hidden,) = kept, forward.functions, states
    derivatives, of_gates = f.derivative_at(gates, f(gates)), xp.empty_like(gates)
    for time in reversed(forward.times):
        going, _ = forward.going_on(time, hidden + outputs[time])
        _, ended = forward.going_on(time, hidden)
        of_gates[time] = going * derivatives[time]
        hidden = of_gates[time] @ forward.recurrence + ended
    return DirectionGradients(of_gates, _product(of_gates, before), _total(of_gates), (hidden,))


def gru(
    xp: Any, context: NodeContext, forward: ForwardPass, kept: Sequence[Array], outputs: Array, states: States
) -> DirectionGradients:
    """Gradients of h' = (1 − z) h~ + z h; `linear` is Rh + b_R with linear_before_reset. Gates: z, r, h."""
    (gates, before, *linear), (f, g), (hidden,) = kept, forward.functions, states
    size = hidden.shape[-1]
    two, new = gates[..., : 2 * size], gates[..., 2 * size :]
    zr, h = f(two), g(new)
    derivatives, derivative_g = f.derivative_at(two, zr), g.derivative_at(new, h)
    z, r = zr[..., :size], zr[..., size:]
    of_two, of_new = forward.recurrence[: 2 * size], forward.recurrence[2 * size :]
    of_gates = xp.empty_like(gates)
    for time in reversed(forward.times):
        going, _ = forward.going_on(time, hidden + outputs[time])
        _, ended = forward.going_on(time, hidden)
        now = of_gates[time]
        now[:, 2 * size :] = going * (1 - z[time]) * derivative_g[time]
        now[:, :size] = going * (before[time] - h[time]) * derivatives[time, :, :size]
        hidden = going * z[time] + ended
        if linear:
            of_r = now[:, 2 * size :] * linear[0][time]
            hidden += (now[:, 2 * size :] * r[time]) @ of_new
        else:
            of_product = now[:, 2 * size :] @ of_new
            of_r = of_product * before[time]
            hidden += of_product * r[time]
        now[:, size : 2 * size] = of_r * derivatives[time, :, size:]
        hidden += now[:, : 2 * size] @ of_two
    inner = of_gates.copy()  # what comes to the recurrence
    if linear:
        inner[..., 2 * size :] *= r
        of_recurrence = _product(inner, before)
    else:
        of_recurrence = xp.concatenate(
            (_product(inner[..., : 2 * size], before), _product(inner[..., 2 * size :], r * before))
        )
    return DirectionGradients(of_gates, of_recurrence, _total(inner), (hidden,))


def lstm(
    xp: Any, context: NodeContext, forward: ForwardPass, kept: Sequence[Array], outputs: Array, states: States
) -> DirectionGradients:
    """Gradients of c' = f c + i c~, h' = o h(c'). Gates: i, o, f, c."""
    gates, before, cells_before, cells = kept
    (f, g, h), (hidden, cell), peepholes = forward.functions, states, forward.at.peepholes
    input_forget = context.attribute("input_forget", 0)
    a_i, a_o, a_f, a_c = forward.at.parts(gates, 1, 1, 1, 1)
    i, o, c, hc = f(a_i), f(a_o), g(a_c), h(cells)
    forget = 1 - i if input_forget else f(a_f)
    derivative_i, derivative_o = f.derivative_at(a_i, i), f.derivative_at(a_o, o)
    derivative_f = 0 * i if input_forget else f.derivative_at(a_f, forget)
    derivative_c, derivative_h = g.derivative_at(a_c, c), h.derivative_at(cells, hc)
    of_gates = xp.empty_like(gates)
    of_i, of_o, of_f, of_c = forward.at.parts(of_gates, 1, 1, 1, 1)
    for time in reversed(forward.times):
        going, _ = forward.going_on(time, hidden + outputs[time])
        _, ended = forward.going_on(time, hidden)
        of_cell, cell_ended = forward.going_on(time, cell)
        of_o[time] = going * hc[time] * derivative_o[time]
        of_cell = of_cell + going * o[time] * derivative_h[time]
        if peepholes is not None:
            of_cell += of_o[time] * peepholes[1]
        of_forget = of_cell * cells_before[time]
        of_f[time] = of_forget * derivative_f[time]
        of_i[time] = (of_cell * c[time] - of_forget * input_forget) * derivative_i[time]
        of_c[time] = of_cell * i[time] * derivative_c[time]
        cell = of_cell * forget[time] + cell_ended
        if peepholes is not None:
            cell += of_i[time] * peepholes[0] + of_f[time] * peepholes[2]
        hidden = of_gates[time] @ forward.recurrence + ended
    seen = (of_i * cells_before, of_o * cells, of_f * cells_before) if peepholes is not None else ()
    of_peepholes = xp.concatenate([_total(each) for each in seen]) if seen else None
    return DirectionGradients(
        of_gates, _product(of_gates, before), _total(of_gates), (hidden, cell), of_peepholes
    )


def _product(left: Array, right: Array) -> Array:
    """Σ over steps and sequences: (T, B, m), (T, B, n) -> (m, n)."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def _total(array: Array) -> Array:
    """Σ over steps and sequences: (T, B, m) -> (m,)."""
    return array.sum(axis=(0, 1))
