"""Claims about every compressor: what it states of itself holds, and no vector makes it lie"""

import contextlib
import itertools
import math
from typing import Any, Literal

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import d5ray as d5
from d5ray.compression import (
    QSGD,
    BFloat16,
    Chain,
    Float16,
    Identity,
    NonZeroRows,
    OneBit,
    PowerSGD,
    RandomK,
    ScaledSign,
    TernGrad,
    Threshold,
    TopK,
    UnbiasedRandomK,
)
from d5ray.distributed.compression.bit_packing import pack, packed_bytes, unpack
from d5ray.errors import ConfigurationError

Array = np.ndarray[Any, Any]

DETERMINISTIC: list[d5.Compressor] = [
    TopK(3), TopK(0.25), TopK(2, bucket=5), TopK(0.6, bucket=7), Threshold(0.5), Threshold(0.0),
    NonZeroRows(), NonZeroRows(4),
    OneBit(), OneBit(bucket=4), ScaledSign(), ScaledSign(bucket=4), Float16(), BFloat16(), Identity(),
    Chain(TopK(3), ScaledSign()), Chain(TopK(2, bucket=5), BFloat16()), Chain(Threshold(0.5), OneBit()),
]  # fmt: skip
RANDOM: list[d5.Compressor] = [
    RandomK(3), RandomK(0.3), UnbiasedRandomK(3), UnbiasedRandomK(0.7), QSGD(bits=2), QSGD(bits=4, bucket=4),
    QSGD(bits=8), QSGD(bits=8, bucket=None), TernGrad(), TernGrad(bucket=4), Chain(TopK(3), QSGD(bits=4)),
    Chain(UnbiasedRandomK(0.5), QSGD(bits=8)), Chain(RandomK(0.5), TernGrad(bucket=3)),
]  # fmt: skip
EVERY = DETERMINISTIC + RANDOM


def through(compressor: d5.Compressor, vector: Array, seed: int = 0) -> Array:
    """C(v): what arrives."""
    message = compressor.compress(vector, np.random.default_rng(seed))
    assert message.dtype == np.uint8 and message.ndim == 1
    return compressor.decompress(message, len(vector), vector.dtype)


def normal(n: int, seed: int = 1, dtype: str = "float64") -> Array:
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def vectors(low: int = 3, high: int = 40) -> st.SearchStrategy[Array]:
    """Of either type and any size: zeros, single peaks, constants, signs, magnitudes far apart."""

    def of(width: Literal[32, 64]) -> st.SearchStrategy[Array]:
        tiny = 2.0**-30
        elements = st.just(0.0) | st.floats(-1024, 1024, width=width) | st.floats(-tiny, tiny, width=width)
        return hnp.arrays(f"float{width}", st.integers(low, high), elements=elements)

    return of(32) | of(64)


def squared(vector: Array) -> float:
    return float((vector.astype(np.float64) ** 2).sum())


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(1, 40), st.integers(0, 70), st.integers(0, 2**32))
def test_numbers_of_any_width_are_packed_without_gaps(width: int, count: int, seed: int) -> None:
    """They come back, and the bytes are those of the binary number that they make, lowest bit first."""
    numbers = np.random.default_rng(seed).integers(0, 2**width, count, dtype=np.uint64)
    message = pack(numbers, width)
    assert unpack(message, count, width).tolist() == numbers.tolist()
    together = sum(int(number) << (width * place) for place, number in enumerate(numbers))
    assert bytes(message) == together.to_bytes(packed_bytes(count, width), "little")


FLOAT = 4
LENGTHS: list[tuple[d5.Compressor, int, float]] = [  # compressor, n, bytes of a message of float32
    (TopK(16, bucket=512), 5120, 160 * 9 / 8 + 160 * FLOAT),
    (TopK(16, bucket=512), 5121, math.ceil(161 * 9 / 8) + 161 * FLOAT),  # a last bucket of one entry
    (TopK(100), 1000, 100 * 10 / 8 + 100 * FLOAT),
    (TopK(0.5), 1000, 1000 / 8 + 500 * FLOAT),  # a bit an entry is less than 10 bits a kept one
    (RandomK(0.01), 5000, 8 + 50 * FLOAT),
    (UnbiasedRandomK(7), 5000, 8 + 7 * FLOAT),
    (QSGD(bits=2), 1024, 1024 * 2 / 8 + 2 * FLOAT),
    (QSGD(bits=4), 1025, 513 + 3 * FLOAT),
    (TernGrad(), 1024, 1024 * 2 / 8 + 2 * FLOAT),
    (OneBit(), 1030, math.ceil(1030 / 8) + 3 * 2 * FLOAT),
    (ScaledSign(), 1030, math.ceil(1030 / 8) + FLOAT),
    (Float16(), 1030, 2 * 1030 + 4),
    (Identity(), 1030, 1030 * FLOAT),
    (Chain(TopK(16, bucket=512), QSGD(bits=4)), 51200, 1600 * 9 / 8 + 1600 * 4 / 8 + 4 * FLOAT),
]


@pytest.mark.parametrize(
    ("n", "touched", "width", "expected"),
    [
        (8000, [3, 4, 999], 8, 8 + math.ceil(3 * 10 / 8) + 3 * 8 * FLOAT),  # 1,000 rows, 10 bits a place
        (8000, range(500), 8, 8 + 1000 / 8 + 500 * 8 * FLOAT),  # a bit a row is less
        (8003, [1000], 8, 8 + math.ceil(10 / 8) + 3 * FLOAT),  # the last row has three entries
        (8000, [], 8, 8),
        *((1000, range(count), 1, 8 + math.ceil(min(10 * count, 1000) / 8) + FLOAT * count)
          for count in (0, 1, 100, 900)),
    ],
)  # fmt: skip
def test_what_is_not_touched_takes_no_bytes(n: int, touched: Any, width: int, expected: float) -> None:
    """All else comes back to the last bit; one entry that is not zero makes its row travel."""
    vector, rng = np.zeros(n, np.float32), np.random.default_rng(4)
    for row in touched:
        vector[min(n - 1, row * width + int(rng.integers(width)))] = rng.standard_normal()
    for compressor in (NonZeroRows(width), Threshold(0.0))[: 2 if width == 1 else 1]:
        assert compressor.compress(vector, rng).nbytes == expected
        assert compressor.message_bytes(n, np.float32) is None
        np.testing.assert_array_equal(through(compressor, vector), vector)


@pytest.mark.parametrize(("compressor", "n", "expected"), LENGTHS, ids=repr)
def test_a_message_is_as_long_as_its_formula(compressor: d5.Compressor, n: int, expected: float) -> None:
    """To the byte; and it is known before."""
    message = compressor.compress(normal(n, dtype="float32"), np.random.default_rng(0))
    assert message.nbytes == expected == compressor.message_bytes(n, np.float32)


@pytest.mark.parametrize("compressor", EVERY, ids=repr)
@settings(derandomize=True, deadline=None, max_examples=15)
@given(vector=vectors())
def test_every_message_has_the_length_it_said(compressor: d5.Compressor, vector: Array) -> None:
    """Whatever the vector, which stays as it is; and C(v) has its size and type."""
    before = vector.copy()
    message = compressor.compress(vector, np.random.default_rng(0))
    assert compressor.message_bytes(len(vector), vector.dtype) in (None, message.nbytes)
    received = compressor.decompress(message, len(vector), vector.dtype)
    assert (received.shape, received.dtype) == (vector.shape, vector.dtype)
    assert np.isfinite(received).all()
    np.testing.assert_array_equal(vector, before)


@pytest.mark.parametrize("compressor", EVERY, ids=repr)
def test_no_vector_makes_a_compressor_lie(compressor: d5.Compressor) -> None:
    """No scale divides by nothing; a sign stays one; what diverged, dropped or not, is seen to have."""
    for n in (3, 8, 13):
        assert through(compressor, np.zeros(n)).tolist() == [0.0] * n
    with contextlib.suppress(ConfigurationError):  # one entry is its own largest, norm, mean and sign
        compressor.check(1)
        assert through(compressor, np.array([1.5])).tolist() == [1.5]
        assert through(compressor, np.array([-1.5])).tolist() == [-1.5]
    received = through(compressor, -1.0 - np.random.default_rng(1).random(40))
    assert (received <= 0).all() and (received < 0).any()
    for place, dtype, scale, seed in itertools.product(
        (0, 9, 12), ("float32", "float64"), (1.0, 0.01), (0, 1)
    ):
        vector = normal(13, dtype=dtype) * scale
        vector[place] = np.nan
        assert np.isnan(through(compressor, vector, seed)).any()
        vector[place] = (-1) ** place * np.inf
        assert not np.isfinite(through(compressor, vector, seed)).all()
    drawn = UnbiasedRandomK in (type(compressor), type(getattr(compressor, "sparsifier", 0)))
    for largest in (np.finfo(np.float32).max, np.finfo(np.float32).tiny):
        extreme = np.array([1.0, -1.0, 0.5, 0.25] * 4, dtype=np.float32) * np.float32(largest)
        extreme /= np.float32(8.0 if drawn else 1.0)  # n/k times v must be a float32, too
        assert np.isfinite(through(compressor, extreme)).all()


def test_a_threshold_is_of_magnitudes() -> None:
    """Both signs exceed it alike; what equals it does not."""
    vector = np.array([3.0, -3.0, 1.0, -1.0, 0.5, -0.5])
    assert through(Threshold(1.0), vector).tolist() == [3.0, -3.0, 0.0, 0.0, 0.0, 0.0]
    assert through(Threshold(0.75), -np.abs(vector)).tolist() == [-3.0, -3.0, -1.0, -1.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e-161, 1e-155, 1e155, 1e300])
def test_qsgd_takes_norms_whose_squares_have_no_number(scale: float) -> None:
    """In float64 the squares underflow or overflow; still every entry is within a level of its own."""
    vector = scale * np.array([1.0, -1.0, 0.9, -0.3, 0.01])
    for seed in range(50):
        error = np.abs(through(QSGD(bits=8), vector, seed) - vector)
        assert error.max() <= math.hypot(*vector) / 127 * (1 + 1e-9) + 5e-324
    buckets = np.concatenate([normal(64), scale * normal(64, seed=2), normal(30, seed=3)])
    received = through(QSGD(bits=8, bucket=64), buckets)
    for part in (slice(0, 64), slice(64, 128), slice(128, None)):  # small ones are not drowned by large ones
        error = np.abs(received[part] - buckets[part])
        assert error.max() <= math.hypot(*buckets[part]) / 127 * (1 + 1e-9) + 5e-324


@pytest.mark.parametrize("compressor", EVERY, ids=repr)
def test_chance_comes_from_the_generator_alone(compressor: d5.Compressor) -> None:
    """Equal states give equal messages; NumPy's global state is neither read nor changed."""
    vector, messages = normal(60), []
    for seed in (1, 2):
        np.random.seed(seed)  # noqa: NPY002 - the global state is what this is about
        state = np.random.get_state()[1].tolist()  # type: ignore[index]  # noqa: NPY002
        messages.append(bytes(compressor.compress(vector, np.random.default_rng(7))))
        assert np.random.get_state()[1].tolist() == state  # type: ignore[index]  # noqa: NPY002
    assert messages[0] == messages[1]
    others = {bytes(compressor.compress(vector, np.random.default_rng(seed))) for seed in range(20)}
    assert (len(others) > 1) == (compressor in RANDOM)


UNBIASED = [compressor for compressor in EVERY if compressor.unbiased and compressor in RANDOM]


@pytest.mark.parametrize("compressor", [*UNBIASED, UnbiasedRandomK(0.1), QSGD(bits=4, bucket=100)], ids=repr)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_unbiased_compressor_is_right_on_average(compressor: d5.Compressor, dtype: str) -> None:
    """‖mean of D draws − v‖² is the variance by D: to 40 % for 600 entries, which is 4 deviations."""
    draws, n = 400, 600
    rng = np.random.default_rng(5)
    vector = normal(n, dtype=dtype)
    total, variance = np.zeros(n), 0.0
    for _ in range(draws):
        received = compressor.decompress(compressor.compress(vector, rng), n, vector.dtype)
        total += received
        variance += squared(received - vector) / draws
    assert variance > 0
    assert 0.6 < squared(total / draws - vector) / (variance / draws) < 1.4


def variance_of(compressor: d5.Compressor, vector: Array, draws: int = 300) -> float:
    """The measured E‖C(v) − v‖²."""
    rng = np.random.default_rng(6)
    n = len(vector)
    errors = [
        squared(compressor.decompress(compressor.compress(vector, rng), n, vector.dtype) - vector)
        for _ in range(draws)
    ]
    return float(np.mean(errors))


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("n", [1, 3, 50, 512])
def test_qsgd_keeps_to_its_levels_and_its_variance(bits: int, n: int) -> None:
    """C(v) is ‖v‖ℓ/s with ℓ beside s v/‖v‖, s = 2^(b−1) − 1; E‖C(v) − v‖² is exact, and within the bound."""
    s = 2 ** (bits - 1) - 1
    vector = normal(n)
    norm = float(np.linalg.norm(vector))
    levels = through(QSGD(bits), vector) * s / norm
    np.testing.assert_allclose(levels, levels.round(), atol=1e-9)
    assert (np.abs(levels.round() - s * vector / norm) < 1).all() and np.abs(levels).max() <= s + 1e-9
    share = s * vector / norm % 1.0
    exact = float((share * (1 - share)).sum()) * (norm / s) ** 2
    assert variance_of(QSGD(bits), vector) == pytest.approx(exact, rel=0.1, abs=1e-12)
    assert exact <= min(n / s**2, math.sqrt(n) / s) * squared(vector) + 1e-12


def test_terngrad_is_three_values_with_its_variance() -> None:
    """−max, 0, max of the bucket; E‖C(v) − v‖² = max|v| ‖v‖₁ − ‖v‖²."""
    vector = normal(500)
    largest = np.abs(vector).max()
    assert set(np.unique(through(TernGrad(), vector))) == {-largest, 0.0, largest}
    exact = largest * np.abs(vector).sum() - squared(vector)
    assert variance_of(TernGrad(), vector) == pytest.approx(exact, rel=0.05)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(vectors(), st.sampled_from([None, 4]))
def test_signs_come_with_means(vector: Array, bucket: int | None) -> None:
    """In each bucket 1-bit has the mean of the entries ≥ 0 and that of those below; sign·‖v‖₁/d has one."""
    one_bit, scaled = through(OneBit(bucket), vector), through(ScaledSign(bucket), vector)
    size = bucket or len(vector)
    for begin in range(0, len(vector), size):
        part = vector[begin : begin + size].astype(np.float64)
        means = np.zeros_like(part)
        for side in (part >= 0, part < 0):
            means[side] = part[side].mean() if side.any() else 0.0
        signs = np.where(part >= 0, 1, -1) * np.abs(part).mean()
        np.testing.assert_allclose(one_bit[begin : begin + size], means, rtol=1e-6, atol=1e-30)
        np.testing.assert_allclose(scaled[begin : begin + size], signs, rtol=1e-6, atol=1e-30)


@settings(derandomize=True, deadline=None, max_examples=50)
@given(vectors(), st.integers(1, 12), st.sampled_from([None, 5, 12]))
def test_top_k_keeps_the_largest(vector: Array, k: int, bucket: int | None) -> None:
    """In each bucket min(k, size) entries, unchanged, none smaller than one that is dropped."""
    if (bucket is not None and k > bucket) or k > len(vector):
        return
    indices, _ = TopK(k, bucket).choose(vector, np.random.default_rng(0))
    received = through(TopK(k, bucket), vector)
    assert (np.diff(indices) > 0).all()
    np.testing.assert_array_equal(received[indices], vector[indices])
    size = bucket or len(vector)
    for begin in range(0, len(vector), size):
        part = np.abs(vector[begin : begin + size])
        kept = np.isin(np.arange(begin, begin + len(part)), indices)
        assert kept.sum() == min(k, len(part))
        assert part[kept].min() >= part[~kept].max(initial=0.0)
        assert (received[begin : begin + size][~kept] == 0).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sixteen_bits_round_to_nearest_even(dtype: str) -> None:
    """As NumPy's float16 and ml_dtypes' bfloat16 do, in the range where those have their full precision."""
    vector = normal(10_000, dtype=dtype)
    ties = np.array(
        [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, -(1 + 2.0**-8)], dtype=dtype
    )
    beyond = np.array([1 + 2.0**-8 + 2.0**-23], dtype=dtype)  # just above a tie
    vector = np.concatenate([vector, ties, beyond])
    for compressor, kind in ((Float16(), np.float16), (BFloat16(), ml_dtypes.bfloat16)):
        np.testing.assert_array_equal(through(compressor, vector), vector.astype(kind).astype(dtype))
    # above the tie that rounding to float32 on the way would make it
    assert through(BFloat16(), np.array([1 + 2.0**-8 + 2.0**-40])).tolist() == [1 + 2.0**-7]


CONTRACTIONS = [one for one in DETERMINISTIC if one.contraction(3) is not None]


@pytest.mark.parametrize("compressor", CONTRACTIONS, ids=repr)
@settings(derandomize=True, deadline=None, max_examples=30)
@given(vector=vectors())
def test_a_contraction_contracts(compressor: d5.Compressor, vector: Array) -> None:
    """‖v − C(v)‖² ≤ (1 − δ)‖v‖² for every vector."""
    delta = compressor.contraction(len(vector))
    assert delta is not None and 0 < delta <= 1
    lost = squared(vector - through(compressor, vector).astype(np.float64))
    assert lost <= (1 - delta) * squared(vector) * (1 + 1e-6) + 1e-30 + 1e-7 * delta * squared(vector)


def worst_cases(n: int) -> list[Array]:
    """Vectors at which bounds are met: equal entries, one peak, a peak above equal entries, and ordinary."""
    peaked = np.full(n, 1 / (1 + math.sqrt(n)))
    peaked[0] = 1.0
    return [np.ones(n), np.eye(n)[0], peaked, normal(n)]


RANDOM_CONTRACTIONS: list[d5.Compressor] = [
    RandomK(3), RandomK(0.3), UnbiasedRandomK(0.7), QSGD(bits=8), QSGD(bits=4, bucket=4), TernGrad(bucket=4),
    Chain(RandomK(0.5), TernGrad(bucket=3)), Chain(TopK(3), QSGD(bits=8)),
]  # fmt: skip


@pytest.mark.parametrize("compressor", RANDOM_CONTRACTIONS, ids=repr)
@pytest.mark.parametrize("n", [4, 20])
def test_a_random_contraction_contracts_on_average(compressor: d5.Compressor, n: int) -> None:
    """E‖v − C(v)‖² ≤ (1 − δ)‖v‖², over 500 draws, within 5 deviations of their mean."""
    delta = compressor.contraction(n)
    assert delta is not None and 0 < delta <= 1
    rng = np.random.default_rng(8)
    for vector in worst_cases(n):
        lost = [
            squared(vector - compressor.decompress(compressor.compress(vector, rng), n, vector.dtype))
            for _ in range(500)
        ]
        room = 5 * float(np.std(lost)) / math.sqrt(len(lost)) + 1e-12
        assert float(np.mean(lost)) <= (1 - delta) * squared(vector) + room


def test_the_contraction_factors_are_met() -> None:
    """Top-k at a constant vector, random-k everywhere, the signs at one peak: δ could not be larger."""
    constant, peak = np.ones(20), np.eye(20)[3]
    assert squared(constant - through(TopK(5), constant)) == (1 - 5 / 20) * 20
    assert TopK(5).contraction(20) == RandomK(5).contraction(20) == 5 / 20
    assert TopK(3, bucket=8).contraction(20) == 3 / 8
    assert TopK(3, bucket=8).contraction(5) == 3 / 5
    assert squared(peak - through(ScaledSign(), peak)) == pytest.approx(1 - 1 / 20)
    assert ScaledSign().contraction(20) == 1 / 20
    assert squared(peak - through(OneBit(), peak)) == pytest.approx(1 - 1 / 20)
    assert variance_of(UnbiasedRandomK(15), constant) == pytest.approx((20 / 15 - 1) * 20)
    assert UnbiasedRandomK(15).contraction(20) == pytest.approx(2 - 20 / 15)
    assert [PowerSGD(rank).contraction(100) for rank in (2, 11)] == [2 / 10, 1.0]  # of matrices 10 × 10


def test_what_is_no_contraction_says_so() -> None:
    """There are vectors of which they lose all, or to which they add more than there was."""
    small, ordinary = np.full(16, 0.1), normal(600)
    assert squared(small - through(Threshold(0.5), small)) == squared(small)
    assert Threshold(0.5).contraction(16) is None
    for scale in (0.1, 1.0, 10.0):  # yet no more than n t², whatever v, so that error feedback works
        lost = squared(ordinary * scale - through(Threshold(0.5), ordinary * scale))
        assert Threshold(0.5).bounded_residual(600) and lost <= 600 * 0.5**2
    for compressor in (QSGD(bits=2), QSGD(bits=4), TernGrad(), UnbiasedRandomK(0.4)):
        assert variance_of(compressor, ordinary) > squared(ordinary)
        assert compressor.contraction(600) is None
    assert Float16().contraction(2**78) is None  # as many vanish beside one that is large


@pytest.mark.parametrize("compressor", [one for one in EVERY if one != Threshold(0.0)], ids=repr)
def test_what_calls_itself_linear_is(compressor: d5.Compressor) -> None:
    """C(a) + C(b) = C(a + b) for the same draws; and what does not, is not."""
    a, b = normal(40, seed=1), normal(40, seed=2) * 3
    added = through(compressor, a, seed=4) + through(compressor, b, seed=4)
    assert np.allclose(added, through(compressor, a + b, seed=4), rtol=1e-12) == compressor.linear


def test_a_chain_is_the_quantizer_on_what_the_sparsifier_keeps() -> None:
    """The values of the kept entries in their order; and δ = δ₁δ₂."""
    vector = normal(50)
    indices, _ = TopK(8).choose(vector, np.random.default_rng(0))
    for quantizer in (ScaledSign(), BFloat16(), OneBit(bucket=3), QSGD(bits=2)):
        chain, expected, kept = Chain(TopK(8), quantizer), np.zeros(50), np.zeros(50)
        kept[indices] = vector[indices]
        expected[indices] = through(quantizer, vector[indices])
        message = chain.compress(vector, np.random.default_rng(0))
        received = chain.decompress(message, 50, vector.dtype)
        np.testing.assert_array_equal(received, expected)
        sent = chain.sent(vector, message, received)
        np.testing.assert_array_equal(sent, kept if quantizer == QSGD(bits=2) else expected)
    assert Chain(TopK(8), ScaledSign()).contraction(50) == 8 / 50 / 8
    assert Chain(TopK(8), QSGD(bits=2)).contraction(50) is None


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((lambda k=k: TopK(k), f"k is {k}") for k in (0, 1.0, True)),
        (lambda: TopK(16, bucket=8), "k is 16 of 8 entries"),
        (lambda: TopK(16).check(10), "k is 16 of 10 entries"),
        (lambda: RandomK(-1), "k is -1"),
        (lambda: UnbiasedRandomK(11).check(10), "k is 11 of 10 entries"),
        (lambda: Chain(TopK(11), QSGD()).check(10), "k is 11 of 10 entries"),
        (lambda: TopK(1, bucket=0), "bucket is 0"),
        (lambda: TernGrad(bucket=2.0), "bucket is 2.0"),  # type: ignore[arg-type]
        (lambda: QSGD(bits=3), "bits is 3"),
        (lambda: QSGD(bits=4, bucket=-1), "bucket is -1"),
        (lambda: Threshold(-1.0), "value is -1.0"),
        (lambda: Threshold(math.nan), "value is nan"),
        (lambda: Chain(QSGD(), TopK(3)), "turn the two round"),  # type: ignore[arg-type]
        (lambda: Chain(QSGD(), QSGD()), "put a sparsifier"),  # type: ignore[arg-type]
        (lambda: Chain(TopK(3), RandomK(2)), "two sparsifiers"),  # type: ignore[arg-type]
        (lambda: Chain(TopK(3), Identity()), "makes no value smaller"),  # type: ignore[arg-type]
        (lambda: Chain(TopK(3), Chain(TopK(2), QSGD())), "ends with Chain"),  # type: ignore[arg-type]
    ],
)
def test_senseless_values_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()
