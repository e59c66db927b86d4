"""Claims about transformations: each is its definition, written out; chance belongs to the sample alone"""

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.training.batches import sample_randomness
from d5ray.training.transformations.composition import at_test, shape_after, transformed
from d5ray.training.transformations.images import CentreCrop, Crop, Cutout, RandomFlip, Resize
from d5ray.training.transformations.normalize import Normalize
from d5ray.training.transformations.replicate import ReplicateBatch
from d5ray.training.transformations.transformation import Sampled, Transformation

Array = np.ndarray[Any, Any]
ALL: list[Transformation] = [
    Crop(6), Crop(8, padding=2), Crop((7, 9), padding=1, fill=0.5), CentreCrop((5, 6)), RandomFlip(),
    RandomFlip(0.2), Normalize(0.3, 0.7), Normalize((0.1, 0.2, 0.3), (1, 2, 3)), Cutout(4), Cutout(3, 0.5),
    Resize(5), Resize((13, 11)), ReplicateBatch(3),
]  # fmt: skip


def images(count: int, shape: tuple[int, ...] = (3, 8, 9), seed: int = 1) -> Array:
    return np.random.default_rng(seed).random((count, *shape), dtype=np.float32)


def made(
    pipeline: tuple[Transformation, ...], inputs: Array, indices: Array, *, seed: int = 1, epoch: int = 0
) -> Array:
    labels = np.arange(len(inputs))
    return transformed(pipeline, inputs, labels, indices, seed=seed, epoch=epoch).inputs


def sampled(inputs: Array, seed: int = 0) -> Sampled:
    keys = sample_randomness.mixed(np.arange(len(inputs), dtype=np.uint64), seed)
    return Sampled(inputs, np.arange(len(inputs)), keys)


# -- what each is ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0, 2])
def test_a_crop_is_a_piece_of_the_padded_image(padding: int) -> None:
    """Each of 300 lies at exactly the corner that its chance says; all corners come, none far too often."""
    inputs = images(300)
    crop = Crop(6, padding=padding, fill=-1.0)
    pieces = crop.apply(samples := sampled(inputs)).inputs
    padded = np.pad(inputs, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=-1)
    rows, columns = padded.shape[2] - 5, padded.shape[3] - 5
    corners = np.floor(samples.uniform(2) * (rows, columns)).astype(int)
    for piece, image, (top, left) in zip(pieces, padded, corners, strict=True):
        np.testing.assert_array_equal(piece, image[:, top : top + 6, left : left + 6])
    counts = np.bincount(corners[:, 0] * columns + corners[:, 1], minlength=rows * columns)
    assert counts.min() > 0 and counts.max() < 5 * 300 / (rows * columns)


def test_at_test_a_crop_is_the_centre() -> None:
    """Of 10 × 10 pixels padded by 1, 6 × 8: rows 3 to 8 and columns 2 to 9 of 12 × 12."""
    inputs = images(2, (1, 10, 10))
    (centre,) = at_test((Crop((6, 8), padding=1),))
    padded = np.pad(inputs, ((0, 0), (0, 0), (1, 1), (1, 1)))
    np.testing.assert_array_equal(centre.apply(sampled(inputs)).inputs, padded[:, :, 3:9, 2:10])


def test_a_flip_mirrors_with_its_probability() -> None:
    """Every image is itself or its mirror image, as its chance says: about 30 %; 0 and 1 are exact."""
    inputs = images(2000, (1, 2, 3))
    samples = sampled(inputs)
    found = RandomFlip(0.3).apply(samples).inputs
    mirrored = samples.uniform(1)[:, 0] < 0.3
    np.testing.assert_array_equal(found[~mirrored], inputs[~mirrored])
    np.testing.assert_array_equal(found[mirrored], inputs[mirrored][..., ::-1])
    assert abs(mirrored.mean() - 0.3) < 5 * np.sqrt(0.21 / 2000)
    np.testing.assert_array_equal(RandomFlip(0).apply(samples).inputs, inputs)
    np.testing.assert_array_equal(RandomFlip(1).apply(samples).inputs, inputs[..., ::-1])


def test_normalize_is_its_formula_for_each_channel() -> None:
    """(x − mean) / std in float64, to 1e-6; over the whole set mean 0 and deviation 1."""
    inputs = images(50)
    mean, std = inputs.mean(axis=(0, 2, 3)), inputs.std(axis=(0, 2, 3))
    found = Normalize(tuple(map(float, mean)), tuple(map(float, std))).apply(sampled(inputs)).inputs
    expected = (inputs.astype(np.float64) - mean[:, None, None]) / std[:, None, None]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(found.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(axis=(0, 2, 3)), 1, atol=1e-5)
    tokens = Normalize(2.0, 4.0).apply(sampled(images(3, (5,)))).inputs
    np.testing.assert_allclose(tokens, (images(3, (5,)) - 2) / 4, atol=1e-6)


@pytest.mark.parametrize("size", [1, 4, 5, 30])
def test_cutout_blots_the_square_around_its_centre(size: int) -> None:
    """Pixel by pixel: within the square around the centre that its chance says `fill`, else as before."""
    inputs = images(40)
    samples = sampled(inputs)
    found = Cutout(size, fill=9.0).apply(samples).inputs
    centres = np.floor(samples.uniform(2) * (8, 9)).astype(int)
    rows, columns = np.mgrid[:8, :9]
    for image, before, (y, x) in zip(found, inputs, centres, strict=True):
        low = size // 2
        inside = (
            (rows >= y - low) & (rows < y - low + size) & (columns >= x - low) & (columns < x - low + size)
        )
        np.testing.assert_array_equal(image, np.where(inside, np.float32(9), before))


@pytest.mark.parametrize("size", [(8, 9), (4, 3), (16, 18), (5, 20), (1, 1)])
def test_resize_is_pytorchs_antialiased_interpolation(size: tuple[int, int]) -> None:
    """Smaller and larger, to 1e-6; of a constant it is the constant."""
    inputs = images(4)
    expected = torch.nn.functional.interpolate(
        torch.from_numpy(inputs), size, mode="bilinear", antialias=True, align_corners=False
    )
    found = Resize(size).apply(sampled(inputs)).inputs
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-6)
    np.testing.assert_allclose(Resize(size).apply(sampled(np.ones_like(inputs))).inputs, 1, atol=1e-6)


def test_copies_keep_their_labels_and_draw_for_themselves() -> None:
    """Three copies one after the other, with labels; flipped by chance, they differ, each one of two."""
    inputs = images(64)
    labels = np.arange(64) % 10
    done = transformed((ReplicateBatch(3), RandomFlip()), inputs, labels, np.arange(64), seed=1, epoch=0)
    assert done.labels.tolist() == labels.tolist() * 3
    copies = done.inputs.reshape(3, 64, 3, 8, 9)
    same = (copies == inputs).all(axis=(2, 3, 4))
    mirrored = (copies == inputs[..., ::-1]).all(axis=(2, 3, 4))
    assert (same | mirrored).all()
    assert len({tuple(row) for row in same.tolist()}) == 3
    plain = transformed((ReplicateBatch(3),), inputs, labels, np.arange(64), seed=1, epoch=0)
    np.testing.assert_array_equal(plain.inputs, np.concatenate([inputs] * 3))


# -- chance ----------------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(0, 5), st.integers(0, 5))
def test_a_sample_is_transformed_alike_in_any_batch(indices: list[int], seed: int, epoch: int) -> None:
    """Alone or with others, in any order: by (seed, epoch, index) alone, whoever takes it."""
    everything = images(100)
    pipeline = (Crop(8, padding=2), RandomFlip(), Cutout(3), Normalize(0.5, 0.2))
    whole = made(pipeline, everything, np.arange(100), seed=seed, epoch=epoch)
    chosen = np.array(indices, dtype=np.int64)
    np.testing.assert_array_equal(
        made(pipeline, everything[chosen], chosen, seed=seed, epoch=epoch), whole[chosen]
    )


def test_seed_epoch_and_place_change_what_is_drawn() -> None:
    """Flips of 200 samples: under another seed, epoch, or place in the pipeline about half agree."""
    inputs, chosen = images(200), np.arange(200)

    def flips(*pipeline: Transformation, seed: int = 1, epoch: int = 0) -> Array:
        found = made(pipeline, inputs, chosen, seed=seed, epoch=epoch)
        return np.asarray((found != inputs).any(axis=(1, 2, 3)))

    first = flips(RandomFlip())
    np.testing.assert_array_equal(first, flips(RandomFlip()))
    for other in (
        flips(RandomFlip(), seed=2),
        flips(RandomFlip(), epoch=1),
        flips(RandomFlip(0), RandomFlip()),
        flips(RandomFlip(), seed=0, epoch=1),
    ):
        assert 60 < (first == other).sum() < 140


def test_the_numbers_of_a_key_are_uniform_and_independent() -> None:
    """Of 50,000 consecutive keys: mean, 64 cells by χ², and correlations with neighbours within 5 σ."""
    numbers = sample_randomness.uniform(sample_randomness.mixed(np.arange(50_000, dtype=np.uint64), 7, 3), 2)
    n = numbers.size
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 5 / np.sqrt(12 * n)
    cells = np.bincount((numbers[:, 0] * 8).astype(int) * 8 + (numbers[:, 1] * 8).astype(int), minlength=64)
    expected = len(numbers) / 64
    assert abs(((cells - expected) ** 2 / expected).sum() - 63) < 5 * np.sqrt(2 * 63)
    centred = numbers[:, 0] - 0.5
    assert abs((centred[1:] * centred[:-1]).mean() * 12) < 5 / np.sqrt(len(centred))


# -- shapes, and what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize("transformation", ALL, ids=repr)
@pytest.mark.parametrize("count", [0, 1, 5])
def test_shapes_are_those_that_are_said(transformation: Transformation, count: int) -> None:
    """In training and in tests, for no sample, one and several; what was given is unchanged."""
    inputs = images(count)
    before = inputs.copy()
    for each in (transformation, transformation.at_test()):
        if each is not None:
            found = each.apply(sampled(inputs)).inputs
            assert found.shape[1:] == each.output_shape((3, 8, 9)) and found.dtype == np.float32
            np.testing.assert_array_equal(inputs, before)
    assert pickle.loads(pickle.dumps(transformation)) == transformation


@pytest.mark.parametrize("transformation", [t for t in ALL if t.at_test() is not None], ids=repr)
def test_at_test_nothing_is_left_to_chance(transformation: Transformation) -> None:
    """Whatever the keys, test samples come out the same."""
    lasting = transformation.at_test()
    assert lasting is not None
    one, other = (lasting.apply(sampled(images(9), seed)).inputs for seed in (1, 2))
    np.testing.assert_array_equal(one, other)


def test_shapes_follow_one_another() -> None:
    """Each gets what the one before gives; the outcome is contiguous, as PyTorch wants it."""
    pipeline = (Resize(16), Crop(12, padding=1), RandomFlip(), CentreCrop((10, 11)))
    assert shape_after(pipeline, (3, 8, 9)) == (3, 10, 11)
    found = made(pipeline, images(4), np.arange(4))
    assert found.shape == (4, 3, 10, 11) and found.flags.c_contiguous


class Halved(Transformation):
    """Every other pixel, in training alone."""

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (shape[0], shape[1] // 2, shape[2])

    def apply(self, samples: Sampled) -> Sampled:
        return samples.with_inputs(samples.inputs[:, :, ::2])

    def at_test(self) -> None:
        return None


@pytest.mark.parametrize(
    ("pipeline", "shape", "words"),
    [
        ((Crop(9),), (3, 8, 8), "takes 9 × 9 pixels of images of 8 × 8: make it smaller, or the padding"),
        ((Resize(4), CentreCrop(5)), (3, 8, 8), "takes 5 × 5 pixels of images of 4 × 4"),
        ((Crop(4),), (12,), r"takes images \(C, H, W\), the samples have the shape \(12,\)"),
        ((Cutout(4),), (12, 3), "takes images"),
        (
            (Normalize((0.5, 0.5), 1),),
            (3, 8, 8),
            "has 2 numbers of mean, but the samples, .* have 3 channels",
        ),
        (
            (Halved(),),
            (3, 8, 8),
            r"a training sample has the shape \(3, 4, 8\), but a test sample \(3, 8, 8\)",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    pipeline: tuple[Transformation, ...], shape: tuple[int, ...], words: str
) -> None:
    """Before anything is computed, naming the transformation and both shapes."""
    with pytest.raises(ConfigurationError, match=words):
        shape_after(pipeline, shape)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Crop(0), "size is 0: it must be an integer number of pixels"),
        (lambda: Crop((3, 4, 5)), r"size is \(3, 4, 5\)"),  # type: ignore[arg-type]
        (lambda: Crop(3, padding=-1), "padding is -1"),
        (lambda: Resize(2.5), "size is 2.5"),  # type: ignore[arg-type]
        (lambda: CentreCrop(True), "size is True"),
        (lambda: RandomFlip(1.1), "probability is 1.1: it must be a number from 0 to 1"),
        (lambda: Normalize(0, 0), "std is 0: it must be a number greater than 0"),
        (lambda: Normalize((0.1, "x"), 1), "a number of mean is 'x'"),  # type: ignore[arg-type]
        (lambda: Normalize(0, ()), r"std is \(\)"),
        (lambda: Cutout(0), "size is 0"),
        (lambda: Cutout(2, fill=float("nan")), "fill is nan"),
        (lambda: ReplicateBatch(0), "copies is 0"),
    ],
)
def test_arguments_without_sense_are_refused(make: Callable[[], Transformation], words: str) -> None:
    """With the name, what was found, and what is expected."""
    with pytest.raises(ConfigurationError, match=words):
        make()


class Warming(Transformation):
    """Whose samples grow from batch to batch."""

    batches = 0

    def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return shape

    def apply(self, samples: Sampled) -> Sampled:
        self.batches += 1
        return samples.with_inputs(samples.inputs * self.batches)

    def at_test(self) -> None:
        return None


def test_one_that_remembers_is_refused() -> None:
    """A run could be neither repeated nor resumed; the user's object stays as it is."""
    own = Warming()
    given = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), transformations=(own,))
    with pytest.raises(ConfigurationError, match=r"Warming.*made two batches.*Sampled\.uniform"):
        d5.simulate(given)
    assert own.batches == 0
