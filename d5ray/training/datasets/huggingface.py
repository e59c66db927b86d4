"""A data set of Hugging Face's library `datasets`: in memory, mapped from files, or streamed"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from d5ray.checks import check_kind, is_number, shown, wrong_kind
from d5ray.errors import ConfigurationError, DataError, nearest
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.fields import Fields
from d5ray.training.datasets.objects import dataset_of

PARTS = ("train", "validation", "test")


def from_huggingface(
    train: Any,
    *,
    inputs: str | tuple[str, ...] | None = None,
    labels: str = "label",
    validation: Any = None,
    test: Any = None,
    classes: Iterable[str] | int | None = None,
    samples: int | None = None,
    name: str | None = None,
) -> Dataset:
    """A data set of `datasets.Dataset`s, read as agents need them, in the format that they are set to.

    A `DatasetDict` gives its 'train', 'validation' and 'test'. An `IterableDataset` is read into memory, or,
    with `samples`, as it comes; see `from_torch`. What has been mapped (tokens, say) is what is trained on.

    Args:
        train: the samples to train on, or a `DatasetDict`.
        inputs: the column of the inputs: numbers, lists of them of one shape, or images; or several,
            which make a dictionary; None: what there is beside the labels.
        labels: the column of the labels.
        validation, test: further ones; or a share of the samples, above 0, drawn by a fixed seed.
        classes: their names, or their number; None: as the column of the labels says.
        samples: to train on in an epoch, of an `IterableDataset` that is read as it comes.
        name: of the data set, for people.

    Raises:
        ConfigurationError: what is given is none of theirs, or an option makes no sense.
        DataError: no such column, or a sample that cannot be read, with its index.
    """
    fields = Fields(inputs, labels)
    check_kind("labels", labels, str, "the name of a column")
    if train is None:
        raise wrong_kind("train", train, "a datasets.Dataset, or a DatasetDict")
    given = {"train": train, "validation": validation, "test": test}
    if isinstance(train, Mapping):
        given = {part: train.get(part) if each in (None, train) else each for part, each in given.items()}
        if given["train"] is None:
            raise ConfigurationError(f"train has {', '.join(map(repr, train))}, expected 'train' among them")
    parts = {part: each for part, each in given.items() if each is not None}
    for part, each in parts.items():
        if part == "train" or not is_number(each):
            _check(part, each, inputs, labels)
    if classes is None:
        classes = getattr((parts["train"].features or {}).get(labels), "names", None) or _count(parts, labels)
    title = getattr(parts["train"].info, "dataset_name", None) or "huggingface"
    name = title if name is None else name
    return dataset_of(parts, fields, classes, samples=samples, random=False, name=name)


def _count(parts: Mapping[str, Any], labels: str) -> int | None:
    """The number of classes by the column of the labels, where it holds integers in memory or mapped."""
    highest = -1
    for each in (each for each in parts.values() if not is_number(each)):
        if not hasattr(each, "select_columns") or not hasattr(each, "__getitem__"):
            return None  # it streams
        column = np.asarray(each.select_columns([labels]).with_format("numpy")[:][labels])
        if column.dtype.kind not in "iu":
            return None
        highest = max(highest, int(column.max(initial=-1)))
    return max(1, highest + 1)


def _check(part: str, given: Any, inputs: object, labels: str) -> None:
    """Raise an error for what is no data set of theirs, or has not the columns."""
    if not hasattr(given, "features") or not hasattr(given, "column_names") or not hasattr(given, "info"):
        raise ConfigurationError(
            f"{part} is {shown(given)}: it must be a datasets.Dataset, such as "
            "datasets.Dataset.from_dict({...}), or an IterableDataset; other data sets by number, such as "
            "Padded(...), are for d5.from_torch"
        )
    columns = given.column_names
    named = inputs if isinstance(inputs, (tuple, list)) else (inputs,)
    for column in (*named, labels) if columns else ():
        if isinstance(column, str) and column not in columns:
            raise DataError(
                f"{part} ({type(given).__name__}) has no column {column!r}: {nearest(column, columns)}"
            )
