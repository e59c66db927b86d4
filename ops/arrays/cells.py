"""The cells of RNN, GRU and LSTM: one direction of them through time, forwards and backwards"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.gate_functions import GateFunction


@final
@dataclass(frozen=True)
class Passage:
    """One direction through a batch of sequences. Sizes: T steps, B sequences, H hidden, G gates.

    times: the steps in the order in which they are taken. active (T, B, 1): false behind a sequence's end,
    where the state stands still and the output is 0; None where all have the same length. recurrence (G·H,
    H), bias (G·H,) of the recurrence or None, peepholes (3·H,) or None.
    """

    times: Sequence[int]
    active: Array | None
    recurrence: Array
    bias: Array | None
    peepholes: Array | None
    functions: Sequence[GateFunction]

    def step(self, xp: Any, time: int, new: Array, old: Array) -> Array:
        """The new state where the sequence is going on, and the old one where it has ended."""
        return new if self.active is None else xp.where(self.active[time], new, old)

    def going_on(self, time: int, gradient: Array) -> tuple[Array, Array | int]:
        """A gradient in two parts: of the sequences that are going on, and of those that have ended."""
        if self.active is None:
            return gradient, 0
        going = gradient * self.active[time]
        return going, gradient - going


@final
@dataclass(frozen=True)
class Through:
    """The gradients of one direction: of the gates (T, B, G·H), of its parameters, and of its first state."""

    gates: Array
    recurrence: Array
    bias: Array
    peepholes: Array | None
    hidden: Array
    cell: Array | None = None


class Cell(ABC):
    """What happens in one step. `gates` (T, B, G·H) are the products of input and weight, with their bias."""

    @abstractmethod
    def run(
        self, xp: Any, passage: Passage, gates: Array, hidden: Array, cell: Array | None
    ) -> tuple[Array, Array, Array | None, tuple[Array, ...]]:
        """The outputs (T, B, H), the last hidden and cell states (B, H), and what is kept for `back`.

        The gates' array becomes what the activations take.
        """

    @abstractmethod
    def back(
        self,
        xp: Any,
        passage: Passage,
        kept: Sequence[Array],
        outputs: Array,
        hidden: Array,
        cell: Array | None,
    ) -> Through:
        """Through time, from the gradients of the outputs (T, B, H) and of the last states (B, H)."""


@final
class RNNCell(Cell):
    """h' = f(Wx + Rh + b)"""

    def run(
        self, xp: Any, passage: Passage, gates: Array, hidden: Array, cell: Array | None
    ) -> tuple[Array, Array, Array | None, tuple[Array, ...]]:
        (f,) = passage.functions
        if passage.bias is not None:
            gates += passage.bias
        outputs, before = xp.zeros_like(gates), xp.empty_like(gates)
        transposed = passage.recurrence.T
        for time in passage.times:
            before[time] = hidden
            gates[time] += hidden @ transposed
            new = f(xp, gates[time])
            outputs[time] = passage.step(xp, time, new, 0)
            hidden = passage.step(xp, time, new, hidden)
        return outputs, hidden, None, (gates, before)

    def back(
        self,
        xp: Any,
        passage: Passage,
        kept: Sequence[Array],
        outputs: Array,
        hidden: Array,
        cell: Array | None,
    ) -> Through:
        gates, before = kept
        (f,) = passage.functions
        slopes, of_gates = f.slopes(xp, gates, f(xp, gates)), xp.empty_like(gates)
        for time in reversed(passage.times):
            going, _ = passage.going_on(time, hidden + outputs[time])
            _, ended = passage.going_on(time, hidden)
            of_gates[time] = going * slopes[time]
            hidden = of_gates[time] @ passage.recurrence + ended
        return Through(of_gates, _product(of_gates, before), _total(of_gates), None, hidden)


@final
@dataclass(frozen=True)
class GRUCell(Cell):
    """h' = (1 − z) h~ + z h, z = f(...), r = f(...)   (Cho et al., arXiv:1406.1078)

    h~ = g(Wx + R(r h) + b), or g(Wx + r (Rh + b_R) + b_W) with linear_before_reset. Gates: z, r, h.
    """

    linear_before_reset: bool

    def run(
        self, xp: Any, passage: Passage, gates: Array, hidden: Array, cell: Array | None
    ) -> tuple[Array, Array, Array | None, tuple[Array, ...]]:
        f, g = passage.functions
        size = hidden.shape[-1]
        bias = xp.zeros(3 * size, dtype=gates.dtype) if passage.bias is None else passage.bias
        gates += xp.concatenate((bias[: 2 * size], bias[2 * size :] * (not self.linear_before_reset)))
        of_two, of_new = passage.recurrence[: 2 * size].T, passage.recurrence[2 * size :].T
        outputs = xp.zeros((*gates.shape[:2], size), dtype=gates.dtype)
        before, linear = xp.empty_like(outputs), xp.empty_like(outputs)
        for time in passage.times:
            before[time] = hidden
            now = gates[time]
            now[:, : 2 * size] += hidden @ of_two
            z, r = f(xp, now[:, :size]), f(xp, now[:, size : 2 * size])
            if self.linear_before_reset:
                linear[time] = hidden @ of_new + bias[2 * size :]
                now[:, 2 * size :] += r * linear[time]
            else:
                now[:, 2 * size :] += (r * hidden) @ of_new
            new = (1 - z) * g(xp, now[:, 2 * size :]) + z * hidden
            outputs[time] = passage.step(xp, time, new, 0)
            hidden = passage.step(xp, time, new, hidden)
        return outputs, hidden, None, (gates, before, linear)

    def back(
        self,
        xp: Any,
        passage: Passage,
        kept: Sequence[Array],
        outputs: Array,
        hidden: Array,
        cell: Array | None,
    ) -> Through:
        gates, before, linear = kept
        f, g = passage.functions
        size = hidden.shape[-1]
        two, new = gates[..., : 2 * size], gates[..., 2 * size :]
        zr, h = f(xp, two), g(xp, new)
        slopes, slope = f.slopes(xp, two, zr), g.slopes(xp, new, h)
        z, r = zr[..., :size], zr[..., size:]
        of_two, of_new = passage.recurrence[: 2 * size], passage.recurrence[2 * size :]
        of_gates = xp.empty_like(gates)
        for time in reversed(passage.times):
            going, _ = passage.going_on(time, hidden + outputs[time])
            _, ended = passage.going_on(time, hidden)
            now = of_gates[time]
            now[:, 2 * size :] = going * (1 - z[time]) * slope[time]
            now[:, :size] = going * (before[time] - h[time]) * slopes[time, :, :size]
            hidden = going * z[time] + ended
            if self.linear_before_reset:
                of_r = now[:, 2 * size :] * linear[time]
                hidden += (now[:, 2 * size :] * r[time]) @ of_new
            else:
                of_product = now[:, 2 * size :] @ of_new
                of_r = of_product * before[time]
                hidden += of_product * r[time]
            now[:, size : 2 * size] = of_r * slopes[time, :, size:]
            hidden += now[:, : 2 * size] @ of_two
        inner = of_gates.copy()  # what comes to the recurrence
        if self.linear_before_reset:
            inner[..., 2 * size :] *= r
            of_recurrence = _product(inner, before)
        else:
            of_recurrence = xp.concatenate(
                (_product(inner[..., : 2 * size], before), _product(inner[..., 2 * size :], r * before))
            )
        return Through(of_gates, of_recurrence, _total(inner), None, hidden)


@final
@dataclass(frozen=True)
class LSTMCell(Cell):
    """c' = f c + i c~, h' = o h(c')   (Gers et al., 2002, "Learning Precise Timing with LSTM …")

    i, f = f(Wx + Rh + p c + b), o = f(Wx + Rh + p c' + b), c~ = g(Wx + Rh + b); f = 1 − i with input_forget.
    Gates: i, o, f, c; peepholes p: i, o, f.
    """

    input_forget: bool

    def run(
        self, xp: Any, passage: Passage, gates: Array, hidden: Array, cell: Array | None
    ) -> tuple[Array, Array, Array | None, tuple[Array, ...]]:
        f, g, h = passage.functions
        if passage.bias is not None:
            gates += passage.bias
        outputs = xp.zeros((*gates.shape[:2], hidden.shape[-1]), dtype=gates.dtype)
        before, cells_before, cells = xp.empty_like(outputs), xp.empty_like(outputs), xp.empty_like(outputs)
        transposed = passage.recurrence.T
        assert cell is not None
        for time in passage.times:
            before[time], cells_before[time] = hidden, cell
            now = gates[time]
            now += hidden @ transposed
            a_i, a_o, a_f, a_c = _parts(now, 4)
            if passage.peepholes is not None:
                p_i, p_o, p_f = _parts(passage.peepholes, 3)
                a_i += p_i * cell
                a_f += p_f * cell
            i = f(xp, a_i)
            forget = 1 - i if self.input_forget else f(xp, a_f)
            new_cell = forget * cell + i * g(xp, a_c)
            if passage.peepholes is not None:
                a_o += p_o * new_cell
            new = f(xp, a_o) * h(xp, new_cell)
            cells[time] = new_cell
            outputs[time] = passage.step(xp, time, new, 0)
            hidden = passage.step(xp, time, new, hidden)
            cell = passage.step(xp, time, new_cell, cell)
        return outputs, hidden, cell, (gates, before, cells_before, cells)

    def back(
        self,
        xp: Any,
        passage: Passage,
        kept: Sequence[Array],
        outputs: Array,
        hidden: Array,
        cell: Array | None,
    ) -> Through:
        gates, before, cells_before, cells = kept
        f, g, h = passage.functions
        a_i, a_o, a_f, a_c = _parts(gates, 4)
        i, o, c, hc = f(xp, a_i), f(xp, a_o), g(xp, a_c), h(xp, cells)
        forget = 1 - i if self.input_forget else f(xp, a_f)
        slope_i, slope_o = f.slopes(xp, a_i, i), f.slopes(xp, a_o, o)
        slope_f = 0 * i if self.input_forget else f.slopes(xp, a_f, forget)
        slope_c, slope_h = g.slopes(xp, a_c, c), h.slopes(xp, cells, hc)
        of_gates = xp.empty_like(gates)
        of_i, of_o, of_f, of_c = _parts(of_gates, 4)
        for time in reversed(passage.times):
            going, _ = passage.going_on(time, hidden + outputs[time])
            _, ended = passage.going_on(time, hidden)
            of_cell, cell_ended = passage.going_on(time, cell)
            of_o[time] = going * hc[time] * slope_o[time]
            of_cell = of_cell + going * o[time] * slope_h[time]
            if passage.peepholes is not None:
                p_i, p_o, p_f = _parts(passage.peepholes, 3)
                of_cell += of_o[time] * p_o
            of_forget = of_cell * cells_before[time]
            of_f[time] = of_forget * slope_f[time]
            of_i[time] = (of_cell * c[time] - of_forget * self.input_forget) * slope_i[time]
            of_c[time] = of_cell * i[time] * slope_c[time]
            cell = of_cell * forget[time] + cell_ended
            if passage.peepholes is not None:
                cell += of_i[time] * p_i + of_f[time] * p_f
            hidden = of_gates[time] @ passage.recurrence + ended
        of_peepholes = xp.concatenate(
            [_total(of_i * cells_before), _total(of_o * cells), _total(of_f * cells_before)]
        )
        return Through(of_gates, _product(of_gates, before), _total(of_gates), of_peepholes, hidden, cell)


def _parts(array: Array, count: int) -> list[Array]:
    """Views of as many equal parts of the last axis."""
    size = array.shape[-1] // count
    return [array[..., first : first + size] for first in range(0, count * size, size)]


def _product(left: Array, right: Array) -> Array:
    """Σ over steps and sequences: (T, B, m), (T, B, n) -> (m, n)."""
    return left.reshape(-1, left.shape[-1]).T @ right.reshape(-1, right.shape[-1])


def _total(array: Array) -> Array:
    return array.sum(axis=(0, 1))
