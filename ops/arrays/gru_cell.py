"""GRUCell: one direction of a GRU"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.operators.array_operator import Array
from d5ray.ops.arrays.cells import Cell, Passage, Through, product, total


@final
@dataclass(frozen=True)
class GRUCell(Cell):
    """h' = (1 − z) h~ + z h, z = f(...), r = f(...)   (Cho et al., arXiv:1406.1078).

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
            of_recurrence = product(inner, before)
        else:
            of_recurrence = xp.concatenate(
                (product(inner[..., : 2 * size], before), product(inner[..., 2 * size :], r * before))
            )
        return Through(of_gates, of_recurrence, total(inner), None, hidden)
