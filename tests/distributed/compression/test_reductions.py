"""Claims about means of compressed vectors: against NumPy on all members' vectors, on members that differ"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.compression import (
    QSGD,
    AllGather,
    Allreduce,
    BFloat16,
    Chain,
    ErrorFeedback,
    Float16,
    Identity,
    OneBit,
    PowerSGD,
    RandomK,
    RecursiveDoubling,
    Reduction,
    ScaledSign,
    ScatterReduce,
    SparseAllreduce,
    SplitAllGather,
    TernGrad,
    Threshold,
    TopK,
    UnbiasedRandomK,
)
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import Quantizer
from d5ray.distributed.compression.reductions import RandomSources, Reduced, reduction_of
from d5ray.distributed.compression.sparse_allreduce import ExchangeSchedule
from d5ray.errors import ConfigurationError, PeerLost
from d5ray.networks.executors.flat_buffers import Slot
from tests.distributed.forming import Former, on_all

Array = np.ndarray[Any, Any]
SIZES = [1, 2, 3, 4, 5, 8]
SCHEDULES: list[ExchangeSchedule] = [RecursiveDoubling(), SplitAllGather()]
MATRICES = (Slot("w", 0, (12, 10)), Slot("b", 120, (12,)), Slot("k", 132, (6, 2, 3, 3)), Slot("s", 240, ()))
ELEMENTS = 241


def draws_of(rank: int, step: int = 0) -> RandomSources:
    """An own generator, and one that is alike on all members."""
    return RandomSources(np.random.default_rng([1, rank, step]), np.random.default_rng([2, step]))


def assert_all_have(results: list[Reduced], mean: Array) -> None:
    """The same bits on all members, and what they sent adds up to it."""
    for reduced in results:
        np.testing.assert_allclose(reduced.mean, mean, rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(reduced.mean, results[0].mean)
    sent = np.mean([reduced.sent for reduced in results], axis=0)
    np.testing.assert_allclose(sent, mean, rtol=1e-12, atol=1e-14)


def flat(n: int) -> tuple[Slot, ...]:
    return (Slot("x", 0, (n,)),)


def mean_of(
    groups: Former, reduction: Reduction, given: Array, slots: Sequence[Slot] | None = None
) -> list[Reduced]:
    """One mean over the rows of `given` (members, n); what each member got."""
    size, n = given.shape

    def call(member: Communicator) -> Reduced:
        state = reduction.state(slots or flat(n), given.dtype)
        vector = given[member.rank].copy()
        reduced = reduction.mean(vector, member, draws_of(member.rank), state)
        np.testing.assert_array_equal(vector, given[member.rank])
        return reduced

    return on_all(groups.members("reference", size), call)


def normal(size: int, n: int, seed: int = 3) -> Array:
    return np.random.default_rng([seed, size, n]).standard_normal((size, n))


EVERY: list[d5.Compressor] = [
    Identity(), TopK(5), Threshold(1.0), RandomK(0.2), UnbiasedRandomK(0.2), QSGD(bits=4), TernGrad(bucket=9),
    OneBit(), ScaledSign(), Float16(), BFloat16(), Chain(TopK(5), QSGD(bits=2)),
    Chain(Threshold(1.0), OneBit()),
]  # fmt: skip


@pytest.mark.parametrize("compressor", EVERY, ids=repr)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_gather_is_the_mean_of_what_was_sent(
    groups: Former, compressor: d5.Compressor, size: int
) -> None:
    """mean_j C(v_j), the same bits on all members; each knows what of its own is in it."""
    given = normal(size, 50)
    received = []
    for rank in range(size):
        message = compressor.compress(given[rank], draws_of(rank).own)
        received.append(compressor.decompress(message, 50, given.dtype))
    results = mean_of(groups, AllGather(compressor), given)
    for reduced in results:
        np.testing.assert_allclose(reduced.mean, np.mean(received, axis=0), rtol=1e-14)
        np.testing.assert_array_equal(reduced.mean, results[0].mean)
    if not isinstance(compressor, Chain):
        for reduced, own in zip(results, received, strict=True):
            np.testing.assert_array_equal(reduced.sent, own)


QUANTIZERS: list[Quantizer] = [
    QSGD(bits=4), TernGrad(bucket=9), OneBit(), ScaledSign(bucket=7), Float16(), BFloat16(),
]  # fmt: skip


@pytest.mark.parametrize("elements", [0, 1, 2, 50])
@pytest.mark.parametrize("compressor", QUANTIZERS, ids=repr)
@pytest.mark.parametrize("size", [3, 4, 5, 8])
def test_scatter_reduce_compresses_the_mean_of_compressed_parts(
    groups: Former, compressor: Quantizer, size: int, elements: int
) -> None:
    """Part by part: C(mean_j C(v_j)), each agent's draws in the order of the parts; empty parts too."""
    given = normal(size, elements)
    parts = [slice(elements * r // size, elements * (r + 1) // size) for r in range(size)]
    draws = [draws_of(rank).own for rank in range(size)]

    def through(vector: Array, rank: int) -> Array:
        return compressor.decompress(compressor.compress(vector, draws[rank]), len(vector), vector.dtype)

    pieces = [[through(given[rank, part], rank) for part in parts] for rank in range(size)]
    means = [np.mean([own[at] for own in pieces], axis=0) for at in range(size)]
    expected = np.concatenate([through(mean, at) for at, mean in enumerate(means)])
    results = mean_of(groups, ScatterReduce(compressor), given)
    assert_all_have(results, expected)


def test_what_merely_rounds_is_reduced_by_parts(groups: Former) -> None:
    """So that sixteen bits are half the bytes among any number of agents; what is random travels once."""
    assert reduction_of(Float16()) == ScatterReduce(Float16())
    assert reduction_of(BFloat16()) == ScatterReduce(BFloat16())
    assert reduction_of(QSGD(bits=4)) == AllGather(QSGD(bits=4))
    given = normal(2, 50)
    gathered = mean_of(groups, AllGather(Float16()), given)
    for found, expected in zip(mean_of(groups, ScatterReduce(Float16()), given), gathered, strict=True):
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.sent, expected.sent)


@pytest.mark.parametrize("compressor", [Identity(), RandomK(7), UnbiasedRandomK(0.2)], ids=repr)
@pytest.mark.parametrize("size", SIZES)
def test_allreduce_is_the_compressed_mean(groups: Former, compressor: Any, size: int) -> None:
    """C(mean v) with the shared draw: linear, so it does not matter when the mean is taken."""
    given = normal(size, 50)
    message = compressor.compress(given.mean(axis=0), draws_of(0).shared)
    expected = compressor.decompress(message, 50, given.dtype)
    results = mean_of(groups, Allreduce(compressor), given)
    assert_all_have(results, expected)


@pytest.mark.parametrize(
    ("reduction", "sent"),
    [
        (AllGather(TopK(16, bucket=512)), 7 * (1600 * 9 // 8 + 1600 * 4)),
        (AllGather(Chain(TopK(16, bucket=512), QSGD(bits=4))), 7 * (1600 * 9 // 8 + 1600 // 2 + 4 * 4)),
        (AllGather(QSGD(bits=4)), 7 * (51200 // 2 + 100 * 4)),
        (AllGather(Threshold(100.0)), 7 * (8 + 8)),  # nothing but the count, and its length ahead
        (ScatterReduce(QSGD(bits=4)), 14 * (6400 // 2 + 13 * 4)),  # 7 parts to others, then its own to 7
        (ScatterReduce(Float16()), 14 * (6400 * 2 + 4)),
        (Allreduce(RandomK(512)), 512 * 4),  # over the reference's table: an array there, one back
    ],
    ids=repr,
)
def test_the_bytes_sent_are_those_of_the_messages(groups: Former, reduction: Reduction, sent: int) -> None:
    """To each of 7 others, and no length where it is known before; an allreduce of the kept values alone."""
    given = normal(8, 51200).astype(np.float32)
    group = groups.form("reference", 8)

    def call(member: Communicator) -> int:
        reduction.mean(given[member.rank], member, draws_of(member.rank), {})
        return member.traffic.bytes_sent

    assert on_all(group, call) == [sent] * 8


def sparse(pattern: str, size: int, n: int, k: int) -> Array:
    """Integers (members, n), k of them not zero in each row, so that sums are exact in any order."""
    rng = np.random.default_rng([size, n, k])
    given = np.zeros((size, n), dtype=np.float32)
    for rank in range(size):
        places = {
            "same": np.arange(k) * (n // k),
            "disjoint": rank + np.arange(k) * (n // k),
            "random": rng.choice(n, k, replace=False),
            "first": np.arange(k),
        }[pattern]
        given[rank, places] = rng.integers(1, 50, k) * rng.choice([-1, 1], k)
    return given


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pattern", ["same", "disjoint", "random", "first"])
def test_a_sparse_allreduce_is_the_dense_sum(
    groups: Former, schedule: ExchangeSchedule, size: int, pattern: str
) -> None:
    """For any overlap of indices, from a single entry to vectors that fill up and go dense on the way."""
    for k in (1, 20, 60, 110):
        given = sparse(pattern, size, 960, k)
        results = mean_of(groups, SparseAllreduce(TopK(k), schedule), given)
        for reduced, own in zip(results, given, strict=True):
            np.testing.assert_array_equal(reduced.mean, given.sum(axis=0) / np.float32(size))
            np.testing.assert_array_equal(reduced.sent, own)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize(
    "compressor", [TopK(0.1), Threshold(1.5), RandomK(9), UnbiasedRandomK(0.1)], ids=repr
)
@pytest.mark.parametrize(("size", "entries"), [(2, 300), (3, 300), (5, 300), (8, 300), (8, 9), (12, 9)])
def test_every_sparsifier_is_added_as_all_gather_adds_it(
    groups: Former, schedule: ExchangeSchedule, compressor: Any, size: int, entries: int
) -> None:
    """To rounding, in float64; and the same bits on all members, whose sums round in different orders."""
    given = normal(size, entries)
    expected = mean_of(groups, AllGather(compressor), given)
    found = mean_of(groups, SparseAllreduce(compressor, schedule), given)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-13, atol=1e-15)
        np.testing.assert_array_equal(one.mean, found[0].mean)
        np.testing.assert_array_equal(one.sent, other.sent)


LENGTH, PAIR, WORD = 8, 8, 4  # bytes of a message's length, of an index and a float32, of a float32


@pytest.mark.parametrize("schedule", SCHEDULES, ids=repr)
@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_sparse_allreduce_sends_what_sparcml_says(
    groups: Former, schedule: ExchangeSchedule, size: int
) -> None:
    """Between kβ log₂P with the same indices everywhere and (P−1)kβ with none in common, never over dense."""

    def sent(pattern: str, n: int, k: int) -> float:
        """On average of members, without lengths, for vectors without signs: nothing cancels."""
        given = np.abs(sparse(pattern, size, n, k))

        def call(member: Communicator) -> int:
            SparseAllreduce(TopK(k), schedule).mean(given[member.rank], member, draws_of(member.rank), {})
            return member.traffic.bytes_sent

        return float(np.mean(on_all(groups.form("reference", size), call))) - LENGTH * messages

    rounds, n, k, halving = int(math.log2(size)), 4096, 48, schedule == RecursiveDoubling()
    messages = rounds if halving else 2 * (size - 1)
    least = rounds if halving else 2 * (size - 1) / size
    most = size - 1 if halving else (size - 1) * (1 + 1 / size)
    assert sent("same", n, k) == pytest.approx(least * k * PAIR)
    assert sent("disjoint", n, k) == pytest.approx(most * k * PAIR)
    assert least * k * PAIR <= sent("random", n, k) <= (most if halving else size) * k * PAIR
    if halving:
        assert sent("random", 960, 900) == rounds * 960 * WORD
    else:
        assert sent("random", 960, 400) <= 400 * PAIR + (size - 1) / size * 960 * WORD


def matrices(vector: Array) -> tuple[Array, Array]:
    """The two tensors of MATRICES that are compressed."""
    return vector[:120].reshape(12, 10), vector[132:240].reshape(6, 18)


def low_rank(size: int, rank: int) -> Array:
    """Vectors (members, ELEMENTS) that differ, while both matrices of their mean have this rank."""
    rng = np.random.default_rng([size, rank])
    given = rng.standard_normal((size, ELEMENTS))
    given -= given.mean(axis=0)
    mean = rng.standard_normal(ELEMENTS)
    for matrix in matrices(mean):
        left, middle, right = np.linalg.svd(matrix, full_matrices=False)
        matrix[...] = left[:, :rank] * middle[:rank] @ right[:rank]
    return np.asarray(given + mean)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("rank", [1, 2])
def test_power_sgd_is_exact_for_a_mean_of_low_rank(groups: Former, size: int, rank: int) -> None:
    """Although no member's own matrix is of low rank. What is no matrix is averaged as it is."""
    given = low_rank(size, rank)
    group = groups.form("reference", size)

    def call(member: Communicator) -> Reduced:
        state = PowerSGD(rank).state(MATRICES, given.dtype)
        return PowerSGD(rank).mean(given[member.rank], member, draws_of(member.rank), state)

    results = on_all(group, call)
    values = (12 + 10 + 6 + 18) * rank + 12 + 1  # rows and columns of both, and what is no matrix
    traffic = [(member.traffic.bytes_sent, member.traffic.operations) for member in group]
    assert size == 1 or traffic == [(values * 8, 2)] * size
    for reduced, own in zip(results, given, strict=True):
        np.testing.assert_allclose(reduced.mean, given.mean(axis=0), rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(reduced.mean, results[0].mean)
        np.testing.assert_array_equal(reduced.sent[120:132], own[120:132])
        np.testing.assert_array_equal(reduced.sent[:120], reduced.mean[:120])


def run(
    groups: Former, reduction: Reduction, steps: Array, slots: Sequence[Slot]
) -> tuple[list[list[Reduced]], list[dict[str, Any]]]:
    """A mean a step of steps (steps, members, n); what each member got, and its memory at the end."""

    def call(member: Communicator) -> tuple[list[Reduced], dict[str, Any]]:
        state = reduction.state(slots, steps.dtype)
        got = [
            reduction.mean(own[member.rank], member, draws_of(member.rank, step), state)
            for step, own in enumerate(steps)
        ]
        return got, state

    results = on_all(groups.members("reference", steps.shape[1]), call)
    return [got for got, _ in results], [state for _, state in results]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_power_sgd_of_n_members_is_that_of_one_on_the_mean(groups: Former, size: int) -> None:
    """With error feedback, over 6 steps: the mean of the residuals is the residual of the mean."""
    steps = np.random.default_rng(4).standard_normal((6, size, ELEMENTS))
    many, states = run(groups, ErrorFeedback(PowerSGD(2)), steps, MATRICES)
    (one,), (alone,) = run(groups, ErrorFeedback(PowerSGD(2)), steps.mean(axis=1, keepdims=True), MATRICES)
    for member in many:
        for reduced, expected in zip(member, one, strict=True):
            np.testing.assert_allclose(reduced.mean, expected.mean, rtol=1e-9, atol=1e-11)
    residual = np.mean([state["residual"] for state in states], axis=0)
    np.testing.assert_allclose(residual, alone["residual"], rtol=1e-9, atol=1e-11)
    assert np.abs(residual[:120]).max() > 0.1 and (states[0]["residual"][120:132] == 0).all()


def test_power_sgd_finds_the_best_approximation_in_time(groups: Former) -> None:
    """The warm start makes it a power iteration: on a fixed matrix it reaches the truncated SVD."""
    vector = normal(1, ELEMENTS)
    (got,), _ = run(groups, PowerSGD(2), np.repeat(vector[None], 60, axis=0), MATRICES)
    for matrix, first, last in zip(
        matrices(vector[0]), matrices(got[0].mean), matrices(got[-1].mean), strict=True
    ):
        left, middle, right = np.linalg.svd(matrix, full_matrices=False)
        best = np.linalg.norm(left[:, :2] * middle[:2] @ right[:2] - matrix)
        assert np.linalg.norm(last - matrix) == pytest.approx(best, rel=1e-6)
        assert np.linalg.norm(first - matrix) > 1.01 * best


def test_power_sgd_survives_matrices_of_zeros_and_of_lower_rank(groups: Former) -> None:
    """They come back, and the Q that they leave does not spoil the step after."""
    zeros, ones = np.zeros((1, ELEMENTS)), np.ones((1, ELEMENTS))
    (got,), _ = run(groups, PowerSGD(3), np.stack([zeros, ones, zeros, ones, low_rank(1, 3)]), MATRICES)
    for reduced, expected in zip(got, [zeros, ones, zeros, ones, low_rank(1, 3)], strict=True):
        assert np.isfinite(reduced.mean).all()
        np.testing.assert_allclose(reduced.mean[120:132], expected[0, 120:132])
    np.testing.assert_allclose(got[0].mean, 0)
    np.testing.assert_allclose(got[1].mean, 1, rtol=1e-12)


def test_a_step_that_failed_leaves_the_residual(groups: Former) -> None:
    """A member is lost within it: what the step would have sent is neither sent nor forgotten."""
    first, second = groups.form("reference", 2)
    reduction = ErrorFeedback(TopK(2))
    state = reduction.state(flat(5), np.float64)
    state["residual"] += np.arange(5.0)
    second.close()
    with pytest.raises(PeerLost):
        reduction.mean(np.ones(5), first, draws_of(0), state)
    assert state["residual"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize(
    "reduction",
    [
        AllGather(TopK(3)), AllGather(QSGD(bits=2)), AllGather(RandomK(3)), Allreduce(RandomK(3)),
        ScatterReduce(QSGD(bits=2)), ScatterReduce(Float16()),
        Allreduce(Identity()), SparseAllreduce(TopK(3)), SparseAllreduce(RandomK(3), SplitAllGather()),
        ErrorFeedback(Threshold(0.5)), PowerSGD(1), ErrorFeedback(PowerSGD(2)),
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_one_members_nan_is_everyones(groups: Former, reduction: Reduction, value: float) -> None:
    """So every member sees that the training diverged."""
    given = normal(3, ELEMENTS)
    given[1, 7] = value
    for reduced in mean_of(groups, reduction, given, MATRICES):
        assert not np.isfinite(reduced.mean).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        *((lambda c=c: Allreduce(c), "cannot be added") for c in (QSGD(), TopK(3), Float16())),
        (lambda: ScatterReduce(TopK(3)), "take a quantizer such as"),  # type: ignore[arg-type]
        (lambda: SparseAllreduce(QSGD()), "take a sparsifier such as"),  # type: ignore[arg-type]
        (lambda: SparseAllreduce(Chain(TopK(3), QSGD())), "or AllGather.Chain"),  # type: ignore[arg-type]
        (lambda: SparseAllreduce(TopK(3), "ring"), "schedule is 'ring'"),  # type: ignore[arg-type]
        (lambda: AllGather("topk"), "AllGather's compressor is 'topk'.*QSGD"),  # type: ignore[arg-type]
        (lambda: ErrorFeedback("topk"), "compression is 'topk'"),  # type: ignore[arg-type]
        *((lambda c=c: ErrorFeedback(c), "which is no contraction")
          for c in (QSGD(bits=4), TernGrad(), UnbiasedRandomK(100), Allreduce(UnbiasedRandomK(0.1)),
                    Chain(UnbiasedRandomK(0.1), QSGD()), ScatterReduce(QSGD(bits=2)))),
        (lambda: ErrorFeedback(ErrorFeedback(TopK(3))), "one is enough"),
        (lambda: ErrorFeedback(TopK(30)).check(20), "k is 30 of 20 entries"),
        (lambda: ErrorFeedback(SparseAllreduce(TopK(30))).check(20), "k is 30 of 20 entries"),
        (lambda: PowerSGD(0), "rank is 0"),
        (lambda: PowerSGD(6).state(MATRICES, np.float32), "makes no tensor of this model smaller"),
        (lambda: ErrorFeedback(PowerSGD(1)).state(flat(100), np.float32), "take a smaller rank"),
    ],
)  # fmt: skip
def test_senseless_combinations_are_refused(make: Any, words: str) -> None:
    """When they are put together, with what to do instead."""
    with pytest.raises(ConfigurationError, match=words):
        make()
