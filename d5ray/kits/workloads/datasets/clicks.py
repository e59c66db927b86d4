"""Made-up clicks: what users do with items, from hidden factors of both and of what surrounds them"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.training.batches import sample_randomness
from d5ray.training.datasets.dataset import Dataset, Split

VALUES: Final = (2000, 1000, 200, 100, 50, 20, 10, 5)  # of each field: user, item, and what surrounds them
FACTORS: Final = 4

Integers = npt.NDArray[np.int64]


def load_clicks(
    *, samples: int = 60_000, test_samples: int = 10_000, buckets: int = 20_000, seed: int = 0
) -> Dataset:
    """Samples (8,) int64 of a value in each of 8 fields, as rows of 0..buckets−1, and whether it was clicked.

    A field has 5 to 2,000 values, of which the k-th is drawn with a probability in proportion to 1/k. A click
    is drawn with σ(b + Σ_i w_i + Σ_{i<j} ⟨v_i, v_j⟩), a factorization machine of 4 factors (Rendle, 2010,
    doi 10.1109/ICDM.2010.127) with normal w and v: what no model can predict is the draw itself.

    Args:
        samples, test_samples: how many; buckets: rows of the embedding, see `hashed`; seed: of everything.
    """
    for name, value, low in (
        ("samples", samples, 1), ("test_samples", test_samples, 0), ("buckets", buckets, 1),
        ("seed", seed, 0),
    ):  # fmt: skip
        check_count(name, value, low)
    values, chances = drawn(samples + test_samples, seed)
    clicked = (np.random.default_rng([seed, 2]).random(len(chances)) < chances).astype(np.int64)
    rows = np.stack(
        [hashed(column, field, buckets) for field, column in enumerate(values.T)], axis=1
    )  # (N, fields)
    train, test = (
        Split(rows[part].copy(), clicked[part].copy()) for part in (slice(samples), slice(samples, None))
    )
    return Dataset("clicks", train, test, ("no click", "click"))


def drawn(count: int, seed: int) -> tuple[Integers, npt.NDArray[np.float64]]:
    """The values (count, fields), from 0, and the probabilities of a click (count,)."""
    rng, hidden = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    logits, total, squares = np.full(count, -1.0), np.zeros((count, FACTORS)), np.zeros((count, FACTORS))
    columns = []
    for size in VALUES:
        frequency = 1 / np.arange(1, size + 1)
        column = rng.choice(size, count, p=frequency / frequency.sum())
        weights, factors = 0.5 * hidden.standard_normal(size), hidden.standard_normal((size, FACTORS)) / 3
        logits += weights[column]
        total += factors[column]
        squares += factors[column] ** 2
        columns.append(column)
    logits += 0.5 * (total**2 - squares).sum(axis=1)
    return np.stack(columns, axis=1), 1 / (1 + np.exp(-logits))


def hashed(values: npt.NDArray[Any], field: int, buckets: int) -> Integers:
    """The row (n,) of 0..buckets−1 of each value (n,) uint64; equal values of another field have other rows.

    Two values may fall into one row, rarely if there are many: the hashing trick (Weinberger et al.,
    arXiv:0902.2206).
    """
    keys = sample_randomness.mixed(values.astype(np.uint64), 0xF1E1D, field)
    return (keys % np.uint64(buckets)).astype(np.int64)
