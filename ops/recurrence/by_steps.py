"""Recurrent operators step by step, in a framework that differentiates them"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.recurrence.activations import activations_of
from d5ray.ops.recurrence.formulas import Function, States, Tensor, direction_of, recurrence_of, ways_of


@final
@dataclass(frozen=True)
class StepLibrary:
    """A framework that differentiates: all that recurrences need of it besides its tensors' operators.

    xp: its einsum, split and stack. zeros: a first state (batch, hidden), for x (time, batch, input) and
    hidden. all_steps: the outputs (time, batch, hidden), 0 beyond a sequence's length, and last states,
    for a step, what comes to it (time, batch, gates · hidden), first states, lengths, and "backwards".
    """

    xp: Any
    functions: Mapping[str, Callable[..., Tensor]]
    clip: Callable[[Tensor, float, float], Tensor]
    zeros: Callable[[Tensor, int], Tensor]
    all_steps: Callable[..., tuple[Tensor, States]]

    def function(self, name: str, parameters: tuple[float, ...], clip: float | None) -> Function:
        """An activation, of what is bounded to [−clip, clip] where there is such a bound, and it is not 0."""
        found = self.functions[name]
        if not clip:
            return lambda x: found(x, *parameters)
        return lambda x: found(self.clip(x, -clip, clip), *parameters)


def by_steps(context: NodeContext, library: StepLibrary) -> Kernel:
    """A recurrent operator step by step: its outputs, and its last states."""
    kind, ways, xp = recurrence_of(context), ways_of(context), library.xp
    batch_first, clip = bool(context.attribute("layout", 0)), context.attribute("clip")
    functions = [[library.function(*each, clip) for each in own] for own in activations_of(context)]

    def call(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        *more: Tensor | None,  # first states, and of an LSTM peepholes
    ) -> list[Tensor]:
        given = (*more, None, None, None)
        x = xp.einsum("bti->tbi", x) if batch_first else x
        found = []
        for side, backwards in enumerate(ways):
            transposed, gates = xp.einsum("gh->hg", r[side]), xp.einsum("tbi,gi->tbg", x, w[side])
            at, bias = direction_of(
                kind,
                side,
                transposed,
                b,
                given[kind.states],
                functions[side],
                lambda x, n: xp.split(x, n, -1),
            )
            gates = gates if bias is None else gates + bias
            states = tuple(
                library.zeros(x, at.hidden)
                if state is None
                else (state[:, side] if batch_first else state[side])
                for state in given[: kind.states]
            )
            found.append(library.all_steps(partial(kind.step, at), gates, states, lengths, backwards))
        ys, lasts = zip(*found, strict=True)
        y = xp.stack(ys, 1)  # (time, directions, batch, hidden)
        return [
            xp.einsum("tdbh->btdh", y) if batch_first else y,
            *(xp.stack(states, int(batch_first)) for states in zip(*lasts, strict=True)),
        ]

    return call
