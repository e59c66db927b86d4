"""MatMul, Gemm, Einsum and Det"""

import re
from collections.abc import Mapping
from functools import reduce

from d5ray.errors import ConfigurationError
from d5ray.operators.nodes.node_context import Kernel, KernelFactory, NodeContext
from d5ray.ops.tensorflow.layout import held_filters
from d5ray.ops.tensorflow.library import tf
from d5ray.ops.tensorflow.tensors import Tensor, plain, sizes

WITHOUT_KERNEL = ("uint32", "uint64")  # of the types that ONNX multiplies; their bits are those of int64


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """NumPy's product: of vectors, matrices, and stacks of matrices that are broadcast."""
    if a.dtype.name in WITHOUT_KERNEL:
        return tf.cast(matmul(tf.cast(a, tf.int64), tf.cast(b, tf.int64)), a.dtype)
    if a.shape.rank == 1:
        return tf.squeeze(matmul(a[tf.newaxis, :], b), -1 if b.shape.rank == 1 else -2)
    if b.shape.rank == 1:
        return tf.squeeze(matmul(a, b[:, tf.newaxis]), -1)
    if b.shape.rank == 2 and a.shape.rank != 2:
        return _stack_times_matrix(a, b)
    return tf.matmul(a, b)


def _stack_times_matrix(a: Tensor, b: Tensor) -> Tensor:
    """One product of two matrices, which is quicker than a stack of small ones, and so is its gradient."""
    shape = sizes(a)
    product = tf.matmul(tf.reshape(a, [-1, shape[-1]]), b)
    return tf.reshape(product, [*shape[:-1], sizes(b)[-1]])


def _times(a: Tensor, b: Tensor, across_b: bool, across_a: bool = False) -> Tensor:
    """A' B', with B as it is held, if that is the way round that is wanted: the kernel is quicker then."""
    held = held_filters(b) if across_b else None
    if held is not None:
        return tf.matmul(a, held, transpose_a=across_a)
    return tf.matmul(a, b, transpose_a=across_a, transpose_b=across_b)


def linear_layer(across: bool) -> Kernel:
    """x W + b over the last axis of x; across: W is (features, inputs). Grappler fuses what stands here."""

    def call(x: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
        shape = sizes(x)
        rows = x if len(shape) == 2 else tf.reshape(x, [-1, shape[-1]])
        y = tf.nn.bias_add(_times(rows, weights, across), bias)
        return y if len(shape) == 2 else tf.reshape(y, [*shape[:-1], sizes(bias)[0]])

    return call


def _gemm(context: NodeContext) -> Kernel:
    """α A' B' + β C"""
    alpha, beta = context.attribute("alpha", 1.0), context.attribute("beta", 1.0)
    across_a, across_b = bool(context.attribute("transA", 0)), bool(context.attribute("transB", 0))

    def call(a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
        if a.dtype.is_integer:
            return _integer_gemm(a, b, c)
        product = _times(a, b, across_b, across_a)
        if alpha != 1.0:
            product = alpha * product
        if c is None:
            return product
        if beta != 1.0:
            c = beta * c
        if c.shape.rank == 1 and c.shape[0] == product.shape[1]:
            return tf.nn.bias_add(product, c)  # which Grappler fuses with the product
        if c.shape.rank == 2 and c.shape[0] == 1 and c.shape[1] == product.shape[1]:
            return tf.nn.bias_add(product, tf.reshape(c, [-1]))  # Grappler's fusion of a row fails
        return product + c

    def _integer_gemm(a: Tensor, b: Tensor, c: Tensor | None) -> Tensor:
        wide = [None if x is None else tf.cast(x, tf.int64) for x in (a, b, c)]
        product = tf.matmul(wide[0], wide[1], transpose_a=across_a, transpose_b=across_b)
        scaled = tf.cast(alpha * tf.cast(product, tf.float64), tf.int64) if alpha != 1.0 else product
        if wide[2] is None:
            return tf.cast(scaled, a.dtype)
        added = tf.cast(beta * tf.cast(wide[2], tf.float64), tf.int64) if beta != 1.0 else wide[2]
        return tf.cast(scaled + added, a.dtype)

    return call


def explicit_equation(equation: str) -> str:
    """The equation with its right side: without one, every letter that stands once, in the order of ASCII.

    >>> explicit_equation("ij, jk")
    'ij,jk->ik'
    >>> explicit_equation("...ii")
    '...ii->...'
    """
    equation = equation.replace(" ", "")
    if "->" in equation:
        return equation
    letters = re.sub(r"[^A-Za-z]", "", equation)
    once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return f"{equation}->{'...' if '...' in equation else ''}{once}"


def _einsum(context: NodeContext) -> Kernel:
    equation = explicit_equation(context.required("equation"))
    left = equation.split("->")[0]
    if left.count(",") + 1 != len(context.node.inputs):
        raise ConfigurationError(
            f"the node {context.node} has the equation {equation!r} for {left.count(',') + 1} tensors, and "
            f"reads {len(context.node.inputs)}"
        )
    if left.replace(",", "") == "":  # of scalars alone, which tf.einsum refuses
        return lambda *given: reduce(tf.multiply, given)
    return lambda *given: tf.einsum(equation, *given)


def _determinant(x: Tensor) -> Tensor:
    """The determinant, in float32 where x has 16 bits, which TensorFlow factorizes nowhere."""
    return tf.cast(tf.linalg.det(tf.cast(x, tf.float32) if x.dtype.size == 2 else x), x.dtype)


FACTORIES: Mapping[str, KernelFactory] = {
    "Det": plain(_determinant),
    "Einsum": _einsum,
    "Gemm": _gemm,
    "MatMul": plain(matmul),
}
