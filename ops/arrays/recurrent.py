"""RNN, GRU and LSTM"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import iadd
from typing import Any, ClassVar, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays import recurrent_gradients
from d5ray.ops.arrays.gate_functions import gate_functions
from d5ray.ops.arrays.recurrent_gradients import Back, DirectionGradients, ForwardPass
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept
from d5ray.ops.recurrence.formulas import Recurrence, States, direction_of, recurrence_of, ways_of

BIAS, LENGTHS, HIDDEN, CELL, PEEPHOLES = 3, 4, 5, 6, 7  # the optional inputs


@final
@dataclass(frozen=True)
class Recurrent(WideOperator):
    """The common part of RNN, GRU and LSTM: directions, layout, lengths, and products outside of time.

    Inputs: x (T, B, I), w (D, G·H, I), r (D, G·H, H), b (D, 2·G·H), sequence_lens (B,), first states (D, B,
    H), peepholes (D, 3·H); outputs: y (T, D, B, H), last states (D, B, H). With layout 1 the batch comes
    first. T steps, B sequences, D directions, G gates, H hidden. What a sequence has behind its length counts
    for nothing: its outputs there are 0, and the reverse direction starts at its own end. The products of
    inputs and weights are one for all steps; only the recurrence goes step by step.
    """

    needs: ClassVar[int] = 3

    back: Back

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, weight = _time_first(context, inputs[0]), inputs[1]
        assert weight is not None
        kind, outputs, lasts = recurrence_of(context), list[Array](), list[States]()
        all_kept: list[Array] = []
        for side, (forward, bias) in enumerate(_sides(xp, context, inputs)):
            gates = _product(x, weight[side].T)
            if bias is not None:
                gates += bias
            y, last, own = _forwards(xp, kind, forward, gates)
            outputs.append(y)
            lasts.append(last)
            all_kept.extend(own)
        states = [_state_as_asked(context, xp.stack(each)) for each in zip(*lasts, strict=True)]
        y = xp.stack(outputs, axis=1)
        return outputs_and_kept(
            context, (y.transpose(2, 0, 1, 3) if _batch_first(context) else y, *states), *all_kept
        )

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        x, weight = _time_first(context, inputs[0]), inputs[1]
        assert weight is not None
        sides = _sides(xp, context, inputs)
        all_kept = kept(context, outputs)
        each = len(all_kept) // len(sides)
        of_y = gradient_of(gradients, 0)
        if of_y is not None and _batch_first(context):
            of_y = of_y.transpose(1, 2, 0, 3)
        of_x, throughs = xp.zeros_like(x), []
        for side, (forward, _) in enumerate(sides):
            shape = (*x.shape[:2], forward.at.hidden)
            through = self.back(
                xp,
                context,
                forward,
                all_kept[side * each : (side + 1) * each],
                xp.zeros(shape, dtype=x.dtype) if of_y is None else of_y[:, side],
                tuple(
                    _of_state(xp, context, gradient_of(gradients, 1 + index), side, state)
                    for index, state in enumerate(forward.states)
                ),
            )
            of_x += _product(through.gates, weight[side])
            throughs.append(through)
        return tuple(
            _of_input(xp, context, index, given, x, of_x, throughs) for index, given in enumerate(inputs)
        )


def _forwards(
    xp: Any, kind: Recurrence, forward: ForwardPass, gates: Array
) -> tuple[Array, States, tuple[Array, ...]]:
    """The outputs (T, B, H), the last states (B, H), and what is kept for the way back, see `Back`."""
    outputs, states = xp.zeros((*gates.shape[:2], forward.at.hidden), dtype=gates.dtype), forward.states
    beside = [xp.empty_like(outputs) for _ in range(kind.states + kind.more)]
    step, at = kind.step, forward.at
    for time in forward.times:
        after, more = step(at, gates[time], states)
        for array, each in zip(beside, states + more, strict=True):
            array[time] = each
        if forward.active is None:
            outputs[time], states = after[0], after
        else:
            active = forward.active[time]
            outputs[time] = xp.where(active, after[0], 0)
            states = tuple(xp.where(active, *each) for each in zip(after, states, strict=True))
    return outputs, states, (gates, *beside)


def _sides(
    xp: Any, context: NodeContext, inputs: Sequence[Array | None]
) -> list[tuple[ForwardPass, Array | None]]:
    """The way of every direction through time, and the bias of its gates (G·H,)."""
    ways, x, weight, recurrence = ways_of(context), _time_first(context, inputs[0]), inputs[1], inputs[2]
    assert weight is not None and recurrence is not None
    if weight.shape[0] != len(ways) or recurrence.shape[0] != len(ways):
        raise ConfigurationError(
            f"the node {context.node} has weights of {weight.shape} and {recurrence.shape} for {len(ways)} "
            "directions: forward or reverse goes with weights of one direction, bidirectional with two"
        )
    kind, functions, times = recurrence_of(context), gate_functions(xp, context), range(x.shape[0])
    bias, lengths, peepholes = (optional(inputs, index) for index in (BIAS, LENGTHS, PEEPHOLES))
    active = None if lengths is None else xp.arange(len(times))[:, None, None] < lengths[None, :, None]
    states = [
        _first_state(xp, context, optional(inputs, index), x, recurrence)
        for index in (HIDDEN, CELL)[: kind.states]
    ]
    found = []
    for side, backwards in enumerate(ways):
        at, of_gates = direction_of(
            kind, side, recurrence[side].T, bias, peepholes, functions[side], _split, iadd
        )
        forward = ForwardPass(
            times[::-1] if backwards else times,
            active,
            recurrence[side],
            functions[side],
            at,
            tuple(state[side] for state in states),
        )
        found.append((forward, of_gates))
    return found


def _split(array: Array, sizes: Sequence[int]) -> list[Array]:
    """Views of the last axis in parts of these sizes."""
    found, begin = [], 0
    for size in sizes:
        found.append(array[..., begin : begin + size])
        begin += size
    return found


def _of_input(
    xp: Any,
    context: NodeContext,
    index: int,
    given: Array | None,
    x: Array,
    of_x: Array,
    throughs: Sequence[DirectionGradients],
) -> Array | None:
    if given is None or index == LENGTHS:
        return None
    if index == 0:
        return _time_first(context, of_x)
    if index == 1:
        flat = x.reshape(-1, x.shape[-1])
        return xp.stack([each.gates.reshape(-1, each.gates.shape[-1]).T @ flat for each in throughs])
    if index == 2:
        return xp.stack([each.recurrence for each in throughs])
    if index == BIAS:
        return xp.stack([xp.concatenate((each.gates.sum(axis=(0, 1)), each.bias)) for each in throughs])
    if index == PEEPHOLES:
        return xp.stack([each.peepholes for each in throughs])
    return _state_as_asked(context, xp.stack([each.states[index - HIDDEN] for each in throughs]))


def _product(sequences: Array, matrix: Array) -> Array:
    """(T, B, m), (m, n) -> (T, B, n), as one product."""
    return (sequences.reshape(-1, matrix.shape[0]) @ matrix).reshape(*sequences.shape[:2], matrix.shape[1])


def _batch_first(context: NodeContext) -> bool:
    return bool(context.attribute("layout", 0))


def _time_first(context: NodeContext, x: Array) -> Array:
    return x.swapaxes(0, 1) if _batch_first(context) else x


def _state_as_asked(context: NodeContext, state: Array) -> Array:
    """A state (directions, batch, hidden), or with layout 1 (batch, directions, hidden); and back."""
    return state.swapaxes(0, 1) if _batch_first(context) else state


def _first_state(xp: Any, context: NodeContext, given: Array | None, x: Array, recurrence: Array) -> Array:
    if given is not None:
        return _state_as_asked(context, given)
    return xp.zeros((recurrence.shape[0], x.shape[1], recurrence.shape[2]), dtype=x.dtype)


def _of_state(xp: Any, context: NodeContext, gradient: Array | None, side: int, like: Array) -> Array:
    return xp.zeros_like(like) if gradient is None else _state_as_asked(context, gradient)[side]


OPERATORS: Mapping[str, ArrayOperator] = {
    "GRU": Recurrent(recurrent_gradients.gru),
    "LSTM": Recurrent(recurrent_gradients.lstm),
    "RNN": Recurrent(recurrent_gradients.rnn),
}
