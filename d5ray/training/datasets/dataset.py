"""What a data set is: a train and a test split of labelled arrays, checked once, with a fingerprint."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from d5ray.errors import DataError


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their labels.

    Args:
        inputs: (N, ...) float32, or int64 for tokens, C-contiguous; images are (N, C, H, W).
        labels: (N,) or (N, ...) int64, C-contiguous, the index of each label's class, >= 0.

    Raises:
        DataError: an array has another type, shape or length, or a label is negative.

    >>> len(Split(np.zeros((5, 1, 8, 8), np.float32), np.zeros(5, np.int64)))
    5
    """

    inputs: npt.NDArray[np.float32] | npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        _check_array("inputs", self.inputs, (np.dtype(np.float32), np.dtype(np.int64)))
        _check_array("labels", self.labels, (np.dtype(np.int64),))
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"found {len(self.inputs)} inputs and {len(self.labels)} labels, expected as many of one as "
                "of the other: give each sample one label"
            )
        if self.labels.size and self.labels.min() < 0:
            at = _place(self.labels, self.labels.argmin())
            raise DataError(
                f"labels{at} is {self.labels.min()}, expected 0 or more: number the classes from 0"
            )

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set: two splits of equal sample shape and the names of the classes.

    The arrays are shared, not copied; who changes them in place changes them for everyone, and the
    cached fingerprint no longer fits.

    Raises:
        DataError: the splits differ in sample shape, there is nothing to train on, or a label has no class.
    """

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise DataError(
                f"data set {self.name!r}: found 0 training samples, expected at least 1: add samples"
            )
        if self.train.inputs.shape[1:] != self.test.inputs.shape[1:]:
            raise DataError(
                f"data set {self.name!r}: found training samples of shape {self.train.inputs.shape[1:]} and "
                f"test samples of shape {self.test.inputs.shape[1:]}, expected one shape: make them equal"
            )
        for part, split in (("train", self.train), ("test", self.test)):
            if split.labels.size and split.labels.max() >= len(self.classes):
                at = _place(split.labels, split.labels.argmax())
                raise DataError(
                    f"data set {self.name!r}: {part}.labels{at} is {split.labels.max()}, expected less than "
                    f"the number of classes, {len(self.classes)}: name every class, or mend the label"
                )

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample, such as (C, H, W)."""
        return self.train.inputs.shape[1:]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over name, shape, dtype and bytes of the four arrays: equal data, equal fingerprint.

        The names of the data set and of the classes do not enter, and the byte order of the machine
        does not either.
        """
        digest = hashlib.sha256()
        for part, split in (("train", self.train), ("test", self.test)):
            for field, array in (("inputs", split.inputs), ("labels", split.labels)):
                little = array.astype(array.dtype.newbyteorder("<"), copy=False)
                digest.update(f"{part}.{field} {little.shape} {little.dtype.str}\n".encode())
                digest.update(little.data)
        return digest.hexdigest()


def _place(labels: npt.NDArray[np.int64], flat: np.intp) -> list[int]:
    """The indices of a label whose place in the flat array is known."""
    return [int(index) for index in np.unravel_index(flat, labels.shape)]


def _check_array(name: str, array: object, dtypes: tuple[np.dtype[np.generic], ...]) -> None:
    kinds = " or ".join(map(str, dtypes))
    expected = f"a C-contiguous array (N, ...) of {kinds}"
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name}: found {type(array).__name__}, expected {expected}: convert with np.asarray")
    if array.dtype not in dtypes or array.ndim == 0 or not array.flags.c_contiguous:
        order = "C-contiguous" if array.flags.c_contiguous else "not C-contiguous"
        raise DataError(
            f"{name}: found {array.shape} of {array.dtype}, {order}, expected {expected}: "
            f"reshape it and use np.ascontiguousarray(..., dtype=np.{dtypes[0]})"
        )
