"""RNN, GRU and LSTM"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.recurrence.by_steps import StepLibrary, by_steps
from d5ray.ops.recurrence.formulas import States
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, outputs, sizes

# Of x, and of alpha and beta where ONNX's function has them.
FUNCTIONS: Final[Mapping[str, Callable[..., Tensor]]] = {
    "Affine": lambda x, alpha, beta: alpha * x + beta,
    "Elu": lambda x, alpha: tf.where(x > 0, x, alpha * tf.nn.elu(x)),
    "HardSigmoid": lambda x, alpha, beta: tf.clip_by_value(alpha * x + beta, 0, 1),
    "LeakyRelu": lambda x, alpha: tf.where(x < 0, alpha * x, x),  # TensorFlow's own has alpha in float32
    "Relu": tf.nn.relu,
    "ScaledTanh": lambda x, alpha, beta: alpha * tf.tanh(beta * x),
    "Sigmoid": tf.sigmoid,
    "Softplus": tf.math.softplus,
    "Softsign": tf.nn.softsign,
    "Tanh": tf.tanh,
    "ThresholdedRelu": lambda x, alpha: tf.where(x > alpha, x, tf.zeros_like(x)),
}


def _all_steps(
    step: Callable[[Tensor, States], tuple[States, Any]],
    gates: Tensor,
    states: States,
    lengths: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, States]:
    gates = _reversed(gates, lengths) if backwards else gates
    steps = sizes(gates)[0]
    # Not `gates[time]`, whose gradient is as long as the sequence, in every step.
    given = tf.TensorArray(gates.dtype, size=steps).unstack(gates)
    written = tf.TensorArray(gates.dtype, size=steps, element_shape=states[0].shape)

    def body(time: Tensor, written: Any, states: States) -> tuple[Tensor, Any, States]:
        after, _ = step(given.read(time), states)
        output = after[0]
        if lengths is not None:
            going = tf.expand_dims(time < lengths, -1)
            after = tuple(tf.where(going, new, old) for new, old in zip(after, states, strict=True))
            output = tf.where(going, output, tf.zeros_like(output))
        return time + 1, written.write(time, output), after

    _, written, states = tf.while_loop(
        lambda time, *_: time < steps, body, (tf.constant(0), written, states), maximum_iterations=steps
    )
    y = written.stack()
    return (_reversed(y, lengths) if backwards else y), states


def _reversed(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Every sequence (time, batch, ...) from its end to its begin; what follows its end stays."""
    return (
        tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
    )


def _zeros(x: Tensor, hidden: int) -> Tensor:
    return tf.zeros([sizes(x)[1], hidden], x.dtype)


STEPS: Final = StepLibrary(tf, FUNCTIONS, tf.clip_by_value, _zeros, _all_steps)


def _recurrent(context: NodeContext) -> Kernel:
    call = by_steps(context, STEPS)
    return lambda *inputs: outputs(context, call(*inputs))


FACTORIES: Mapping[str, KernelFactory] = dict.fromkeys(("GRU", "LSTM", "RNN"), _recurrent)
