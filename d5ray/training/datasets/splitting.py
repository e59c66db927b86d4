"""Parts of the samples to test and to validate on"""

from dataclasses import replace

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
    rest, chosen = divided(len(dataset.train), share, split_seed)
    if not len(rest) or not len(chosen):
        raise ConfigurationError(
            f"validation={share!r} leaves {len(rest)} samples to train on and {len(chosen)} to validate on: "
            "give a share that leaves some of each"
        )
    return replace(dataset, train=_some(dataset.train, rest), validation=_some(dataset.train, chosen))


def _some(samples: Samples, indices: Indices) -> Samples:
    if isinstance(samples, Split):
        return Split(*samples.take(indices))
    return Subset(samples, indices)


def with_test(
    name: str, found: Samples, tests: Samples | None, classes: int, test_fraction: float, split_seed: int
) -> Dataset:
    """The data set of these samples; without others to test on, with a share of them, chosen by the seed."""
    check_share("test_fraction", test_fraction)
    check_count("split_seed", split_seed, 0)
    if tests is not None:
        return Dataset(name, found, tests, class_names(classes))
    first, second = divided(len(found), test_fraction, split_seed)
    return Dataset(name, Subset(found, first), Subset(found, second), class_names(classes))
