"""Collectives and one part of a Dropout as operations of TensorFlow, in graphs too"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from d5ray.kits.parallel.collectives import nodes as types
from d5ray.kits.parallel.collectives.arrays import ArrayExchanges
from d5ray.kits.parallel.collectives.exchanges import Exchange
from d5ray.kits.parallel.collectives.nodes import group_of
from d5ray.operators.nodes.node_context import Kernel, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.randomness import generator

Tensor = Any  # of TensorFlow
_last: "WeakKeyDictionary[Any, dict[str, Any]]" = (
    WeakKeyDictionary()
)  # exchange of a graph, or of a direction
_apart: ContextVar[bool] = ContextVar("passes_apart", default=False)


def implementation(context: NodeContext) -> Kernel:
    """A collective, or one part of a Dropout, as a function of TensorFlow's tensors."""
    made = _part_of_dropout(context) if context.node.type == types.DROPOUT else _collective(context)
    return tf.autograph.experimental.do_not_convert(made)  # type: ignore[no-any-return]


def _collective(context: NodeContext) -> Kernel:
    group_of(context)
    forth, back = ArrayExchanges(np, context).pair

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def collective(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        made = _applied(forth, x, _shape(context), "forward")
        return made, lambda gradient: _applied(back, gradient, x.shape, "backward")

    return collective  # type: ignore[no-any-return]


@contextmanager
def passes_apart() -> Iterator[None]:
    """A graph is traced which will be taken apart: its backward pass must not wait for its forward pass."""
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


def _applied(function: Exchange, x: Tensor, shape: Any, direction: str) -> Tensor:
    """A function on the tensor's array; in a graph after the exchange traced before, as on every part."""
    if tf.executing_eagerly():
        return tf.convert_to_tensor(function(np.asarray(x)))
    last = _last.setdefault(tf.compat.v1.get_default_graph(), {})
    chain = direction if _apart.get() else ""
    with tf.control_dependencies([last[chain]] if chain in last else []):
        made = tf.numpy_function(function, [x], x.dtype)
    last[chain] = made.op
    made.set_shape(shape)
    return made


def _shape(context: NodeContext) -> Any:
    known = context.outputs[0] if context.outputs else None
    if known is None or known.shape is None:
        return tf.TensorShape(None)
    return tf.TensorShape([size if isinstance(size, int) else None for size in known.shape])


def _part_of_dropout(context: NodeContext) -> Kernel:
    """The mask is drawn for all parts, as the Dropout of the whole tensor draws it, and this one's taken."""
    exchanges = ArrayExchanges(np, context)
    training = context.constants.get(2)
    if context.evaluating or not context.has_input(2) or (training is not None and not np.any(training)):
        return lambda x, *_: x
    random = generator(context)

    def whole_shape(shape: Any) -> Any:
        return np.array(exchanges.whole_shape(shape), np.int32)

    def train(x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Tensor:
        share = tf.constant(0.5) if ratio is None else tf.cast(ratio, tf.float32)
        share = tf.where(training, share, tf.zeros_like(share))
        whole = tf.numpy_function(whole_shape, [tf.shape(x)], tf.int32, stateful=True)  # differs by pass
        whole.set_shape([x.shape.rank])
        drawn = random.uniform(whole) >= share
        mask = tf.numpy_function(exchanges.part, [drawn], tf.bool, stateful=False)
        mask.set_shape(x.shape)
        scale = tf.cast(tf.math.divide_no_nan(1.0, 1.0 - share), x.dtype)
        return tf.where(mask, x * scale, tf.zeros_like(x))

    return train
