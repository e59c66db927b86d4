"""Dataset: a train and a test split of labelled arrays, checked once, with a fingerprint"""

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_kind, check_names
from d5ray.errors import DataError
from d5ray.training.datasets.samples import Labels, Samples, Shape

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)


@final
@dataclass(frozen=True, eq=False)
class Split(Samples):
    """Samples in memory, and their labels.

    Args:
        inputs: (N, ...) float32, such as images (N, C, H, W), or int64, such as tokens (N, T); C-contiguous.
        labels: (N,) int64, C-contiguous, each sample's class, >= 0; or (N, ...), several a sample; or
            targets that are no classes, such as boxes, (N, ...) float32.

    Raises:
        DataError: an array has another type, shape or length, or a label is negative.

    >>> len(Split(np.zeros((5, 1, 8, 8), np.float32), np.zeros(5, np.int64)))
    5
    """

    in_memory = True
    inputs: npt.NDArray[Any]
    labels: Labels

    def __post_init__(self) -> None:
        _check_array("inputs", self.inputs, (FLOAT32, INT64))
        _check_array("labels", self.labels, (INT64, FLOAT32))
        if len(self.inputs) != len(self.labels):
            raise DataError(
                f"found {len(self.inputs)} inputs and {len(self.labels)} labels, expected as many of one as "
                "of the other: give each sample one label"
            )
        if self.labels.dtype == INT64 and self.labels.size and self.labels.min() < 0:
            raise DataError(
                f"labels{_place(self.labels, self.labels.argmin())} is {self.labels.min()}, expected 0 or "
                "more: number the classes from 0"
            )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def sample_shape(self) -> Shape:  # type: ignore[override]
        """The shape of one sample, such as (C, H, W)."""
        return self.inputs.shape[1:]

    @property
    def highest_label(self) -> int:
        return int(self.labels.max(initial=-1)) if self.labels.dtype == INT64 else -1

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], Labels]:
        return self.inputs[indices], self.labels[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Add name, shape, type and bytes of both arrays, in one byte order, to the fingerprint."""
        for field, array in (("inputs", self.inputs), ("labels", self.labels)):
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            digest.update(f"{part}.{field} {little.shape} {little.dtype.str}\n".encode())
            digest.update(little.data)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set: two splits of equal sample shape and the names of the classes.

    A split in memory is a `Split`; others read their samples from files, or make them. Its arrays are
    shared, not copied; who changes them in place changes them for everyone, and the cached fingerprint no
    longer fits.

    Raises:
        DataError: the splits differ in sample shape, there is nothing to train on, or a label has no class.
    """

    name: str
    train: Samples
    test: Samples
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_kind("name", self.name, str, "a text")
        for part in ("train", "test"):
            check_kind(part, getattr(self, part), Samples, "Samples, such as a Split")
        if len(self.train) == 0:
            raise DataError(
                f"data set {self.name!r}: found 0 training samples, expected at least 1: add samples"
            )
        object.__setattr__(
            self, "classes", check_names("classes", self.classes, "a tuple of the classes' names")
        )
        if self.train.sample_shape != self.test.sample_shape:
            raise DataError(
                f"data set {self.name!r}: found training samples of shape {self.train.sample_shape} and "
                f"test samples of shape {self.test.sample_shape}, expected one shape: make them equal"
            )
        for part, split in (("train", self.train), ("test", self.test)):
            if split.highest_label >= len(self.classes):
                where = _place(split.labels, split.labels.argmax())
                raise DataError(
                    f"data set {self.name!r}: {part}.labels{where} is {split.highest_label}, expected less "
                    f"than the number of classes, {len(self.classes)}: name every class, or mend the label"
                )

    @property
    def sample_shape(self) -> Shape:
        """The shape of one sample, such as (C, H, W)."""
        return self.train.sample_shape

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over name, shape, dtype and bytes of the four arrays: equal data, equal fingerprint.

        Of samples that are not in memory, what their kind says of them enters (see its `add_to`). The names
        of the data set and of the classes do not enter, and the byte order of the machine does not either.
        """
        digest = hashlib.sha256()
        self.train.add_to(digest, "train")
        self.test.add_to(digest, "test")
        return digest.hexdigest()


def _place(array: npt.NDArray[Any], flat: Any) -> str:
    """`[3]` or `[3, 5]`, for the flat-th number of an array."""
    return str([int(at) for at in np.unravel_index(int(flat), array.shape)])


def _check_array(name: str, array: object, kinds: tuple[np.dtype[Any], ...]) -> None:
    expected = f"a C-contiguous array (N, ...) of {' or '.join(map(str, kinds))}"
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name}: found {type(array).__name__}, expected {expected}: convert with np.asarray")
    if array.dtype not in kinds or array.ndim < 1 or not array.flags.c_contiguous:
        order = "C-contiguous" if array.flags.c_contiguous else "not C-contiguous"
        raise DataError(
            f"{name}: found {array.shape} of {array.dtype}, {order}, expected {expected}: "
            f"reshape it and use np.ascontiguousarray(..., dtype=np.{kinds[0]})"
        )
