"""Spectrum of mixing matrices: the spectral gap, and rounds to consensus"""

from collections.abc import Sequence

import numpy as np

from d5ray.checks import is_number
from d5ray.distributed.topologies.graph import CommunicationGraph, Matrix, first_unreached
from d5ray.distributed.topologies.mixing import sums_to_one
from d5ray.errors import ConfigurationError

NEGLIGIBLE = 1e-12  # a gap below is rounding
MOST_DOUBLINGS = 50


def spectral_gap(weights: Sequence[Matrix]) -> float:
    """1 − |λ₂|, with λ₂ the eigenvalue of W of the second largest modulus: the deviation's decay per round.

    The largest is one, of either stochastic kind of W; further ones of modulus one make the gap zero.
    weights: W of every round. Where it varies in time with period p: 1 − |λ₂(W_{p−1} ⋯ W_0)|^(1/p), the
    geometric mean per round.
    """
    product = _products(weights)[-1]
    symmetric = np.array_equal(product, product.T)
    eigenvalues = np.linalg.eigvalsh(product) if symmetric else np.linalg.eigvals(product)
    others = np.delete(eigenvalues, np.argmin(np.abs(eigenvalues - 1)))
    modulus = float(np.abs(others).max(initial=0.0))
    if modulus < NEGLIGIBLE:  # its p-th root would not be
        return 1.0
    gap = 1.0 - modulus ** (1 / len(weights))
    return 0.0 if abs(gap) < NEGLIGIBLE else float(gap)


def rounds_to_consensus(
    graph: CommunicationGraph, weights: Sequence[Matrix], tolerance: float = 1e-3
) -> int | None:
    """The smallest number of rounds after which every agent is within `tolerance` of the mean; None: never.

    With Φ_k = W_{k−1} ⋯ W_0 and J = 11ᵀ/n, where all W are doubly stochastic: the smallest k with
    ‖Φ_k − J‖₂ ≤ tolerance, so that any start's distance to its mean has shrunk by that factor.
    Otherwise agents hold the push-sum estimate z = Z_k x₀ with Z_k = diag(Φ_k 1)⁻¹ Φ_k (of row-stochastic
    weights that is Φ_k itself), and k is the smallest with ‖Z_k − J‖_∞ ≤ tolerance: no z_i is further from
    the mean than this, whatever the start within ±1. With weights ≥ 0 neither norm ever grows.

    weights: W of every round. tolerance: from 1e-12 up to, but not, 1.
    """
    if not (is_number(tolerance) and NEGLIGIBLE <= tolerance < 1):
        raise ConfigurationError(
            f"tolerance is {tolerance!r}: it must be a number from {NEGLIGIBLE:g} up to, but not, 1"
        )
    if first_unreached(graph):
        return None
    products = _products(weights)
    doubly = all(sums_to_one(each, axis) for each in weights for axis in (0, 1))

    def agree(mixed: Matrix) -> bool:
        return _near_the_mean(mixed, tolerance) if doubly else _push_sum_error(mixed) <= tolerance

    start = np.eye(graph.agents)
    if agree(start):
        return 0
    powers = [products[-1]]  # of one period's product: 1, 2, 4, …
    while not agree(powers[-1]):
        if len(powers) > MOST_DOUBLINGS:
            return None
        powers.append(_rescaled(powers[-1] @ powers[-1]))
    periods, mixed = 0, start  # the largest number of periods after which they do not agree
    for exponent in reversed(range(len(powers) - 1)):
        further = _rescaled(powers[exponent] @ mixed)
        if not agree(further):
            periods, mixed = periods + 2**exponent, further
    within = next(k for k, product in enumerate(products, 1) if agree(product @ mixed))
    return periods * len(weights) + within


def _products(weights: Sequence[Matrix]) -> list[Matrix]:
    """W_0, W_1 W_0, …, up to the product over a whole period."""
    products = [weights[0]]
    for each in weights[1:]:
        products.append(each @ products[-1])
    return products


def _near_the_mean(mixed: Matrix, tolerance: float) -> bool:
    """True if ‖mixed − J‖₂ ≤ tolerance; the Frobenius norm, up to √n times as large, often tells at once."""
    deviation = mixed - 1 / len(mixed)
    bound = float(np.linalg.norm(deviation))
    if bound <= tolerance or bound > tolerance * len(mixed) ** 0.5:
        return bound <= tolerance
    return bool(np.linalg.norm(deviation, ord=2) <= tolerance)


def _push_sum_error(mixed: Matrix) -> float:
    estimate = mixed / mixed.sum(axis=1, keepdims=True)
    return float(np.linalg.norm(estimate - 1 / len(mixed), ord=np.inf))


def _rescaled(mixed: Matrix) -> Matrix:
    """The matrix with the total that every stochastic one has, which rounding would let drift."""
    scaled: Matrix = mixed * (len(mixed) / mixed.sum())
    return scaled
