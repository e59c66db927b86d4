"""Claims about PyTorch's data sets: the same training as of arrays, streams, and wrong samples by number"""

from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.batches.loader import Loader
from d5ray.training.samplers.sampler import OrderedSampler
from d5ray.training.samplers.shards import Shards
from tests.training.datasets.test_arrays import equal, trained

Sample = namedtuple("Sample", ["label", "pixels"])
RNG = np.random.default_rng(24)
X = torch.from_numpy(RNG.random((30, 6), np.float32))
Y = torch.from_numpy(RNG.integers(0, 3, 30))


class Numbered(Dataset[Any]):
    """The samples that a function gives by their number."""

    def __init__(self, give: Callable[[int], Any], samples: int = 30) -> None:
        self.give, self.samples = give, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        return self.give(index)


class Counting(IterableDataset[Any]):
    """The numbers from 0, without end where no end is given."""

    def __init__(self, end: int | None = None, shape: tuple[int, ...] = (2,)) -> None:
        self.end, self.shape = end, shape

    def __iter__(self) -> Iterator[Any]:
        number = 0
        while self.end is None or number < self.end:
            yield {"x": torch.full(self.shape, float(number)), "labels": number % 3}
            number += 1


def by_key(index: int) -> Any:
    return {"pixels": X[index], "label": int(Y[index])}


def by_position(index: int) -> Any:
    return Y[index], "a name", X[index].double()


SAME: dict[str, Callable[..., d5.Dataset]] = {
    "tensors": lambda **given: d5.from_torch(TensorDataset(X, Y), classes=3, **given),
    "tensors, labels first": lambda **given: d5.from_torch(TensorDataset(Y, X), labels=0, classes=3, **given),
    "pairs": lambda **given: d5.from_torch(Numbered(lambda index: (X[index], Y[index])), classes=3, **given),
    "named tuples, labels first": lambda **given: d5.from_torch(
        Numbered(lambda index: Sample(int(Y[index]), X[index])), labels="label", classes=3, **given
    ),
    "a list": lambda **given: d5.from_torch(list(zip(X, Y, strict=True)), classes=3, **given),
    "dictionaries": lambda **given: d5.from_torch(Numbered(by_key), labels="label", classes=3, **given),
    "positions": lambda **given: d5.from_torch(
        Numbered(by_position), inputs=2, labels=0, classes=["a", "b", "c"], **given
    ),
    "iterated": lambda **given: d5.from_torch(iter(zip(X, Y, strict=True)), classes=3, **given),
}


@pytest.mark.parametrize("shares", [{}, {"test": 0.2, "validation": 0.3}], ids=["whole", "shares"])
@pytest.mark.parametrize("made", SAME.values(), ids=SAME)
def test_training_is_that_of_the_same_arrays_to_the_last_bit(
    made: Callable[..., d5.Dataset], shares: dict[str, Any]
) -> None:
    """Also of shares, which are disjoint and complete; none is read before it is needed."""
    expected, found = d5.from_arrays(X, Y, classes=3, **shares), made(**shares)
    for part, split in expected.splits.items():
        at = np.arange(len(split))
        for one, other in zip(found.splits[part].take(at), split.take(at), strict=True):
            assert np.array_equal(one, other)
    assert equal(trained(found), trained(expected))


def test_a_fingerprint_says_what_is_read() -> None:
    """Equal objects have equal ones; another sample, length or class another one."""
    pairs = list(zip(X, Y, strict=True))
    changed = [(X[0] + 1, Y[0]), *pairs[1:]]
    prints = [
        d5.from_torch(each, classes=3).fingerprint for each in (pairs, pairs[:-1], changed, tuple(pairs))
    ]
    assert len(set(prints)) == 4
    other = d5.from_torch(pairs, classes=3)
    other.train.take(np.array([7, 1]))
    assert other.fingerprint == prints[0]


def test_an_epoch_of_a_stream_is_shared_and_the_next_goes_on() -> None:
    """Three agents get the numbers 0 to 19 in the first epoch, 20 to 39 in the second, each once."""
    made = d5.from_torch(Counting(), samples=20, classes=3)
    shards = Shards(20, 3, 4, OrderedSampler(), seed=1)
    loaders = [Loader(made.train, ahead=2 * (agent % 2)) for agent in range(3)]
    for agent, loader in enumerate(loaders):
        loader.start(shards.draws(agent))
    for epoch in range(2):
        seen = [
            number
            for step in range(shards.steps_per_epoch)
            for loader in loaders
            for number in loader.next(step).inputs[:, 0].tolist()
        ]
        assert seen == list(range(20 * epoch, 20 * epoch + 20))
    for loader in loaders:
        loader.close()


def test_a_stream_goes_on_in_the_middle() -> None:
    """The batches from step 7 on, of an agent that begins there, are those that come after step 6."""
    made = d5.from_torch(Counting(17), samples=17, classes=3)  # it has an end, and begins anew
    shards = Shards(17, 2, 4, OrderedSampler(), seed=1)
    whole, rest = Loader(made.train), Loader(made.train)
    whole.start(shards.draws(1))
    rest.start(shards.draws(1, first_step=7))
    batches = [whole.next(step) for step in range(12)]
    for batch in batches[7:]:
        assert np.array_equal(rest.next(0).inputs, batch.inputs)
    assert {each.inputs.max(initial=0) for each in batches} <= set(range(17))


def test_a_stream_trains_the_same_simulated_whoever_asks_first() -> None:
    """Two agents in one process read the stream each by itself: as the arrays in their order."""
    stream = d5.from_torch(Counting(40), samples=40, classes=3)
    arrays = d5.from_torch(Counting(40), classes=3)
    assert isinstance(arrays.train, d5.datasets.Split) and len(arrays.train) == 40
    ordered = d5.samplers.OrderedSampler()
    assert equal(trained(stream, train_sampler=ordered), trained(arrays, train_sampler=ordered))
    with pytest.raises(ConfigurationError, match=r"an order of its own.*OrderedSampler"):
        trained(stream)


def fails_at_four(index: int) -> Any:
    if index == 4:
        raise KeyError("no such file")
    return X[index], Y[index]


class Short(Subset[Any]):
    """It gives one sample whatever it is asked for."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.dataset[indices[0]]]


NAN = torch.where(torch.arange(6) == 2, torch.nan, 1.0)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "raises": (lambda: Numbered(fails_at_four), r"sample 4 cannot be read: KeyError: 'no such file'"),
    "another shape": (
        lambda: Numbered(lambda i: (X[i][: 6 - (i == 5)], Y[i])), r"sample 5: found the shape \(5,\)"
    ),
    "another type": (lambda: Numbered(lambda i: (i if i < 3 else 0.5, Y[i])), "sample 3: found float64"),
    "text": (lambda: Numbered(lambda i: ("abc", Y[i])), "inputs of sample 0: found <U3"),
    "NaN": (lambda: Numbered(lambda i: (NAN if i == 9 else X[i], Y[i])), r"inputs\[2\] of sample 9 is nan"),
    "label too large": (lambda: Numbered(lambda i: (X[i], i)), "sample 3 has the label 3, expected 0 to 2"),
    "negative label": (lambda: Numbered(lambda i: (X[i], -i)), "sample 1 has the label -1, expected 0 to 2"),
    "no label": (lambda: Numbered(lambda i: X[i]), "sample 0: found Tensor, expected a tuple"),
    "one part": (lambda: Numbered(lambda i: (X[i],)), "sample 0 is a tuple of 1, expected inp"),
    "wrong key": (lambda: Numbered(by_key), "sample 0 has no 'labels': did you mean 'label'?"),
    "nothing": (lambda: Numbered(lambda i: None), "sample 0: found NoneType"),
    "empty": (lambda: Numbered(by_key, 0), "found no sample, expected at least one"),
    "empty stream": (lambda: Counting(0), "found no sample, expected at least one"),
    "another part": (
        lambda: Numbered(lambda i: by_key(i) | {"labels": 0} | ({"z": 1} if i == 4 else {})),
        r"inputs of sample 4: found .*\['z'\], expected",
    ),
    "parts beside one array": (
        lambda: Numbered(lambda i: ({"a": X[i], "b": X[i]} if i == 4 else X[i], Y[i])),
        r"inputs of sample 4: found \['a'\], \['b'\], expected one array",
    ),
    "no label in a part of a data set": (
        lambda: Subset(Numbered(lambda i: {"x": X[i], "label" if i == 4 else "labels": 0}), range(30)),
        "sample 4 has no 'labels': did you mean 'label'?",
    ),
    "fewer than were asked for": (lambda: Short(Numbered(fails_at_four), range(30)), "sample 4 cannot be"),
    "labels in parts": (
        lambda: Numbered(lambda i: (X[i], {"box": X[i], "class": Y[i]} if i == 4 else Y[i])),
        r"label of sample 4: found \['box'\], \['class'\], expected one array",
    ),
    "differs": (lambda: Numbered(lambda i: (torch.rand(3), 0)), "sample 0, read twice, came out diff"),
}  # fmt: skip


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_a_wrong_sample_is_one_error_with_its_number(given: Callable[[], Any], message: str) -> None:
    """When the data set is made, or when the sample is read."""
    with pytest.raises(DataError, match=message):
        made = d5.from_torch(given(), classes=3)
        made.train.take(np.arange(len(made.train)))


def test_a_sample_that_raises_ends_a_training_with_its_number() -> None:
    """The run fails with the one error."""
    with pytest.raises(d5.D5Error, match="sample 4 cannot be read: KeyError"):
        trained(d5.from_torch(Numbered(fails_at_four), classes=3))


def test_a_stream_of_one_sample_is_one() -> None:
    """It trains with a batch of one, and a larger one is refused by its size."""
    one = d5.from_torch(Counting(1), classes=3)
    assert len(one.train) == 1
    with pytest.raises(ConfigurationError, match="an epoch has 1 samples"):
        trained(one)


@pytest.mark.full
def test_a_stream_without_end_says_what_it_needs() -> None:
    with pytest.raises(DataError, match=r"without an end: say how many make an epoch, such as samples="):
        d5.from_torch(Counting(None, shape=(1024,)), classes=3)


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (DataLoader(TensorDataset(X, Y)), {}, "gives batches: give its data set, such as loader.dataset"),
        (5, {}, "train .int. is 5: it must be a Dataset"),
        ("train", {}, "it must be a Dataset"),
        (Counting, {}, "it must be a Dataset"),
        (TensorDataset(X, Y), {"labels": 1.5}, "labels is 1.5: it must be a key, or a position"),
        (TensorDataset(X, Y), {"labels": None}, "labels is None"),
        (TensorDataset(X, Y), {"random": 1}, "random is 1"),
        (Counting(), {"samples": 0}, "samples is 0"),
        (Counting(), {"samples": 7}, "say how many classes there are"),
        (iter([(X[0], 0)]), {"samples": 1, "classes": 3}, "can be iterated over once"),
        (Counting(), {"samples": 7, "classes": 3, "test": 0.2}, "read as they come have no shares"),
        (TensorDataset(X, Y), {"test": 1.5}, "test is 1.5"),
        (TensorDataset(X, Y), {"validation": 0.001}, "leaves 30 of 30 samples to train on and 0"),
        (Numbered(lambda i: (X[i], Y[i])), {}, "say how many classes there are"),
        (Numbered(lambda i: (X[i], Y[i])), {"samples": 7, "classes": 3}, "samples is 7, but .* by number"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_options_that_make_no_sense_are_refused(given: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        d5.from_torch(given, **options)


def test_a_share_reads_no_sample_before_it_is_needed() -> None:
    numbers: list[int] = []

    def noted(index: int) -> Any:
        numbers.append(index)
        return X[index], Y[index]

    made = d5.from_torch(Numbered(noted), test=0.5, classes=3)
    assert set(numbers) == {0}
    made.test.take(np.array([1]))
    assert len(set(numbers)) == 2


def test_a_label_that_no_loss_ignores_is_an_error_with_its_number() -> None:
    """Also where a framework's own loss would ignore it; a masked loss does."""
    made = d5.from_torch(Numbered(lambda i: (X[i], -100 if i == 4 else Y[i])), classes=3)
    with pytest.raises(d5.D5Error, match="sample 4 has a label of -100, which the loss does not ignore"):
        trained(made)
    trained(made, loss=d5.operators.MaskedCrossEntropyLoss())


def test_random_samples_train_where_that_is_said() -> None:
    """And what they are does not enter the fingerprint."""
    one, other = (
        d5.from_torch(Numbered(lambda i: (torch.rand(6), Y[i])), classes=3, random=True) for _ in range(2)
    )
    trained(one)
    assert len(one.fingerprint) == len(other.fingerprint) == 64
