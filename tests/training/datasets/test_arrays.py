"""Claims about arrays as data: any type of numbers, pixels that stay bytes, splits by share, wrong ones"""

from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.batches.loader import Loader, pieces_to_test
from d5ray.training.samplers.sampler import ShuffleSampler
from d5ray.training.samplers.shards import Shards

RNG = np.random.default_rng(23)
PIXELS = RNG.integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
CLASSES = RNG.integers(0, 5, 40)


def trained(dataset: d5.Dataset, **values: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The parameters after two epochs of two simulated agents."""
    experiment = d5.Experiment(
        "mlp", dataset, d5.optimizers.Momentum(0.1, 0.9), agents=2, batch_size=6, epochs=2, **values
    )
    with d5.simulate(experiment) as group:
        group.train()
        return group.parameters()


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (np.ones((4, 2), np.float16), np.float32),
        (np.ones((4, 2), np.float64), np.float32),
        (np.ones((4, 2), d5.bfloat16), np.float32),
        (torch.ones(4, 2, dtype=torch.bfloat16), np.float32),
        (torch.ones(4, 2, requires_grad=True), np.float32),
        (np.ones((4, 2), np.int8), np.int64),
        (np.ones((4, 2), np.uint32), np.int64),
        (torch.ones(4, 2, dtype=torch.int32), np.int64),
        (torch.ones(4, 2, dtype=torch.uint8), np.uint8),
        ([[1, 1]] * 4, np.int64),
        (pd.Series([[1, 1]] * 4), np.int64),
        (pd.Series([np.ones(2)] * 4), np.float32),
        (np.ones((4, 2), ">f4"), np.float32),
        (np.ones((2, 4), np.float32).T, np.float32),
        (pd.DataFrame({"a": [1.0] * 4, "b": [1] * 4}), np.float32),
    ],
    ids=str,
)
def test_any_type_of_numbers_becomes_one_of_three(x: Any, expected: type) -> None:
    """Floating numbers float32, integers int64, bytes stay; the values are the same, in C order."""
    for y in (torch.tensor([0, 1, 2, 1]), pd.Series([0, 1, 2, 1]), pa.array([0, 1, 2, 1]), [0, 1, 2, 1]):
        split = d5.from_arrays(x, y).train
        assert split.inputs.dtype == expected and split.labels.dtype == np.int64
        assert split.inputs.flags.c_contiguous and np.array_equal(split.inputs, np.ones((4, 2)))
        assert split.labels.tolist() == [0, 1, 2, 1]


def test_arrays_of_the_right_type_are_those_of_a_split() -> None:
    """Nothing is copied, and the fingerprint is that of the same arrays given as splits."""
    x, y = PIXELS.astype(np.float32), CLASSES
    made = d5.from_arrays(x, y, test=(x[:8], y[:8]))
    assert made.train.inputs is x
    split = d5.datasets.Split
    assert made.fingerprint == d5.Dataset("other", split(x, y), split(x[:8], y[:8]), 5).fingerprint


def test_pixels_stay_bytes_and_train_as_their_quotients_do() -> None:
    """uint8 in memory; evaluations and parameters are those of x / 255 in float32, to the last bit."""
    bytes_ = d5.from_arrays(PIXELS, CLASSES, test=(PIXELS[:9], CLASSES[:9]))
    floats = d5.from_arrays(
        PIXELS / np.float32(255), CLASSES, test=(PIXELS[:9] / np.float32(255), CLASSES[:9])
    )
    assert bytes_.train.inputs is PIXELS
    assert equal(trained(bytes_), trained(floats))
    (shown, _), (wanted, _) = next(pieces_to_test(bytes_.test)), next(pieces_to_test(floats.test))
    assert shown.dtype == np.float32 and np.array_equal(shown, wanted)


def test_pixels_are_scaled_where_the_transformations_say() -> None:
    """After crops and flips, which move bytes then, and before the rest: the batches are the same."""
    moved = (d5.transformations.Crop(8, padding=2), d5.transformations.RandomFlip())
    normal = d5.transformations.Normalize(0.4, 0.3)
    batches = []
    for pipeline in ((*moved, d5.transformations.ScalePixels(), normal), (*moved, normal)):
        loader = Loader(d5.from_arrays(PIXELS, CLASSES).train, pipeline, seed=1)
        loader.start(Shards(40, 1, 40, ShuffleSampler(), seed=1).draws(0))
        batches.append(loader.next(0).inputs)
    assert batches[0].dtype == np.float32 and np.array_equal(batches[0], batches[1])


def test_shares_are_disjoint_and_complete() -> None:
    """A tenth to test on, a fifth to validate on, and the rest, drawn by the seed, as it is said."""
    x = np.arange(50)[:, None]
    made = d5.from_arrays(x, np.zeros(50, int), test=0.1, validation=0.2, classes=2)
    again = d5.from_arrays(x, np.zeros(50, int), test=0.1, validation=0.2, split_seed=501)
    sizes = {part: len(split) for part, split in made.splits.items()}
    assert sizes == {"train": 35, "test": 5, "validation": 10}
    assert sorted(np.concatenate([each.inputs[:, 0] for each in made.splits.values()])) == list(range(50))
    assert made.test.inputs.tolist() != again.test.inputs.tolist()


def test_classes_are_counted_named_or_found() -> None:
    y = [0, 3, 1]
    x = np.ones((3, 2))
    assert d5.from_arrays(x, y).classes == ("0", "1", "2", "3")
    assert d5.from_arrays(x, y, classes=7).classes == tuple("0123456")
    assert d5.from_arrays(x, y, classes=["a", "b", "c", "d"]).classes == ("a", "b", "c", "d")
    assert d5.from_arrays(x, np.ones((3, 5))).classes == tuple("01234")
    assert d5.from_arrays(x, [0.5, 1.0, 2.0]).classes == ("0",)
    assert d5.from_arrays(x, [0, -100, 1]).train.labels.tolist() == [0, -100, 1]


ONES = np.ones((4, 3))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": ONES, "y": [0, 1, 2]}, "x has 4 samples and y 3"),
        ({"x": [[1, 2], [3], [4, 5], [6, 7]], "y": [0] * 4}, "x: found list .*sample 1 has the"),
        ({"x": np.array([[1], [2, 3]], object), "y": [0] * 2}, "found samples of different shapes"),
        ({"x": pd.Series([[[1], [2, 3]]] * 2), "y": [0] * 2}, "found samples of different shapes"),
        ({"x": np.array(["a"] * 4), "y": [0] * 4}, "x: found <U1, such as .*'a'.*expected integers or"),
        ({"x": np.array([object()] * 4), "y": [0] * 4}, "x: found object"),
        ({"x": np.ones(4, complex), "y": [0] * 4}, "x: found complex128"),
        ({"x": np.ones((4, 2), bool), "y": [0] * 4}, "x: found truth values"),
        ({"x": np.where(np.arange(12) == 7, np.nan, 1.0).reshape(4, 3), "y": [0] * 4}, r"x\[2, 1\] is nan"),
        ({"x": torch.full((4, 1), torch.inf), "y": [0] * 4}, r"x\[0, 0\] is inf"),
        ({"x": np.array([1.0, 1e300]), "y": [0] * 2}, r"x\[1\] is 1e\+300"),
        ({"x": np.array([2**64 - 1], np.uint64), "y": [0]}, r"x\[0\] is 18446744073709551615"),
        ({"x": 5, "y": 5}, "x: found one number"),
        ({"x": None, "y": [0]}, "x: found object"),
        ({"x": ONES, "y": ["cat", "dog", "cat", "dog"]}, "y: found <U3, such as .*'cat'"),
        ({"x": ONES, "y": [0, 1, 2, 7], "classes": 3}, r"train.labels\[3\] is 7, expected less than .* 3"),
        ({"x": ONES, "y": [0, -7, 2, 7]}, r"labels\[1\] is -7, expected 0 or more.*-100"),
        ({"x": ONES, "y": [0.0, np.nan, 1.0, 2.0]}, r"y\[1\] is nan"),
        ({"x": [], "y": []}, "0 training samples"),
        ({"x": ONES, "y": [0] * 4, "test": (np.ones((4, 2)), [0] * 4)}, "and test samples of shape"),
        ({"x": ONES, "y": [0] * 4, "test": (np.ones((4, 3), np.uint8), [0] * 4)}, "test x is uint8"),
        ({"x": ONES, "y": [0] * 4, "test": (ONES, [0.5] * 4)}, "test y is float32 .* int64"),
        ({"x": ONES, "y": [0] * 4, "validation": (ONES[:0], [])}, "validat"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_wrong_arrays_are_one_error_with_their_place(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        d5.from_arrays(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "half"}, "test is 'half': it must be a pair"),
        ({"test": 1.5}, "test is 1.5"),
        ({"test": 0.01}, "test=0.01 leaves 4 of 4"),
        ({"test": 0.5, "validation": 0.5}, "validation=0.5 leaves 0 of 2"),
        ({"classes": 0}, "classes is 0"),
        ({"classes": "abc"}, "classes is 'abc'"),
        ({"split_seed": -1}, "split_seed is -1"),
        ({"name": 3}, "name is 3"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        d5.from_arrays(ONES, [0] * 4, **options)
