"""Claims about the loader: the same batches with threads and without, errors in their step, nothing left"""

import threading
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.batches.batch import Batch
from d5ray.training.batches.loader import PIECE_SAMPLES, Loader, pieces_to_test
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.samples import Array, Labels, OnDemand
from d5ray.training.datasets.synthetic import Synthetic
from d5ray.training.samplers.sampler import ShuffleSampler
from d5ray.training.samplers.shards import Shards
from d5ray.training.transformations.composition import transformed
from d5ray.training.transformations.images import Crop, RandomFlip
from d5ray.training.transformations.normalize import Normalize
from d5ray.training.transformations.replicate import ReplicateBatch
from d5ray.training.transformations.transformation import Sampled, Transformation
from tests.patience import patience

PIPELINE: tuple[Transformation, ...] = (Crop(8, padding=1), RandomFlip(), Normalize(0.3, 0.4))
SECONDS = patience(20.0)


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


def shards(samples: int, agents: int = 2, batch_size: int = 16) -> Shards:
    return Shards(samples, agents, batch_size, ShuffleSampler(), seed=3)


def loader_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("loader")]


def ended(threads: list[threading.Thread]) -> bool:
    for thread in threads:
        thread.join(SECONDS)
    return not any(thread.is_alive() for thread in threads)


def equal(one: Batch, other: Batch) -> bool:
    facts = [(b.weight, b.step, b.epoch, b.ends_epoch, b.labels.tolist()) for b in (one, other)]
    return facts[0] == facts[1] and np.array_equal(one.inputs, other.inputs)


@pytest.mark.parametrize("ahead", [1, 2, 5])
@pytest.mark.parametrize("threads", [1, 3])
def test_batches_prepared_ahead_are_those_made_directly(digits: Dataset, ahead: int, threads: int) -> None:
    """Bit for bit over two epochs and their remainders, and equal to transforming the drawn samples."""
    split, cut = digits.train, shards(1438)
    direct = Loader(split, PIPELINE, seed=3)
    before = Loader(split, PIPELINE, seed=3, ahead=ahead, threads=threads)
    direct.start(cut.draws(1))
    before.start(cut.draws(1))
    for step, draw in enumerate(islice(cut.draws(1), 2 * cut.steps_per_epoch + 1)):
        found = before.next(step)
        assert equal(found, direct.next(step))
        inputs, labels = split.inputs[draw.indices], split.labels[draw.indices]
        expected = transformed(PIPELINE, inputs, labels, draw.indices, seed=3, epoch=draw.epoch)
        np.testing.assert_array_equal(found.inputs, expected.inputs)
    assert len(loader_threads()) <= threads
    running = loader_threads()
    before.close()
    assert running and ended(running)


def test_the_number_of_agents_does_not_change_a_sample(digits: Dataset) -> None:
    """One agent with batches of 32, and two with 16: in every step the same samples, transformed alike."""
    one = Loader(digits.train, PIPELINE, seed=3)
    one.start(shards(1438, 1, 32).draws(0))
    pair = [Loader(digits.train, PIPELINE, seed=3) for _ in range(2)]
    for rank, own in enumerate(pair):
        own.start(shards(1438).draws(rank))
    for step in range(50):
        together = np.concatenate([own.next(step).inputs for own in pair])
        np.testing.assert_array_equal(one.next(step).inputs, together)


def test_memory_without_transformations_needs_no_thread(digits: Dataset) -> None:
    """Whatever is to be prepared ahead: the arrays' own samples, made in the calling thread."""
    loader = Loader(digits.train, ahead=4)
    loader.start(shards(1438).draws(0))
    draw = next(shards(1438).draws(0))
    np.testing.assert_array_equal(loader.next(0).inputs, digits.train.inputs[draw.indices])
    assert not loader_threads()


@dataclass(frozen=True)
class Watched(Transformation):
    """Counts the batches that it was given, and waits for the gate."""

    gate: threading.Event
    seen: list[int]
    arrived: threading.Semaphore

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, samples: Sampled) -> Sampled:
        self.seen.append(len(samples.labels))
        self.arrived.release()
        assert self.gate.wait(SECONDS)
        return samples

    def at_test(self) -> None:
        return None


def test_no_more_is_prepared_than_asked_for_and_it_is_prepared_while_the_step_computes(
    digits: Dataset,
) -> None:
    """While the first batch's step lasts, the next three come to be prepared, all at once, and no fourth."""
    gate, seen, arrived = threading.Event(), list[int](), threading.Semaphore(0)
    loader = Loader(digits.train, (Watched(gate, seen, arrived),), ahead=3, threads=4)
    loader.start(shards(1438).draws(0))
    gate.set()
    loader.next(0)
    for _ in range(4):  # that of step 0, and three ahead, without a further call of next
        assert arrived.acquire(timeout=SECONDS)
    loader.close()
    assert ended(loader_threads())
    assert len(seen) == 4


def test_other_draws_are_taken_from_the_next_batch_on(digits: Dataset) -> None:
    """What was prepared of the old ones is dropped; after closing it begins anew."""
    loader = Loader(digits.train, PIPELINE, seed=3, ahead=4)
    loader.start(shards(1438).draws(0))
    loader.next(0)
    other = Loader(digits.train, PIPELINE, seed=3)
    for first_step in (500, 3):
        loader.start(shards(1438).draws(1, first_step=first_step))
        other.start(shards(1438).draws(1, first_step=first_step))
        assert equal(loader.next(7), other.next(7))
        loader.close()
    assert ended(loader_threads())


class Holes(OnDemand):
    """Ten samples, of which some cannot be read."""

    sample_shape = (2,)

    def __init__(self, *holes: int, kind: type[Exception] = DataError) -> None:
        self.holes = holes
        self.kind = kind

    def __len__(self) -> int:
        return 10

    @property
    def labels(self) -> Labels:
        return np.zeros(10, np.int64)

    @property
    def highest_label(self) -> int:
        return 0

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        for index in indices:
            if index in self.holes:
                raise self.kind(f"file {index} is gone")
        return np.zeros((len(indices), 2), np.float32), self.labels[indices]

    def add_to(self, digest: Any, part: str) -> None: ...


@pytest.mark.parametrize("ahead", [0, 3])
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (DataError, "^file 7 is gone$"),
        (ValueError, r"training sample 7 cannot .* epoch 0: file 7 is gone; see"),
    ],
)
def test_an_error_comes_in_its_step_and_names_the_sample(
    ahead: int, kind: type[Exception], words: str
) -> None:
    """Batches before the unreadable sample's are had; then DataError, also of any other exception."""
    cut = shards(10, 1, 3)
    bad = next(n for n, draw in enumerate(cut.epoch(0, 0)) if 7 in draw.indices)
    loader = Loader(Holes(7, kind=kind), ahead=ahead)
    loader.start(cut.draws(0))
    for step in range(bad):
        loader.next(step)
    with pytest.raises(DataError, match=words):
        loader.next(bad)
    loader.close()
    assert ended(loader_threads())


# -- test splits -----------------------------------------------------------------------------------------


def test_a_test_split_comes_in_pieces_of_what_it_is() -> None:
    """2,500 made-up samples in pieces of at most 1,024: all of them in order, normalized, not flipped."""
    split = Synthetic((1, 4, 4), samples=2500)
    pieces = list(pieces_to_test(split, (RandomFlip(1.0), Normalize(1.0, 2.0), ReplicateBatch(2))))
    assert [len(labels) for _, labels in pieces] == [PIECE_SAMPLES, PIECE_SAMPLES, 2500 - 2 * PIECE_SAMPLES]
    expected = (split.inputs - 1) / 2
    np.testing.assert_allclose(np.concatenate([inputs for inputs, _ in pieces]), expected, atol=1e-6)
    np.testing.assert_array_equal(np.concatenate([labels for _, labels in pieces]), split.labels)


@pytest.mark.full
def test_pieces_of_large_samples_are_smaller() -> None:
    """Samples of 8 MB come 8 at a time, so that a piece has at most 64 MB."""
    pieces = pieces_to_test(Synthetic((2, 1024, 1024), samples=20))
    assert len(next(pieces)[1]) == 8


def test_a_test_split_in_memory_is_one_piece_and_no_copy() -> None:
    """The split's own arrays, also where transformations are for training alone."""
    split = Split(np.zeros((3000, 1, 2, 2), np.float32), np.zeros(3000, np.int64))
    ((inputs, labels),) = pieces_to_test(split, (RandomFlip(),))
    assert inputs.shape == split.inputs.shape and inputs.base is split.inputs and labels.base is split.labels
    assert [len(labels) for _, labels in pieces_to_test(split, at_most=1400)] == [1400, 1400, 200]


def test_a_loader_of_a_sampler_that_does_not_fit_says_so(digits: Dataset) -> None:
    """The error of the order comes out of `next`, too."""

    class Outside(ShuffleSampler.__base__):  # type: ignore[misc, name-defined]
        def order(self, samples: int, *, epoch: int, seed: int) -> Any:
            return np.arange(samples) + 1

    loader = Loader(digits.train, PIPELINE, ahead=2)
    loader.start(Shards(1438, 1, 8, Outside(), 0).draws(0))
    with pytest.raises(ConfigurationError, match="asks for sample 1438"):
        loader.next(0)
    loader.close()
