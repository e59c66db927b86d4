"""One step of RNN, GRU and LSTM, each as one formula over any framework's tensors"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import add
from typing import Any, Final, final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import NodeContext

Tensor = Any  # of any framework
Function = Callable[[Tensor], Tensor]
States = tuple[Tensor, ...]  # (batch, hidden) each; the first is the output

DIRECTIONS: Final = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


@final
@dataclass(frozen=True)
class Direction:
    """Weights and functions that all steps of one direction share. H hidden, G gates, one after the other.

    recurrence: R' (H, G·H), in the parts that are multiplied apart; bias: R's own (G·H,), where it cannot
    stand with W's; peepholes (H,) of input, output and forget gate. split: the last axis in parts of these
    sizes. add: x + y, into x where its array is nobody else's.
    """

    hidden: int
    recurrence: Sequence[Tensor]
    bias: Tensor | None
    peepholes: Sequence[Tensor] | None
    functions: Sequence[Function]
    split: Callable[[Tensor, list[int]], Sequence[Tensor]]
    add: Callable[[Tensor, Tensor], Tensor]

    def parts(self, x: Tensor, *gates: int) -> Sequence[Tensor]:
        """The last axis in parts of so many gates."""
        return self.split(x, [count * self.hidden for count in gates])


# The states after a step, and what else of it a backward pass needs (batch, hidden), for Wx + b (batch, gates
# · hidden) and the states before. Where `add` is in place, the first becomes what the activations take.
After = tuple[States, tuple[Tensor, ...]]
Step = Callable[[Direction, Tensor, States], After]


@final
@dataclass(frozen=True)
class Recurrence:
    """A type of operator: its step, its states, the gates in each product with R, its usual activations.

    inner_bias: R's bias is a part of the product. more: how many tensors a step gives besides its states.
    """

    step: Step
    states: int
    products: tuple[int, ...]
    activations: tuple[str, ...]
    inner_bias: bool = False
    more: int = 0


def _rnn(at: Direction, x: Tensor, states: States) -> After:
    """h' = f(Wx + Rh + b)"""
    (f,), (h,), (r,) = at.functions, states, at.recurrence
    return (f(at.add(x, h @ r)),), ()


def _gru(at: Direction, x: Tensor, states: States) -> After:
    """h' = (1 − z) h~ + z h;  z, r = f(Wx + Rh + b);  h~ = g(Wx + R(r h) + b)   (arXiv:1406.1078)"""
    (f, g), (h,), (to_gates, to_new) = at.functions, states, at.recurrence
    x_gates, x_new = at.parts(x, 2, 1)
    z, r = at.parts(f(at.add(x_gates, h @ to_gates)), 1, 1)
    new = g(at.add(x_new, (r * h) @ to_new))
    return ((1 - z) * new + z * h,), ()


def _gru_before_reset(at: Direction, x: Tensor, states: States) -> After:
    """As `_gru`, with h~ = g(Wx + r (Rh + b_R) + b_W)"""
    (f, g), (h,), (recurrence,) = at.functions, states, at.recurrence
    product = h @ recurrence
    gates, linear = at.parts(product if at.bias is None else product + at.bias, 2, 1)
    x_gates, x_new = at.parts(x, 2, 1)
    z, r = at.parts(f(at.add(x_gates, gates)), 1, 1)
    new = g(at.add(x_new, r * linear))
    return ((1 - z) * new + z * h,), (linear,)


def _lstm(at: Direction, x: Tensor, states: States, *, input_forget: bool) -> After:
    """c' = f c + i c~, h' = o h(c')   (Hochreiter and Schmidhuber, 1997; Gers et al., 2002)

    i, f = f(Wx + Rh + p c + b), o = f(Wx + Rh + p c' + b), c~ = g(Wx + Rh + b); f = 1 − i with input_forget.
    """
    (f, g, out), (h, c), (r,) = at.functions, states, at.recurrence
    i, o, forget, new = at.parts(at.add(x, h @ r), 1, 1, 1, 1)
    if at.peepholes is not None:
        i, forget = at.add(i, at.peepholes[0] * c), at.add(forget, at.peepholes[2] * c)
    i = f(i)
    c = (1 - i if input_forget else f(forget)) * c + i * g(new)
    if at.peepholes is not None:
        o = at.add(o, at.peepholes[1] * c)
    return (f(o) * out(c), c), (c,)


def recurrence_of(context: NodeContext) -> Recurrence:
    """The recurrence that a node asks for. Gates of a GRU: z, r, h; of an LSTM: i, o, f, c."""
    if context.node.type == "RNN":
        return Recurrence(_rnn, 1, (1,), ("Tanh",))
    if context.node.type == "LSTM":
        step = partial(_lstm, input_forget=bool(context.attribute("input_forget", 0)))
        return Recurrence(step, 2, (4,), ("Sigmoid", "Tanh", "Tanh"), more=1)
    if context.attribute("linear_before_reset", 0):
        return Recurrence(_gru_before_reset, 1, (3,), ("Sigmoid", "Tanh"), inner_bias=True, more=1)
    return Recurrence(_gru, 1, (2, 1), ("Sigmoid", "Tanh"))


def ways_of(context: NodeContext) -> tuple[bool, ...]:
    """True for each direction that goes backwards. Raises `ConfigurationError` where it is no direction."""
    direction = context.attribute("direction", "forward")
    if direction not in DIRECTIONS:
        raise ConfigurationError(
            f"the node {context.node} has direction={direction!r}: give forward, reverse or bidirectional"
        )
    return DIRECTIONS[direction]


def direction_of(
    kind: Recurrence,
    side: int,
    transposed: Tensor,
    b: Tensor | None,
    peepholes: Tensor | None,
    functions: Sequence[Function],
    split: Callable[[Tensor, list[int]], Sequence[Tensor]],
    add: Callable[[Tensor, Tensor], Tensor] = add,
) -> tuple[Direction, Tensor | None]:
    """The direction for its steps, and the bias that comes to them with the inputs (gates · hidden,).

    transposed: R' (H, G·H), of this direction; b: W's and R's (D, 2·G·H); peepholes (D, 3·H).
    """
    hidden = transposed.shape[0]
    of_inputs, inner = (None, None) if b is None else split(b[side], [sum(kind.products) * hidden] * 2)
    if of_inputs is not None and not kind.inner_bias:
        of_inputs, inner = of_inputs + inner, None
    recurrence = split(transposed, [count * hidden for count in kind.products])
    seen = None if peepholes is None else split(peepholes[side], [hidden] * 3)
    return Direction(hidden, recurrence, inner, seen, functions, split, add), of_inputs
