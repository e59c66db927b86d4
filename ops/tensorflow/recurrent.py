"""RNN, GRU and LSTM"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.kernel_factory import Kernel, KernelFactory
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, outputs, sizes

Activation = Callable[[Tensor], Tensor]
States = tuple[Tensor, ...]  # (batch, hidden) each; the first is the output
Step = Callable[[Tensor, States], States]  # from the projected input of a time step and the states before it

# With ONNX's defaults for alpha and beta where a function has them.
ACTIVATIONS: Mapping[str, tuple[Callable[[float, float], Activation], float, float]] = {
    "Affine": (lambda alpha, beta: lambda x: alpha * x + beta, 1.0, 0.0),
    "Elu": (lambda alpha, beta: lambda x: tf.where(x > 0, x, alpha * tf.nn.elu(x)), 1.0, 0.0),
    "HardSigmoid": (lambda alpha, beta: lambda x: tf.clip_by_value(alpha * x + beta, 0, 1), 0.2, 0.5),
    "LeakyRelu": (lambda alpha, beta: lambda x: tf.nn.leaky_relu(x, alpha), 0.01, 0.0),
    "Relu": (lambda alpha, beta: tf.nn.relu, 0.0, 0.0),
    "ScaledTanh": (lambda alpha, beta: lambda x: alpha * tf.tanh(beta * x), 1.0, 1.0),
    "Sigmoid": (lambda alpha, beta: tf.sigmoid, 0.0, 0.0),
    "Softplus": (lambda alpha, beta: tf.math.softplus, 0.0, 0.0),
    "Softsign": (lambda alpha, beta: tf.nn.softsign, 0.0, 0.0),
    "Tanh": (lambda alpha, beta: tf.tanh, 0.0, 0.0),
    "ThresholdedRelu": (lambda alpha, beta: lambda x: tf.where(x > alpha, x, tf.zeros_like(x)), 1.0, 0.0),
}


@final
@dataclass(frozen=True)
class Cell:
    """A time step of one direction of a recurrent operator, once its weights are known.

    `project` gives the input's part of all gates, of the whole sequence in one product; `step` the rest.
    """

    project: Callable[[Tensor], Tensor]  # (time, batch, input) to (time, batch, gates · hidden)
    step: Step


def _activations(context: NodeContext, directions: int, default: Sequence[str]) -> list[list[Activation]]:
    """The functions for every direction; alpha and beta go, in order, to the functions that take them."""
    names = list(context.attribute("activations") or list(default) * directions)
    if len(names) == len(default) and directions == 2:
        names *= 2  # as the defaults are given for one direction
    alphas, betas = (list(context.attribute(f"activation_{each}") or ()) for each in ("alpha", "beta"))
    found: list[Activation] = []
    lowered = {name.lower(): name for name in ACTIVATIONS}
    for name in names:
        if name.lower() not in lowered:
            raise ConfigurationError(
                f"the node {context.node} has the activation {name!r}: give one of {', '.join(ACTIVATIONS)}"
            )
        make, alpha, beta = ACTIVATIONS[lowered[name.lower()]]
        takes_alpha = lowered[name.lower()] in TAKES_ALPHA
        takes_beta = lowered[name.lower()] in TAKES_BETA
        found.append(
            make(
                alphas.pop(0) if takes_alpha and alphas else alpha,
                betas.pop(0) if takes_beta and betas else beta,
            )
        )
    count = len(default)
    return [found[direction * count : (direction + 1) * count] for direction in range(directions)]


TAKES_ALPHA = frozenset({"Affine", "Elu", "HardSigmoid", "LeakyRelu", "ScaledTanh", "ThresholdedRelu"})
TAKES_BETA = frozenset({"Affine", "HardSigmoid", "ScaledTanh"})


def _clipped(context: NodeContext) -> Activation:
    """The function that bounds the input of every activation to [−clip, clip]."""
    bound = context.attribute("clip")
    return (lambda x: x) if not bound else (lambda x: tf.clip_by_value(x, -bound, bound))


def _scanned(cell: Cell, x: Tensor, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
    """All outputs (time, batch, hidden), 0 beyond a sequence's end, and the last states of every sequence."""
    steps = sizes(x)[0]
    # Not `projected[time]`, whose gradient is as long as the sequence, in every step.
    projected = tf.TensorArray(x.dtype, size=steps).unstack(cell.project(x))
    written = tf.TensorArray(x.dtype, size=steps, element_shape=states[0].shape)

    def body(time: Tensor, written: Any, states: States) -> tuple[Tensor, Any, States]:
        after = cell.step(projected.read(time), states)
        output = after[0]
        if lengths is not None:
            going = tf.expand_dims(time < lengths, -1)
            after = tuple(tf.where(going, new, old) for new, old in zip(after, states, strict=True))
            output = tf.where(going, output, tf.zeros_like(output))
        return time + 1, written.write(time, output), after

    _, written, states = tf.while_loop(
        lambda time, *_: time < steps,
        body,
        (tf.constant(0), written, states),
        maximum_iterations=steps,
    )
    return written.stack(), states


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Every sequence (time, batch, ...) from its end to its begin; what follows its end stays."""
    return (
        tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
    )


def _run(
    context: NodeContext, x: Tensor, cells: Sequence[Cell], starts: Sequence[States], lengths: Tensor | None
) -> list[Tensor]:
    """Y (time, directions, batch, hidden) and the last states (directions, batch, hidden), or batch first."""
    direction = context.attribute("direction", "forward")
    backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    all_outputs, last = [], []
    for cell, states, back in zip(cells, starts, backwards, strict=True):
        sequence, states = _scanned(cell, _reversed(x, lengths) if back else x, states, lengths)
        all_outputs.append(_reversed(sequence, lengths) if back else sequence)
        last.append(states)
    batch_first = bool(context.attribute("layout", 0))
    y = tf.stack(all_outputs, 2 if batch_first else 1)
    y = tf.transpose(y, [1, 0, 2, 3]) if batch_first else y
    return [y, *(tf.stack(states, 1 if batch_first else 0) for states in zip(*last, strict=True))]


def _directions(context: NodeContext) -> int:
    direction = context.attribute("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise ConfigurationError(
            f"the node {context.node} has direction={direction!r}: give forward, reverse or bidirectional"
        )
    return 2 if direction == "bidirectional" else 1


def _times(x: Tensor, weights: Tensor) -> Tensor:
    """x W', for x (..., in) and W (out, in)."""
    if x.shape.rank == 2:
        return tf.matmul(x, weights, transpose_b=True)
    shape = sizes(x)
    product = tf.matmul(tf.reshape(x, [-1, shape[-1]]), weights, transpose_b=True)
    return tf.reshape(product, [*shape[:-1], sizes(weights)[0]])


def _recurrent(
    context: NodeContext, states: int, make: Callable[..., Cell], default: Sequence[str]
) -> Callable[..., Any]:
    """The common part of the three operators; make(functions, w, r, b, p) gives the cell of one direction."""
    directions = _directions(context)
    functions = _activations(context, directions, default)
    batch_first = bool(context.attribute("layout", 0))

    def call(
        x: Tensor,
        w: Tensor,
        r: Tensor,
        b: Tensor | None = None,
        lengths: Tensor | None = None,
        *more: Tensor | None,
    ) -> Any:
        given = [*more, None, None, None]
        x = tf.transpose(x, [1, 0, 2]) if batch_first else x
        zeros = tf.zeros([sizes(x)[1], r.shape[2]], x.dtype)
        peepholes = given[states]
        cells, starts = [], []
        for direction in range(directions):
            own = [None if each is None else each[direction] for each in (w, r, b, peepholes)]
            cells.append(make(functions[direction], *own))
            starts.append(
                tuple(
                    zeros if state is None else (state[:, direction] if batch_first else state[direction])
                    for state in given[:states]
                )
            )
        return outputs(context, _run(context, x, cells, starts, lengths))

    return call


def _rnn(context: NodeContext) -> Kernel:
    """h' = f(W x + R h + b)"""
    clip = _clipped(context)

    def make(functions: list[Activation], w: Tensor, r: Tensor, b: Tensor | None, _: None) -> Cell:
        bias = 0 if b is None else tf.add_n(tf.split(b, 2))
        return Cell(
            lambda x: _times(x, w) + bias,
            lambda x, states: (functions[0](clip(x + _times(states[0], r))),),
        )

    return _recurrent(context, 1, make, ("Tanh",))


def _gru(context: NodeContext) -> Kernel:
    """z, r = f(...), h~ = g(W x + R (r h) + b) or g(W x + r (R h + b_R) + b_W), h' = (1 − z) h~ + z h

    The gates stand in the order update, reset, hidden   (Cho et al., arXiv:1406.1078).
    """
    clip, reset_after = _clipped(context), bool(context.attribute("linear_before_reset", 0))

    def make(functions: list[Activation], w: Tensor, r: Tensor, b: Tensor | None, _: None) -> Cell:
        f, g = functions
        hidden = r.shape[-1]
        bias_w, bias_r = (0, None) if b is None else tf.split(b, 2)
        gates_r, hidden_r = r[: 2 * hidden], r[2 * hidden :]

        def reset_first(x: Tensor, states: States) -> States:
            (h,) = states
            both = f(clip(x[:, : 2 * hidden] + _biased(_times(h, gates_r), bias_r, slice(None, 2 * hidden))))
            update, reset = tf.split(both, 2, -1)
            inner = _biased(_times(reset * h, hidden_r), bias_r, slice(2 * hidden, None))
            return (_mixed(update, g(clip(x[:, 2 * hidden :] + inner)), h),)

        def reset_later(x: Tensor, states: States) -> States:
            (h,) = states
            inner = _biased(_times(h, r), bias_r, slice(None))
            both = f(clip(x[:, : 2 * hidden] + inner[:, : 2 * hidden]))
            update, reset = tf.split(both, 2, -1)
            return (_mixed(update, g(clip(x[:, 2 * hidden :] + reset * inner[:, 2 * hidden :])), h),)

        return Cell(lambda x: _times(x, w) + bias_w, reset_later if reset_after else reset_first)

    return _recurrent(context, 1, make, ("Sigmoid", "Tanh"))


def _biased(x: Tensor, bias: Tensor | None, part: slice) -> Tensor:
    return x if bias is None else x + bias[part]


def _mixed(update: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return (1 - update) * new + update * old


def _lstm(context: NodeContext) -> Kernel:
    """i, o, f = σ(W x + R h + P c + b), c' = f c + i tanh(...), h' = o tanh(c')

    The gates stand in the order input, output, forget, cell; the output gate's peephole sees c'
    (Hochreiter and Schmidhuber, 1997; Gers and Schmidhuber, 2000).
    """
    clip, coupled = _clipped(context), bool(context.attribute("input_forget", 0))

    def make(functions: list[Activation], w: Tensor, r: Tensor, b: Tensor | None, p: Tensor | None) -> Cell:
        f, g, h = functions
        bias = 0 if b is None else tf.add_n(tf.split(b, 2))
        peep_i, peep_o, peep_f = (None, None, None) if p is None else tf.split(p, 3)

        def peeped(gate: Tensor, peephole: Tensor | None, cell: Tensor) -> Tensor:
            return f(clip(gate if peephole is None else gate + peephole * cell))

        def step(x: Tensor, states: States) -> States:
            output, cell = states
            i, o, forget, new = tf.split(x + _times(output, r), 4, -1)
            i = peeped(i, peep_i, cell)
            forget = 1 - i if coupled else peeped(forget, peep_f, cell)
            cell = forget * cell + i * g(clip(new))
            return peeped(o, peep_o, cell) * h(cell), cell

        return Cell(lambda x: _times(x, w) + bias, step)

    return _recurrent(context, 2, make, ("Sigmoid", "Tanh", "Tanh"))


FACTORIES: Mapping[str, KernelFactory] = {"GRU": _gru, "LSTM": _lstm, "RNN": _rnn}
