"""A data set of Ray Data: rows that are streamed to the agents, each once an epoch"""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from d5ray.actors.datasets.block_feed import BlockFeed, told
from d5ray.actors.datasets.ray_rows import Columns, RayRows, check_columns, is_ray_data
from d5ray.actors.remote import lasting
from d5ray.checks import check_kind, check_names, shown
from d5ray.errors import ConfigurationError, D5Error, DataError
from d5ray.networks.executors.trees import leaves, mapped
from d5ray.training.datasets.arrays import split_of
from d5ray.training.datasets.dataset import MOST_CLASSES, Dataset, Split, class_names
from d5ray.training.datasets.samples import Samples
from d5ray.training.datasets.splitting import dataset_of_splits
from d5ray.training.datasets.stream import MOST_BYTES

ROWS: Final = 4096  # that are read at a time


def from_ray(
    train: Any,
    *,
    inputs: str | Iterable[str] | None = None,
    labels: str = "label",
    validation: Any = None,
    test: Any = None,
    classes: Iterable[str] | int | None = None,
    name: str = "ray",
) -> Dataset:
    """A data set of a `ray.data.Dataset`, which runs once an epoch while the agents train on what it gives.

    Ray Data executes and streams it, and an actor of this process tells each agent which rows of which block
    are its own: every row comes once an epoch, in the order of the data set, whatever the number of agents.
    It needs `OrderedSampler`: shuffle by Ray Data, such as `.random_shuffle(seed=1)`, or without a seed anew
    in every epoch, which then cannot be gone on with in the middle to the last bit. Tasks of Ray Data need
    CPUs beside those of the agents.

    Args:
        train: the rows to train on; they are counted, for which Ray Data may have to run once.
        inputs: the column of numbers or tensors of one shape, or several: of numbers, which together are a
            sample (columns,), else a dictionary; None: the one beside the labels.
        labels: the column of the labels.
        validation, test: further ones, which are read into memory.
        classes: their names, or their number; None only for targets that are no classes.
        name: of the data set, for people.

    Raises:
        ConfigurationError: what is given is none of Ray's, or an option makes no sense.
        DataError: no such column, no rows, or rows that are no samples, with the number of the first.
    """
    check_kind("name", name, str, "a text")
    if not isinstance(labels, str):
        raise ConfigurationError(f"labels is {shown(labels)}: it must be the name of a column")
    known = MOST_CLASSES if classes is None else len(class_names(classes))
    for part, each in (("train", train), ("validation", validation), ("test", test)):
        if (each is not None and not is_ray_data(each)) or (each is None and part == "train"):
            raise ConfigurationError(
                f"{part} is {shown(each)}: it must be a ray.data.Dataset, such as ray.data.read_parquet(path)"
            )
    what = "train (ray.data)"
    columns = _columns(what, train, inputs, labels)
    rows = _asked(what, train.count)
    if not rows:
        raise DataError(f"{what}: found no rows, expected at least one sample: add some")
    feed = lasting(BlockFeed, train, rows, what)
    found = RayRows(feed, columns, rows, known, what, _types(train))
    splits: dict[str, Samples] = {"train": found}
    for part, each in (("validation", validation), ("test", test)):
        if each is not None:
            splits[part] = _read(f"{part} (ray.data)", each, columns)
    return dataset_of_splits(name, splits, classes)


def _columns(what: str, train: Any, inputs: str | Iterable[str] | None, labels: str) -> Columns:
    names = list(_asked(what, train.schema).names)
    if inputs is None:
        left = [name for name in names if name != labels]
        if len(left) != 1 and labels in names:
            raise DataError(
                f"{what} has the columns {', '.join(left)} beside {labels!r}, expected one input: say which, "
                f"such as inputs={left[0] if left else 'x'!r}"
            )
        inputs = left[0] if left else "inputs"
    elif not isinstance(inputs, str):
        inputs = check_names("inputs", inputs, "the name of a column, or a tuple of names")
    found = Columns(inputs, labels)
    check_columns(what, found, names)
    return found


def _types(train: Any) -> str:
    schema = train.schema()
    return ", ".join(f"{name}: {kind}" for name, kind in zip(schema.names, schema.types, strict=True))


def _read(what: str, dataset: Any, columns: Columns) -> Split:
    """All rows in memory, in their order."""
    check_columns(what, columns, list(_asked(what, dataset.schema).names))
    parts: list[tuple[Any, Any]] = []
    total = 0

    def read() -> None:
        nonlocal total
        for batch in dataset.iter_batches(batch_size=ROWS, batch_format="numpy"):
            parts.append(columns.parts(batch))
            total += sum(each.nbytes for _, each in leaves(parts[-1]))
            if total > MOST_BYTES:
                raise DataError(
                    f"{what}: found more than {MOST_BYTES >> 20} MiB, which every agent would hold: give "
                    "fewer rows, such as .limit(10_000)"
                )

    _asked(what, read)
    if not parts:
        raise DataError(f"{what}: found no rows, expected at least one sample: add some")
    return split_of(f"{what} ", mapped(lambda *each: np.concatenate(each), *parts))


def _asked(what: str, ask: Any) -> Any:
    """What Ray Data answers; its errors as a `DataError`."""
    try:
        found = ask()
    except D5Error:
        raise
    except Exception as error:  # what the user's own functions raise, and what Ray makes of it
        raise DataError(
            f"{what}: its rows cannot be had: {told(error)}: mend what reads or maps them"
        ) from None
    if found is None and ask.__name__ == "schema":
        raise DataError(f"{what}: found no rows, expected at least one sample: add some")
    return found
