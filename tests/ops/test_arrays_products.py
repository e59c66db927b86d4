"""MatMul, Gemm and Einsum backwards, and their errors"""

from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError
from tests.ops.gradients import check, context, forward, normal

MATRICES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)),
]


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_matmul(shapes: tuple[tuple[int, ...], ...], xp: Any) -> None:
    """Vectors, matrices, and stacks of them that are broadcast."""
    inputs = normal(*shapes)
    check(xp, context("MatMul", inputs), inputs)


@pytest.mark.parametrize("shape", [(3, 5), (5,), (3, 1), (1,), ()], ids=str)
@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_gemm(transposed: tuple[int, int], shape: tuple[int, ...], xp: Any) -> None:
    """Both operands transposed or not, and C broadcast in all ways, with factors."""
    of_a, of_b = transposed
    inputs = normal((4, 3) if of_a else (3, 4), (5, 4) if of_b else (4, 5), shape)
    attributes = {"transA": of_a, "transB": of_b, "alpha": 0.5, "beta": -2.0}
    check(xp, context("Gemm", inputs, attributes), inputs)


def test_gemm_without_c(xp: Any) -> None:
    """Two gradients, for two inputs; of integers the product stays one of integers."""
    inputs = normal((3, 4), (4, 5))
    check(xp, context("Gemm", inputs), inputs)
    whole = [np.arange(6).reshape(2, 3), np.arange(6).reshape(3, 2)]
    (found,) = forward(np, context("Gemm", whole, {"alpha": 2.0}), whole)
    np.testing.assert_array_equal(found, 2 * whole[0] @ whole[1])
    assert found.dtype == np.int64


EQUATIONS: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("bij, bjk -> bik", ((2, 2, 3), (2, 3, 4))),
    ("ij->i", ((2, 3),)),
    ("ij->", ((2, 3),)),
    ("ij->ji", ((2, 3),)),
    ("ii->i", ((3, 3),)),
    ("iij->j", ((3, 3, 2),)),
    ("ii", ((3, 3),)),
    ("ba", ((2, 3),)),
    ("i,i", ((3,), (3,))),
    ("i,j->ij", ((3,), (2,))),
    ("...ij,...jk->...ik", ((2, 1, 2, 3), (4, 3, 2))),
    ("...i,j...->...", ((2, 3), (4, 2))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
    ("ij,jj->i", ((2, 3), (3, 3))),
    ("bhwd,hkd->bhwk", ((1, 2, 2, 3), (2, 3, 3))),
]


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS, ids=[each[0] for each in EQUATIONS])
def test_einsum(equation: str, shapes: tuple[tuple[int, ...], ...], xp: Any) -> None:
    """Products, sums, transposes, diagonals, ellipses, without an arrow; as NumPy has them."""
    inputs = normal(*shapes)
    place = context("Einsum", inputs, {"equation": equation})
    np.testing.assert_allclose(forward(np, place, inputs)[0], np.einsum(equation, *inputs), rtol=1e-12)
    check(xp, place, inputs)


@pytest.mark.parametrize(
    ("equation", "message"),
    [
        ("ij", "1 terms for 2 inputs"),
        ("ij,jkl->il", "term 'jkl' for an input of shape"),
        ("ij,j->i", "a letter for every axis"),
        ("ij,jk->iz", "no input has 'z'"),
    ],
)
def test_a_wrong_equation_is_named(equation: str, message: str) -> None:
    """With the node."""
    inputs = normal((2, 3), (3, 4))
    with pytest.raises(ConfigurationError, match=f"Einsum has .*{message}"):
        forward(np, context("Einsum", inputs, {"equation": equation}), inputs)
