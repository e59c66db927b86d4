"""LSTMCell: one direction of an LSTM"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.cells import Cell, Passage, Through, parts, product, total


@final
@dataclass(frozen=True)
class LSTMCell(Cell):
    """c' = f c + i c~, h' = o h(c')   (Gers et al., 2002, "Learning Precise Timing with LSTM …").

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
            a_i, a_o, a_f, a_c = parts(now, 4)
            if passage.peepholes is not None:
                p_i, p_o, p_f = parts(passage.peepholes, 3)
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
        a_i, a_o, a_f, a_c = parts(gates, 4)
        i, o, c, hc = f(xp, a_i), f(xp, a_o), g(xp, a_c), h(xp, cells)
        forget = 1 - i if self.input_forget else f(xp, a_f)
        slope_i, slope_o = f.slopes(xp, a_i, i), f.slopes(xp, a_o, o)
        slope_f = 0 * i if self.input_forget else f.slopes(xp, a_f, forget)
        slope_c, slope_h = g.slopes(xp, a_c, c), h.slopes(xp, cells, hc)
        of_gates = xp.empty_like(gates)
        of_i, of_o, of_f, of_c = parts(of_gates, 4)
        for time in reversed(passage.times):
            going, _ = passage.going_on(time, hidden + outputs[time])
            _, ended = passage.going_on(time, hidden)
            of_cell, cell_ended = passage.going_on(time, cell)
            of_o[time] = going * hc[time] * slope_o[time]
            of_cell = of_cell + going * o[time] * slope_h[time]
            if passage.peepholes is not None:
                p_i, p_o, p_f = parts(passage.peepholes, 3)
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
            [total(of_i * cells_before), total(of_o * cells), total(of_f * cells_before)]
        )
        return Through(of_gates, product(of_gates, before), total(of_gates), of_peepholes, hidden, cell)
