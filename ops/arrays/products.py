"""MatMul, Gemm, Einsum and Det"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, final

from d5ray.operators.array_operator import Array, ArrayOperator, Arrays, Gradients
from d5ray.operators.nodes.node_context import NodeContext
from d5ray.ops.arrays.formula import summed_to_shape
from d5ray.ops.arrays.wide import WideOperator, optional
from d5ray.ops.equation import Equation


@final
class MatMul(WideOperator):
    """Y = A B, as numpy.matmul has it: (..., M, K), (..., K, N) -> (..., M, N); vectors lack M or N.

    A stack of matrices times a single one is one product.
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        a, b = inputs
        assert a is not None and b is not None
        if b.ndim == 2 and a.ndim > 2:
            rows = math.prod(a.shape[:-1])
            return (xp.matmul(a.reshape(rows, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1]),)
        return (xp.asarray(xp.matmul(a, b)),)  # of two vectors NumPy makes a scalar

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        a, b, gradient = inputs[0], inputs[1], gradients[0]
        assert a is not None and b is not None and gradient is not None
        left = a[None, :] if a.ndim == 1 else a  # (..., M, K)
        right = b[:, None] if b.ndim == 1 else b  # (..., K, N)
        if b.ndim == 1:
            gradient = gradient[..., None]
        if a.ndim == 1:
            gradient = gradient[..., None, :]
        if right.ndim == 2:
            left, gradient = left.reshape(-1, left.shape[-1]), gradient.reshape(-1, right.shape[1])
        of_left = xp.matmul(gradient, right.swapaxes(-1, -2))
        of_right = xp.matmul(left.swapaxes(-1, -2), gradient)
        return (
            summed_to_shape(of_left, left.shape).reshape(a.shape),
            summed_to_shape(of_right, right.shape).reshape(b.shape),
        )


@final
class Gemm(WideOperator):
    """Y = alpha A' B' + beta C, where ' transposes with transA, transB, and C is broadcast.

    A' (M, K), B' (K, N), C to (M, N).
    """

    needs = 2

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        a, b, c = inputs[0], inputs[1], optional(inputs, 2)
        assert a is not None and b is not None
        alpha, beta = context.attribute("alpha", 1.0), context.attribute("beta", 1.0)
        product = xp.matmul(
            a.T if context.attribute("transA", 0) else a, b.T if context.attribute("transB", 0) else b
        )
        if alpha != 1:
            product = product * alpha
        if c is not None and beta != 0:
            product = product + (c if beta == 1 else c * beta)
        return (product.astype(a.dtype, copy=False),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        a, b, c, gradient = inputs[0], inputs[1], optional(inputs, 2), gradients[0]
        assert a is not None and b is not None and gradient is not None
        alpha, beta = context.attribute("alpha", 1.0), context.attribute("beta", 1.0)
        scaled = gradient if alpha == 1 else gradient * alpha
        plain_a = a.T if context.attribute("transA", 0) else a
        plain_b = b.T if context.attribute("transB", 0) else b
        of_a = scaled @ plain_b.T if not context.attribute("transA", 0) else plain_b @ scaled.T
        of_b = plain_a.T @ scaled if not context.attribute("transB", 0) else scaled.T @ plain_a
        of_c = None if c is None else summed_to_shape(gradient if beta == 1 else gradient * beta, c.shape)
        return (of_a, of_b, of_c)[: len(inputs)]


@final
class Einsum(WideOperator):
    """Y[output term] = Σ Π inputs[their terms] over the indices that the output lacks."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        equation = Equation.parsed(context, [_shape(each) for each in inputs])
        return (xp.asarray(xp.einsum(str(equation), *inputs, optimize=len(inputs) > 1)),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        equation = Equation.parsed(context, [_shape(each) for each in inputs])
        return tuple(
            _einsum_gradient(xp, equation, index, gradients[0], inputs) for index in range(len(inputs))
        )


def _einsum_gradient(
    xp: Any, equation: Equation, index: int, gradient: Array, inputs: Sequence[Array | None]
) -> Array:
    """An Einsum again: the output's term and the other inputs' terms to this input's term.

    An index that only this input has was summed: its gradient is the same all along. One that it has twice
    stands for a diagonal: a unit matrix puts the gradient there.
    """
    own, given = equation.terms[index], inputs[index]
    assert given is not None
    others = [each for each in range(len(inputs)) if each != index]
    terms = [equation.output, *(equation.terms[each] for each in others)]
    operands = [gradient, *(inputs[each] for each in others)]
    target, spare = "", iter(equation.spare_letters())
    for axis, letter in enumerate(own):
        fresh = letter
        if letter in target:  # a diagonal
            fresh = next(spare)
            terms.append(letter + fresh)
            operands.append(xp.eye(given.shape[axis], dtype=given.dtype))
        elif not any(letter in term for term in terms):  # summed
            terms.append(letter)
            operands.append(xp.ones(given.shape[axis], dtype=given.dtype))
        target += fresh
    found = xp.einsum(f"{','.join(terms)}->{target}", *operands, optimize=len(operands) > 1)
    return summed_to_shape(found, given.shape)


@final
class Determinant(WideOperator):
    """y = det x, dx = dy det(x) x⁻ᵀ, over the last two axes."""

    def compute(self, xp: Any, context: NodeContext, inputs: Sequence[Array | None]) -> Arrays:
        return (xp.asarray(xp.linalg.det(inputs[0])),)

    def differentiate(
        self,
        xp: Any,
        context: NodeContext,
        gradients: Sequence[Array | None],
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> Gradients:
        (dy,), (x,), (y, *_) = gradients, inputs, outputs
        assert dy is not None and x is not None
        return ((dy * y)[..., None, None] * xp.swapaxes(xp.linalg.inv(x), -1, -2),)


def _shape(array: Array | None) -> tuple[int, ...]:
    assert array is not None
    return tuple(array.shape)


OPERATORS: Mapping[str, ArrayOperator] = {
    "Det": Determinant(),
    "Einsum": Einsum(),
    "Gemm": Gemm(),
    "MatMul": MatMul(),
}
