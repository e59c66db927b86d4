"""RNNCell: one direction of an RNN"""

from collections.abc import Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.cells import Cell, Passage, Through, product, total


@final
class RNNCell(Cell):
    """h' = f(Wx + Rh + b)."""

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
        return Through(of_gates, product(of_gates, before), total(of_gates), None, hidden)
