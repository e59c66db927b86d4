"""RNN, GRU and LSTM"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

from d5ray.errors import ConfigurationError
from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.cells import Cell, Passage, Through
from d5ray.ops.arrays.gate_functions import GateFunction, gate_functions
from d5ray.ops.arrays.gru_cell import GRUCell
from d5ray.ops.arrays.lstm_cell import LSTMCell
from d5ray.ops.arrays.rnn_cell import RNNCell
from d5ray.ops.arrays.wide import WideOperator, gradient_of, kept, optional, outputs_and_kept

DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}
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

    functions: tuple[str, ...]  # ONNX's defaults
    cell: Callable[[NodeContext], Cell]
    inputs: int  # at most

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        x, weight = _time_first(context, inputs[0]), inputs[1]
        assert weight is not None
        sides = self._sides(xp, context, inputs)
        outputs, hidden, cells = [], [], []
        all_kept: list[Array] = []
        for side, (passage, first_hidden, first_cell) in enumerate(sides):
            gates = _product(x, weight[side].T)
            if (bias := optional(inputs, BIAS)) is not None:
                gates += bias[side, : gates.shape[-1]]
            found = self.cell(context).run(xp, passage, gates, first_hidden, first_cell)
            outputs.append(found[0])
            hidden.append(found[1])
            cells.append(found[2])
            all_kept.extend(found[3])
        states = [_state_as_asked(context, xp.stack(hidden))]
        if cells[0] is not None:
            states.append(_state_as_asked(context, xp.stack(cells)))
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
        sides = self._sides(xp, context, inputs)
        all_kept = kept(context, outputs)
        each = len(all_kept) // len(sides)
        of_y = gradient_of(gradients, 0)
        if of_y is not None and _batch_first(context):
            of_y = of_y.transpose(1, 2, 0, 3)
        of_x, throughs = xp.zeros_like(x), []
        for side, (passage, hidden, cell) in enumerate(sides):
            shape = (*x.shape[:2], hidden.shape[-1])
            through = self.cell(context).back(
                xp,
                passage,
                all_kept[side * each : (side + 1) * each],
                xp.zeros(shape, dtype=x.dtype) if of_y is None else of_y[:, side],
                _of_state(xp, context, gradient_of(gradients, 1), side, hidden),
                None if cell is None else _of_state(xp, context, gradient_of(gradients, 2), side, cell),
            )
            of_x += _product(through.gates, weight[side])
            throughs.append(through)
        return tuple(
            _of_input(xp, context, index, given, x, of_x, throughs) for index, given in enumerate(inputs)
        )

    def _sides(
        self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]
    ) -> list[tuple[Passage, Array, Array | None]]:
        """The way of every direction through time, and its first states."""
        direction = context.attribute("direction", "forward")
        x, weight, recurrence = _time_first(context, inputs[0]), inputs[1], inputs[2]
        assert weight is not None and recurrence is not None
        count = DIRECTIONS.get(direction)
        if count is None or weight.shape[0] != count or recurrence.shape[0] != count:
            raise ConfigurationError(
                f"{context.node} has the direction {direction!r} with weights of {weight.shape} and "
                f"{recurrence.shape}: it must be forward or reverse, with weights of one direction, or "
                "bidirectional with two"
            )
        functions = gate_functions(context, self.functions, count)
        hidden = _first_state(xp, context, optional(inputs, HIDDEN), x, recurrence)
        with_cell = self.inputs > CELL
        cell = _first_state(xp, context, optional(inputs, CELL), x, recurrence) if with_cell else None
        times = range(x.shape[0])
        return [
            (
                _passage(xp, inputs, side, times[::-1] if direction == "reverse" or side else times, each),
                hidden[side],
                None if cell is None else cell[side],
            )
            for side, each in enumerate(functions)
        ]


def _passage(
    xp: Any, inputs: Sequence[Array | None], side: int, times: range, functions: Sequence[GateFunction]
) -> Passage:
    recurrence, bias, lengths = inputs[2], optional(inputs, BIAS), optional(inputs, LENGTHS)
    peepholes = optional(inputs, PEEPHOLES)
    assert recurrence is not None
    active = None
    if lengths is not None:
        active = xp.arange(len(times))[:, None, None] < lengths[None, :, None]
    return Passage(
        times,
        active,
        recurrence[side],
        None if bias is None else bias[side, bias.shape[1] // 2 :],
        None if peepholes is None else peepholes[side],
        functions,
    )


def _of_input(
    xp: Any,
    context: NodeContext,
    index: int,
    given: Array | None,
    x: Array,
    of_x: Array,
    throughs: Sequence[Through],
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
    return _state_as_asked(
        context, xp.stack([each.hidden if index == HIDDEN else each.cell for each in throughs])
    )


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
    "GRU": Recurrent(
        ("Sigmoid", "Tanh"), lambda context: GRUCell(bool(context.attribute("linear_before_reset", 0))), 6
    ),
    "LSTM": Recurrent(
        ("Sigmoid", "Tanh", "Tanh"), lambda context: LSTMCell(bool(context.attribute("input_forget", 0))), 8
    ),
    "RNN": Recurrent(("Tanh",), lambda context: RNNCell(), 6),
}
