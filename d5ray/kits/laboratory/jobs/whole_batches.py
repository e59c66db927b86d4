"""Data sets cut to whole batches, so that every step of a comparison has as many samples as every other"""

from d5ray.errors import ConfigurationError
from d5ray.training.datasets import Dataset, Split


def whole_batches(dataset: Dataset, batch: int) -> Dataset:
    """The data set with as many training samples as fill whole batches, so that all steps are equal."""
    samples = len(dataset.train) // batch * batch
    if samples == 0:
        raise ConfigurationError(
            f"the data set {dataset.name!r} has {len(dataset.train)} training samples, one step of all "
            f"agents takes {batch}: choose a smaller batch_size"
        )
    train = Split(dataset.train.inputs[:samples], dataset.train.labels[:samples])
    return Dataset(dataset.name, train, dataset.test, dataset.classes)
