"""Samples and their labels, wherever they are: in memory, in files, or made when they are asked for"""

import hashlib
from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import KnownKeywords, check_kind, shown
from d5ray.errors import DataError
from d5ray.networks.executors.trees import Tree, leaves

Shape = tuple[int, ...]  # or a tree of such, where inputs are one of arrays
Array = np.ndarray[Any, Any]
Labels = npt.NDArray[Any]  # int64 of classes, float32 of other targets, or a structured array of a tree
Indices = npt.NDArray[np.int64]
IGNORED = -100  # a label that counts for nothing where the loss says so, as PyTorch has it


class Samples(KnownKeywords, ABC):
    """Numbered samples of one shape, and their labels.

    `inputs` (N, ...) and `labels` (N, ...) are all of them; where `in_memory` is false, asking for `inputs`
    reads or makes every sample, so programs that train use `take`.
    """

    in_memory: ClassVar[bool] = False  # whether `take` is no more than copying
    in_order: ClassVar[bool] = False  # whether they can only be had one after the other, see `SampleStream`
    sample_shape: Shape

    if TYPE_CHECKING:  # a subclass may keep them as they are

        @property
        def inputs(self) -> Tree: ...

        @property
        def labels(self) -> Labels: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        """Copies of inputs (n, ...) of float32, int64 or uint8 (pixels), and labels (n, ...) of int64, all
        C-contiguous; or targets of float32 in their place. Inputs may be a tree of arrays, see
        `d5ray.networks.executors.trees`; the sample's shape is then one of shapes.

        indices: (n,), in any order, also repeated. Several threads may call it at a time.
        Raises `DataError` for a sample that cannot be read, with its name.
        """

    def take_in(self, epoch: int, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        """See `take`; those of an endless stream are others in every epoch."""
        return self.take(indices)

    def opened(self) -> "Samples":
        """The samples for one agent to draw from; of a stream, from a place of its own."""
        return self

    @property
    @abstractmethod
    def highest_label(self) -> int:
        """A class that no label is above; -1 without samples, and where targets are no classes."""

    @abstractmethod
    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Let the data enter a hash; `part` is what it is of a data set, such as 'train'."""

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hex): equal samples, equal fingerprint."""
        digest = hashlib.sha256()
        self.add_to(digest, "samples")
        return digest.hexdigest()


def check_taken(samples: Samples, taken: object, count: int) -> tuple[Tree, Labels]:
    """The inputs and labels that `take` gave for that many indices; `DataError` for what it must not give."""
    name, kinds = type(samples).__name__, ("float32", "int64", "uint8")
    if not isinstance(taken, tuple) or len(taken) != 2:
        raise DataError(f"{name}.take gave {shown(taken)}, expected a tuple of inputs (n, ...) and labels")
    inputs, labels = taken
    shapes = dict(leaves(samples.sample_shape))
    arrays = [(f"inputs{place}", each, shapes.get(place), kinds) for place, each in leaves(inputs)]
    structured = getattr(getattr(labels, "dtype", None), "names", None) is not None
    truths = ("int64", "float32", *((labels.dtype.name,) if structured else ()))
    for what, array, shape, allowed in (*arrays, ("labels", labels, None, truths)):
        wanted = f"a C-contiguous array ({count}, ...) of {' or '.join(allowed)}"
        if not isinstance(array, np.ndarray):
            found = type(array).__name__
        elif array.dtype.name not in allowed or not array.flags.c_contiguous or len(array) != count:
            order = "" if array.flags.c_contiguous else ", not C-contiguous"
            found = f"{array.shape} of {array.dtype}{order}"
        elif shape is not None and array.shape[1:] != shape:
            found, wanted = f"samples of shape {array.shape[1:]}", f"its sample_shape, {shape}"
        else:
            continue
        raise DataError(
            f"{name}.take gave {what} that are {found} for {count} indices, expected {wanted}: convert with "
            f"np.ascontiguousarray(..., np.{allowed[0]}), and give one of each for every index"
        )
    return inputs, labels


class OnDemand(Samples):
    """Samples that are not in memory: `inputs` gathers all of them, which must fit it then."""

    @property
    @abstractmethod
    def labels(self) -> Labels:
        """The labels of all samples, in memory: (N, ...)."""

    @property
    def inputs(self) -> Tree:
        """All samples as one array (N, ...), gathered anew at every use: it must fit the memory."""
        return self.take(np.arange(len(self)))[0]


class Classified(OnDemand):
    """Samples that are read on demand, with the numbers of their classes in memory."""

    _labels: Labels

    @final
    def __len__(self) -> int:
        return len(self._labels)

    @final
    @property
    def labels(self) -> Labels:
        """The number of each sample's class, int64 (N,)."""
        return self._labels

    @final
    @property
    def highest_label(self) -> int:
        return int(self._labels.max(initial=-1))


@final
class Subset(OnDemand):
    """A choice of other samples, in an order of its own: indices (n,)."""

    def __init__(self, whole: Samples, indices: npt.NDArray[np.int64]) -> None:
        check_kind("whole", whole, Samples, "Samples, such as a Split")
        found = np.asarray(indices)
        if (
            found.ndim != 1
            or found.dtype.kind not in "iu"
            or (found.size and not 0 <= found.min() <= found.max() < len(whole))
        ):
            raise DataError(
                f"indices are {shown(indices)}: expected integers from 0 to {len(whole) - 1}, (n,)"
            )
        self.whole = whole
        self.indices = found.astype(np.int64, copy=False)
        self.sample_shape = whole.sample_shape

    def __len__(self) -> int:
        return len(self.indices)

    @cached_property
    def labels(self) -> Labels:
        """The labels of the chosen samples, in their order: (n, ...)."""
        return self.whole.labels[self.indices]

    @property
    def highest_label(self) -> int:
        """A class that no label is above: the greatest of the whole, which is known without reading."""
        return self.whole.highest_label

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        return self.whole.take(self.indices[indices])

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        digest.update(f"{part} subset {len(self.indices)}\n".encode())
        digest.update(self.indices.astype("<i8", copy=False).tobytes())
        self.whole.add_to(digest, part)


def divided(count: int, test_fraction: float, split_seed: int) -> tuple[Indices, Indices]:
    """The indices of a training and of a test split: round(test_fraction × count) of a permutation test."""
    order = np.random.Generator(np.random.PCG64(split_seed)).permutation(count).astype(np.int64, copy=False)
    tests = round(test_fraction * count)
    return np.sort(order[tests:]), np.sort(order[:tests])
