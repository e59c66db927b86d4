"""Dataset: splits of labelled samples to train, validate and test on, checked once, with a fingerprint"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_kind, check_names
from d5ray.errors import DataError
from d5ray.networks.executors.trees import Tree, leaves, mapped, rows, unpacked
from d5ray.training.datasets.numbers import PIXELS, place_of
from d5ray.training.datasets.samples import IGNORED, Labels, Samples, Shape

FLOAT32, INT64 = np.dtype(np.float32), np.dtype(np.int64)
MOST_CLASSES = 10_000_000  # that are named by their numbers


@final
@dataclass(frozen=True, eq=False)
class Split(Samples):
    """Samples in memory, and their labels.

    Args:
        inputs: (N, ...) float32, such as images (N, C, H, W), or int64, such as tokens (N, T); or uint8,
            pixels, which become float32 when they are drawn, see `ScalePixels`. C-contiguous. Or a
            dictionary or a tuple of such arrays, nested to any depth, of equal N.
        labels: (N,) int64, C-contiguous, each sample's class, >= 0; or (N, ...), several a sample; −100 for
            those that a loss ignores; or targets that are no classes, such as boxes, (N, ...) float32. Or
            several of these, as a structured array (N,), see `d5ray.networks.executors.trees`.

    Raises:
        DataError: an array has another type, shape or length, or a label is negative.

    >>> len(Split(np.zeros((5, 1, 8, 8), np.float32), np.zeros(5, np.int64)))
    5
    """

    inputs: Tree
    labels: Labels

    def __repr__(self) -> str:
        named = (*((f"inputs{place}", each) for place, each in leaves(self.inputs)), ("labels", self.labels))
        return f"Split({', '.join(f'{name} {each.shape} {each.dtype}' for name, each in named)})"

    def __post_init__(self) -> None:
        for place, array in leaves(self.inputs):
            _check_array(f"inputs{place}", array, (FLOAT32, INT64, PIXELS))
        for place, array in leaves(unpacked(self.labels)):
            _check_array(f"labels{place}", array, (INT64, FLOAT32), contiguous=not place)
        for place, array in leaves(self.inputs):
            if len(array) != len(self.labels):
                raise DataError(
                    f"found {len(array)} inputs{place} and {len(self.labels)} labels, expected as many of "
                    "one as of the other: give each sample one label"
                )
        if self.labels.dtype == INT64 and self.labels.size and self.labels.min() < 0:
            lowest = np.where(self.labels == IGNORED, 0, self.labels)
            if lowest.min() < 0:
                raise DataError(
                    f"labels{place_of(self.labels, lowest.argmin())} is {lowest.min()}, expected 0 or "
                    f"more: number the classes from 0; {IGNORED} is for labels that the loss ignores"
                )

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def in_memory(self) -> bool:  # type: ignore[override]
        """True if samples are trained on as they lie in memory; pixels are not."""
        return all(array.dtype != PIXELS for _, array in leaves(self.inputs))

    @property
    def sample_shape(self) -> Shape:  # type: ignore[override]
        """The shape of one sample, such as (C, H, W); of a tree of arrays, the tree of theirs."""
        return mapped(lambda array: array.shape[1:], self.inputs)  # type: ignore[no-any-return]

    @cached_property
    def ignores(self) -> bool:
        """True if some labels are those that a loss is to ignore."""
        return bool(self.labels.dtype == INT64 and self.labels.min(initial=0) == IGNORED)

    @property
    def highest_label(self) -> int:
        return int(self.labels.max(initial=-1)) if self.labels.dtype == INT64 else -1

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        return rows(self.inputs, indices), self.labels[indices]

    def part(self, begin: int, end: int) -> tuple[Tree, Labels]:
        """Views of the samples from one to before another."""
        return rows(self.inputs, slice(begin, end)), self.labels[begin:end]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Add name, shape, type and bytes of both arrays, in one byte order, to the fingerprint."""
        arrays = [(f"inputs{place}", array) for place, array in leaves(self.inputs)]
        truths = [(f"labels{place}", array) for place, array in leaves(unpacked(self.labels))]
        for field, array in (*arrays, *truths):
            little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            digest.update(f"{part}.{field} {little.shape} {little.dtype.str}\n".encode())
            digest.update(little.data)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named data set: splits of equal sample shape, and the names of the classes, or their number.

    With a split to validate on, evaluations while the training goes on are on that one, and the test split
    is looked at once, at its end.

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
    validation: Samples | None = None

    if TYPE_CHECKING:  # the constructor takes more than the attributes are

        def __init__(
            self,
            name: str,
            train: Samples,
            test: Samples,
            classes: Iterable[str] | int,
            validation: Samples | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        check_kind("name", self.name, str, "a text")
        for part, split in self.splits.items():
            check_kind(part, split, Samples, "Samples, such as a Split")
        if len(self.train) == 0:
            raise DataError(
                f"data set {self.name!r}: found 0 training samples, expected at least 1: add samples"
            )
        object.__setattr__(self, "classes", class_names(self.classes))
        if self.validation is not None and len(self.validation) == 0:
            raise DataError(
                f"data set {self.name!r}: found 0 samples to validate on, expected at least 1: add some, or "
                "leave the split out"
            )
        for part, split in self.splits.items():
            self._check(part, split)

    def __repr__(self) -> str:
        parts = ", ".join(f"{part}: {len(split)}" for part, split in self.splits.items())
        shape = self.sample_shape
        return f"Dataset({self.name!r}, {parts}, sample_shape={shape}, {len(self.classes)} classes)"

    def _check(self, part: str, split: Samples) -> None:
        """Raise `DataError` for samples of another shape than those to train on, or of no class."""
        if split.sample_shape != self.train.sample_shape:
            raise DataError(
                f"data set {self.name!r}: found training samples of shape {self.train.sample_shape} and "
                f"{part} samples of shape {split.sample_shape}, expected one shape: make them equal"
            )
        if split.highest_label >= len(self.classes) and split.labels.max(initial=-1) >= len(self.classes):
            where = place_of(split.labels, split.labels.argmax())
            raise DataError(
                f"data set {self.name!r}: {part}.labels{where} is {split.labels.max()}, expected less "
                f"than the number of classes, {len(self.classes)}: name every class, or mend the label"
            )

    @property
    def splits(self) -> dict[str, Samples]:
        """The splits that there are, by name: train, test, and validation where there is one."""
        found = {"train": self.train, "test": self.test}
        return found if self.validation is None else found | {"validation": self.validation}

    @property
    def held_out(self) -> Samples:
        """The samples to look at while the training goes on: to validate on, else to test on."""
        return self.splits[self.held_out_name]

    @property
    def held_out_name(self) -> str:
        """The name of that split: validation, else test."""
        return "test" if self.validation is None else "validation"

    @property
    def sample_shape(self) -> Shape:
        """The shape of one sample, such as (C, H, W)."""
        return self.train.sample_shape

    @property
    def tests_at_end(self) -> bool:
        """True if there are samples to test on beside those to validate on, which are for the end."""
        return self.validation is not None and len(self.test) > 0

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over name, shape, dtype and bytes of all arrays: equal data, equal fingerprint.

        Of samples that are not in memory, what their kind says of them enters (see its `add_to`). The names
        of the data set and of the classes do not enter, and the byte order of the machine does not either.
        """
        digest = hashlib.sha256()
        for part, split in self.splits.items():
            split.add_to(digest, part)
        return digest.hexdigest()


def class_names(classes: object) -> tuple[str, ...]:
    """The names of the classes, of which there is given the number, or all; raises `ConfigurationError`.

    >>> class_names(3), class_names(["cat", "dog"])
    (('0', '1', '2'), ('cat', 'dog'))
    """
    if isinstance(classes, (int, np.integer)):
        check_count("classes", classes, high=MOST_CLASSES)
        return tuple(map(str, range(int(classes))))
    return check_names("classes", classes, "a tuple of the classes' names, or their number")


def _check_array(
    name: str, array: object, kinds: tuple[np.dtype[Any], ...], *, contiguous: bool = True
) -> None:
    expected = f"a C-contiguous array (N, ...) of {' or '.join(map(str, kinds))}"
    if not isinstance(array, np.ndarray):
        raise DataError(f"{name}: found {type(array).__name__}, expected {expected}: convert with np.asarray")
    if array.dtype not in kinds or array.ndim < 1 or contiguous > array.flags.c_contiguous:
        order = "C-contiguous" if array.flags.c_contiguous else "not C-contiguous"
        raise DataError(
            f"{name}: found {array.shape} of {array.dtype}, {order}, expected {expected}: "
            f"reshape it and use np.ascontiguousarray(..., dtype=np.{kinds[0]})"
        )
