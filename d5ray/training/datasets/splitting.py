"""Parts of the samples to test and to validate on"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from d5ray.checks import check_count, check_share
from d5ray.errors import ConfigurationError
from d5ray.training.datasets.dataset import Dataset, Split, class_names
from d5ray.training.datasets.samples import Indices, Samples, Subset, divided

SPLIT_SEED = 500


def validating(dataset: Dataset, share: float, split_seed: int = SPLIT_SEED) -> Dataset:
    """The data set with that share of its training samples to validate on, drawn by the seed.

    >>> import numpy as np
    >>> zeros = Split(np.zeros((10, 2), np.float32), np.zeros(10, np.int64))
    >>> made = validating(Dataset("zeros", zeros, zeros, 1), 0.2)
    >>> {part: len(split) for part, split in made.splits.items()}
    {'train': 8, 'test': 10, 'validation': 2}
    """
    if dataset.validation is not None:
        raise ConfigurationError(
            f"validation is {share!r}, but {dataset.name!r} has such samples already: leave it out"
        )
    parts = shared(dataset.train, {"validation": share}, split_seed)
    return replace(dataset, train=parts["train"], validation=parts["validation"])


def shared(train: Samples, shares: Mapping[str, float], split_seed: int = SPLIT_SEED) -> dict[str, Samples]:
    """The samples in shares, drawn by the seed: those of these names, and the rest to train on.

    Raises `ConfigurationError` for a share that is none, or leaves nothing.
    """
    found: dict[str, Samples] = {}
    left: Indices = np.arange(len(train), dtype=np.int64)
    for part, share in shares.items():
        check_share(part, share)
        rest, chosen = divided(len(left), min(1.0, share * len(train) / max(1, len(left))), split_seed)
        if not len(rest) or not len(chosen):
            raise ConfigurationError(
                f"{part}={share!r} leaves {len(rest)} of {len(left)} samples to train on and {len(chosen)} "
                f"for {part}: give a share that leaves some of each"
            )
        found[part] = _some(train, left[chosen])
        left = left[rest]
    return found | {"train": _some(train, left)}


def _some(samples: Samples, indices: Indices) -> Samples:
    if isinstance(samples, Split):
        return Split(*samples.take(indices))
    return Subset(samples, indices)


def dataset_of_splits(
    name: str,
    splits: dict[str, Samples],
    classes: Iterable[str] | int | None,
    shares: Mapping[str, float] | None = None,
    split_seed: int = SPLIT_SEED,
) -> Dataset:
    """The data set of these splits, of which 'train' is there, and of shares of that; see `from_arrays`."""
    if shares:
        splits = splits | shared(splits["train"], shares, split_seed)
    if "test" not in splits:
        splits = splits | {"test": _empty_like(splits["train"])}
    names = class_names(_count_of_classes(splits) if classes is None else classes)
    return Dataset(name, splits["train"], splits["test"], names, splits.get("validation"))


def _count_of_classes(splits: Mapping[str, Samples]) -> int:
    """The number of classes that labels in memory say, or of a sample's targets that are none.

    Raises `ConfigurationError` for labels that nobody has seen.
    """
    train = splits["train"]
    labels = train.labels if isinstance(train, Split) else train.take(np.zeros(1, np.int64))[1]
    if labels.dtype.kind == "V":
        return 1
    if labels.dtype.kind == "f":
        return int(np.prod(labels.shape[1:], dtype=int)) or 1
    if not isinstance(train, Split):
        raise ConfigurationError(
            "classes is None, but labels are read as they are needed: say how many classes there are, such "
            "as classes=10, or their names"
        )
    return max(1, max(each.highest_label for each in splits.values()) + 1)


def _empty_like(samples: Samples) -> Split:
    """A split of the same shapes and types, without samples."""
    if isinstance(samples, Split):
        return Split(*samples.part(0, 0))
    form = getattr(samples, "form", None)
    if form is None:
        return Split(*Split(*samples.take(np.zeros(1, np.int64))).part(0, 0))
    return Split(*form.empty(0))


def with_test(
    name: str,
    found: Samples,
    tests: Samples | None,
    classes: Iterable[str] | int,
    test_fraction: float,
    split_seed: int,
) -> Dataset:
    """The data set of these samples; without others to test on, with a share of them, chosen by the seed."""
    check_share("test_fraction", test_fraction)
    check_count("split_seed", split_seed, 0)
    if tests is not None:
        return Dataset(name, found, tests, class_names(classes))
    first, second = divided(len(found), test_fraction, split_seed)
    return Dataset(name, Subset(found, first), Subset(found, second), class_names(classes))
