"""A data set of PyTorch's: of tuples or dictionaries, with samples by number or one after the other"""

from collections.abc import Iterable
from typing import Any

from d5ray.failures.program_state import as_before
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.fields import Fields, Name
from d5ray.training.datasets.objects import dataset_of


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
            the last one of a tuple.
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
