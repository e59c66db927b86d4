"""Tensors that are made, not computed: constants, ranges, shapes, random numbers"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.randomness import generator
from d5ray.ops.tensorflow.tensors import Size, Tensor, known, plain, sizes, type_of

FLOAT = 1  # ONNX's number of float32

# The attributes in which a Constant may hold its value, with the type that ONNX gives it.
VALUES: Mapping[str, Any] = {
    "value": None,
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.str_,
    "value_strings": np.str_,
}


def _constant(context: NodeContext) -> Kernel:
    for name, dtype in VALUES.items():
        value = context.attribute(name)
        if value is not None:
            with tf.init_scope():
                held = tf.constant(np.asarray(value, dtype))
            return lambda: held
    raise ConfigurationError(
        f"the node {context.node} holds no value that TensorFlow knows: give one of {', '.join(VALUES)}"
    )


def _constant_of_shape(context: NodeContext) -> Kernel:
    value = np.reshape(context.attribute("value", np.zeros(1, np.float32)), -1)[0]

    def call(shape: Tensor) -> Tensor:
        sizes_known = known(context, 0, shape)
        return tf.fill(shape if sizes_known is None else [int(size) for size in sizes_known], value)

    return call


def _eye_like(context: NodeContext) -> Kernel:
    number, offset = context.attribute("dtype"), context.attribute("k", 0)

    def call(x: Tensor) -> Tensor:
        rows, columns = (tf.range(size) for size in sizes(x))
        on = tf.equal(columns - rows[:, tf.newaxis], offset)
        return tf.cast(on, x.dtype if number is None else type_of(number))

    return call


def _range(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    """start + i · delta, in float32 for types of 16 bits."""
    if start.dtype.is_floating and start.dtype.size < 4:
        return tf.cast(_range(*(tf.cast(each, tf.float32) for each in (start, limit, delta))), start.dtype)
    if start.dtype in (tf.int8, tf.int16):
        return tf.cast(tf.range(*(tf.cast(each, tf.int32) for each in (start, limit, delta))), start.dtype)
    start, limit, delta = (tf.reshape(each, []) for each in (start, limit, delta))
    if not start.dtype.is_floating:
        return tf.range(start, limit, delta)
    count = tf.maximum(tf.math.ceil((limit - start) / delta), 0)
    return start + tf.range(count, dtype=start.dtype) * delta


def _shape(context: NodeContext) -> Kernel:
    part = slice(context.attribute("start", 0), context.attribute("end"))

    def call(x: Tensor) -> Tensor:
        if x.shape.is_fully_defined():
            return tf.constant(x.shape.as_list()[part], tf.int64)
        return tf.shape(x, tf.int64)[part]

    return call


def _size(x: Tensor) -> Tensor:
    return tf.size(x, tf.int64)


def _drawn(context: NodeContext, normal: bool) -> Callable[[Any, Any], Tensor]:
    random = generator(context)
    first, second = (("mean", 0.0), ("scale", 1.0)) if normal else (("low", 0.0), ("high", 1.0))
    draw, low, high = (
        random.normal if normal else random.uniform,
        context.attribute(*first),
        context.attribute(*second),
    )

    def call(shape: Any, dtype: Any) -> Tensor:
        if dtype.is_floating:
            return draw(shape, low, high, dtype)
        return tf.cast(draw(shape, low, high, tf.float64), dtype)

    return call


def _random(normal: bool) -> KernelFactory:
    def build(context: NodeContext) -> Kernel:
        draw = _drawn(context, normal)
        shape, dtype = list(context.required("shape")), type_of(context.attribute("dtype", FLOAT))
        return lambda: draw(shape, dtype)

    return build


def _random_like(normal: bool) -> KernelFactory:
    def build(context: NodeContext) -> Kernel:
        draw, number = _drawn(context, normal), context.attribute("dtype")

        def call(x: Tensor) -> Tensor:
            return draw(_shape_of(x), x.dtype if number is None else type_of(number))

        return call

    return build


def _shape_of(x: Tensor) -> list[Size] | Tensor:
    return x.shape if x.shape.is_fully_defined() else tf.shape(x)


FACTORIES: Mapping[str, KernelFactory] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "RandomNormal": _random(normal=True),
    "RandomNormalLike": _random_like(normal=True),
    "RandomUniform": _random(normal=False),
    "RandomUniformLike": _random_like(normal=False),
    "Range": plain(_range),
    "Shape": _shape,
    "Size": plain(_size),
}
