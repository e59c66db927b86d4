"""Data sets of objects that give samples, as PyTorch's do: by number, one after the other, or as tensors"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from d5ray.checks import check_count, check_kind, is_number, shown
from d5ray.errors import ConfigurationError, DataError
from d5ray.failures.program_state import as_before
from d5ray.networks.executors.trees import leaves
from d5ray.training.datasets.arrays import split_of
from d5ray.training.datasets.dataset import MOST_CLASSES, Dataset, class_names
from d5ray.training.datasets.fields import Fields, Name
from d5ray.training.datasets.one_by_one import Items
from d5ray.training.datasets.sample_form import guarded
from d5ray.training.datasets.samples import Samples
from d5ray.training.datasets.splitting import dataset_of_splits
from d5ray.training.datasets.stream import Iterated, read_whole


@as_before()
def from_torch(
    train: Any,
    *,
    validation: Any = None,
    test: Any = None,
    inputs: Name | tuple[Name, ...] | None = None,
    labels: Name = "labels",
    classes: Iterable[str] | int | None = None,
    samples: int | None = None,
    random: bool = False,
    name: str | None = None,
) -> Dataset:
    """A data set of a PyTorch `Dataset` or `IterableDataset`, or of anything that is indexed or iterated so.

    A `Dataset` is read sample by sample as agents need it, in any order; of a `TensorDataset` the tensors are
    taken. An `IterableDataset` is read into memory, once, so that it has an epoch, an order and shares as all
    data have; one that is too large, or has no end, needs `samples`, and `OrderedSampler`. It is then read as
    it comes, by every agent from its beginning, and training counts steps.

    Args:
        train, validation, test: of samples that are tuples (inputs, label) or dictionaries; inputs are
            tensors, arrays, numbers or images of Pillow, all of one shape. For the latter two also a share of
            the samples, above 0, drawn by a fixed seed.
        inputs: their key or position, or several, which make a dictionary or a tuple; None: what there is
            beside the label.
        labels: the key or position of the label; where a text is given that is no field of a named tuple,
            the last one of a tuple. What stands there may be a dictionary or a tuple of arrays, for a loss
            of your own.
        classes: their names, or their number; None: what the `Dataset` says by `classes`, or its labels,
            where these lie in memory. Of targets that are no classes the numbers of a sample.
        samples: to train on in an epoch, of an `IterableDataset` that is read as it comes.
        random: samples come out differently each time, as by torchvision's random transforms: such a training
            cannot be repeated to the last bit. Transformations of d5ray draw from the run's seed instead.
        name: of the data set, for people.

    Raises:
        ConfigurationError: an option makes no sense.
        DataError: a sample cannot be read or is none, with its index.

    >>> import numpy as np
    >>> pairs = [(0.5, 0), (1.5, 1), (2.5, 0)]
    >>> from_torch(pairs, classes=2).train.take(np.array([1]))
    (array([1.5], dtype=float32), array([1]))
    """
    given = {"train": train, "test": test, "validation": validation}
    return dataset_of(
        {part: each for part, each in given.items() if each is not None},
        Fields(inputs, labels),
        classes,
        samples=samples,
        random=random,
        name=type(train).__name__ if name is None else name,
    )


LOADERS: Final = ("DataLoader", "StatefulDataLoader")


def dataset_of(
    given: Mapping[str, Any],
    fields: Fields,
    classes: Iterable[str] | int | None,
    *,
    samples: int | None,
    random: bool,
    name: str,
) -> Dataset:
    """The data set of these objects by split, of which 'train' is there; see `from_torch`."""
    check_kind("random", random, bool, "True or False")
    check_kind("name", name, str, "a text")
    if samples is not None:
        check_count("samples", samples)
    names = None if classes is None else class_names(classes)
    if names is None:
        names = _own_names(given["train"])
    most = MOST_CLASSES if names is None else len(names)
    shares = {part: given[part] for part in ("test", "validation") if is_number(given.get(part))}
    splits: dict[str, Samples] = {}
    for part, one in given.items():
        if part in shares:
            continue
        what = f"{part} ({type(one).__name__})"
        length = samples if part == "train" else None
        splits[part] = samples_of(one, fields, most, what, samples=length, random=random)
    if shares and splits["train"].in_order:
        raise ConfigurationError(
            f"{', '.join(shares)}: samples that are read as they come have no shares: give further ones"
        )
    return dataset_of_splits(name, splits, names, shares)


def samples_of(
    given: Any, fields: Fields, classes: int, what: str, *, samples: int | None, random: bool
) -> Samples:
    """The samples of an object; raises `DataError` where it gives none, or what are none."""
    if isinstance(given, Samples):
        return given
    if type(given).__name__ in LOADERS:
        raise ConfigurationError(
            f"{what} gives batches: give its data set, such as loader.dataset; d5ray has samplers, "
            "batch_size and prefetch of its own"
        )
    tensors = getattr(given, "tensors", None)
    if type(given).__name__ == "TensorDataset" and isinstance(tensors, tuple):
        return split_of(f"{what} ", fields.of(tensors, what))
    by_number = hasattr(given, "__getitem__") and hasattr(given, "__len__") and not _iterates(given)
    if isinstance(given, (str, bytes, Mapping, type)) or not (by_number or hasattr(given, "__iter__")):
        raise ConfigurationError(
            f"{what} is {shown(given)}: it must be a Dataset, with __len__ and __getitem__, an "
            "IterableDataset, with __iter__, or for test and validation a share of the samples, such as 0.2"
        )
    if not by_number and samples is None:
        return read_whole(given, fields, what)
    if not by_number:
        assert samples is not None
        if hasattr(given, "__next__"):
            raise ConfigurationError(
                f"{what} can be iterated over once, but every agent does so by itself, and again in the next "
                "epoch: give an object whose __iter__ begins anew, such as an IterableDataset, or leave "
                "samples out, which reads it into memory"
            )
        return Iterated(given, fields, samples, classes, what)
    if samples is not None:
        raise ConfigurationError(
            f"samples is {samples}, but {what} has {len(given)} samples by number: leave it out"
        )
    if not guarded(lambda: len(given), f"{what}: its length"):
        raise DataError(f"{what}: found no sample, expected at least one: give one that is not empty")
    found = Items(given, fields, classes, what, random=random)
    if not random:
        _check_repeats(found)
    return found


def _iterates(given: Any) -> bool:
    """True for an `IterableDataset`, which inherits a method to index it from those that can be."""
    return any(kind.__name__ == "IterableDataset" for kind in type(given).__mro__)


def _check_repeats(items: Items) -> None:
    """Raise `DataError` where the same sample comes out differently, read twice."""
    index = np.zeros(1, np.int64)
    one, other = items.take(index), items.take(index)
    pairs = zip(leaves(one), leaves(other), strict=True)
    if not all(np.array_equal(a, b) for (_, a), (_, b) in pairs):
        raise DataError(
            f"{items.what}: sample 0, read twice, came out differently, so that a run could be neither "
            "repeated nor resumed to the last bit: let d5ray draw, by transformations=(Crop(32, padding=4), "
            "RandomFlip()) or the like; or say random=True to train on it all the same"
        )


def _own_names(given: Any) -> tuple[str, ...] | None:
    """The names of the classes that torchvision's data sets, and others like them, say."""
    names = getattr(given, "classes", None)
    if isinstance(names, (list, tuple)) and names and all(isinstance(each, str) for each in names):
        return tuple(names)
    return None
