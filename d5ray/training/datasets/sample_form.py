"""The shape and the type that all samples have which are read one by one, and a sample put into a batch"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any, Final, TypeVar, final

import numpy as np

from d5ray.errors import D5Error, DataError, first_line
from d5ray.networks.executors.trees import Tree, leaves, mapped, packed_type, unpacked
from d5ray.training.datasets.numbers import BROAD, PIXELS, as_numpy, broad, check_labels, first_not_finite
from d5ray.training.datasets.samples import Array, Labels, OnDemand, Shape

Read = tuple[Any, Any]  # inputs and label of one sample, as whatever holds numbers
Numbers = Sequence[int] | Array  # (n,) of samples
T = TypeVar("T")
LOOKED_AT: Final = 64  # samples that enter a fingerprint


@final
@dataclass(frozen=True)
class Leaf:
    """The shape and the type of an array of a sample."""

    shape: Shape
    dtype: np.dtype[Any]

    def __repr__(self) -> str:
        return f"{self.shape} {self.dtype}"

    @classmethod
    def of(cls, called: str, value: Any, *, pixels: bool) -> "Leaf":
        """The shape and type that this value has; uint8 of at least one axis may be pixels."""
        found = _as_label(as_numpy(called, value)) if not pixels else as_numpy(called, value)
        kept = pixels and found.dtype == PIXELS and found.ndim > 0
        return cls(found.shape, PIXELS if kept else broad(called, found))

    def empty(self, count: int) -> Array:
        """Room for that many: (n, ...)."""
        return np.empty((count, *self.shape), self.dtype)

    def fitted(self, called: str, value: Any, *, label: bool) -> Array:
        """A value as an array of this form; raises `DataError` where it does not fit."""
        found = as_numpy(called, value)
        if found.dtype == self.dtype and found.shape == self.shape:
            return found
        return fitted(called, _as_label(found) if label else found, self.shape, self.dtype)


@final
@dataclass(frozen=True)
class SampleForm:
    """The form of inputs and of the label, each a `Leaf` or a tree of them, which all samples have."""

    inputs: Tree
    label: Tree

    def __repr__(self) -> str:
        return f"{self.inputs} {self.label}"

    @classmethod
    def of(cls, what: str, raw: Read) -> "SampleForm":
        """The form that this sample has, the first one of these; raises `DataError` for what is no sample."""

        def formed(part: str, tree: Tree, *, pixels: bool) -> Tree:
            found = leaves(tree)
            made = iter(
                [Leaf.of(f"{what}: {part}{at} of sample 0", each, pixels=pixels) for at, each in found]
            )
            return mapped(lambda _: next(made), tree)

        return cls(formed("inputs", raw[0], pixels=True), formed("label", raw[1], pixels=False))

    @classmethod
    def none(cls) -> "SampleForm":
        """The form where there is no sample."""
        return cls(Leaf((), BROAD["f"]), Leaf((), BROAD["i"]))

    @property
    def sample_shape(self) -> Shape:
        """The shape of a sample, or the tree of the shapes of its arrays."""
        return mapped(lambda leaf: leaf.shape, self.inputs)  # type: ignore[no-any-return]

    @property
    def label_type(self) -> np.dtype[Any]:
        """int64 of classes, float32 of other targets; of a tree of labels that of its structured array."""
        if isinstance(self.label, Leaf):
            return self.label.dtype
        try:
            return packed_type(mapped(lambda leaf: np.dtype((leaf.dtype, leaf.shape)), self.label))
        except TypeError as error:
            raise DataError(f"label: {error}: give them others") from error

    def empty(self, count: int) -> tuple[Tree, Labels]:
        """Room for that many samples: inputs (n, ...) and labels (n, ...)."""
        one = isinstance(self.label, Leaf)
        labels = self.label.empty(count) if one else np.empty(count, self.label_type)
        return mapped(lambda leaf: leaf.empty(count), self.inputs), labels

    def fill(self, what: str, numbers: Numbers, raw: Sequence[Read], inputs: Tree, labels: Labels) -> None:
        """Write samples into the rooms for as many; raises `DataError` with the number of a wrong one."""
        _fill(self.inputs, f"{what}: inputs", numbers, [each[0] for each in raw], inputs)
        _fill(self.label, f"{what}: label", numbers, [each[1] for each in raw], unpacked(labels), label=True)

    def batch(self, what: str, numbers: Numbers, raw: Sequence[Read], classes: int) -> tuple[Tree, Labels]:
        """Samples as inputs (n, ...) and labels (n, ...); raises `DataError` with a number."""
        inputs, labels = self.empty(len(raw))
        self.fill(what, numbers, raw, inputs, labels)
        self.check(what, numbers, inputs, labels, classes)
        return inputs, labels

    def check(self, what: str, numbers: Numbers, inputs: Tree, labels: Labels, classes: int) -> None:
        """Raise `DataError` for numbers that are not finite, and for labels without a class."""
        arrays = [(f"inputs{place}", array) for place, array in leaves(inputs)]
        truths = [(f"label{place}", array) for place, array in leaves(unpacked(labels))]
        for part, array in (*arrays, *truths):
            if array.dtype.kind == "f" and (wrong := first_not_finite(array)) is not None:
                at, *inner = np.unravel_index(wrong, array.shape)
                place = str([int(each) for each in inner]) if inner else ""
                raise DataError(
                    f"{what}: {part}{place} of sample {numbers[int(at)]} is {array.reshape(-1)[wrong]}, "
                    "expected a finite number that float32 can hold: fill, mend or leave out such samples"
                )
        check_labels(f"{what}:", labels, classes, numbers)


class FormedSamples(OnDemand):
    """Samples that are read as they are needed, of which the first one says the shapes and types of all."""

    what: str  # holds them, for errors
    form: SampleForm
    classes: int

    @abstractmethod
    def _told(self) -> str:
        """What samples are made from, for the fingerprint: equal in every process and on every machine."""

    @abstractmethod
    def _looked_at(self) -> Tree:
        """The samples that enter the fingerprint."""

    @property
    def highest_label(self) -> int:
        return self.classes - 1 if len(self) and self.form.label_type == BROAD["i"] else -1

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Add what the samples come from, how many they are, and the bytes of some."""
        digest.update(f"{part} {self._told()} {len(self)} {self.form}\n".encode())
        for _, array in leaves(self._looked_at()):
            digest.update(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())


def _fill(
    form: Tree, called: str, numbers: Numbers, raw: list[Tree], rooms: Tree, *, label: bool = False
) -> None:
    """Write the inputs of samples, or their labels, into the rooms (n, ...) of their parts."""
    if raw and isinstance(form, Leaf) and _stacked(raw, rooms):
        return
    expected, given = dict(leaves(form)), [dict(leaves(each)) for each in raw]
    for number, each in zip(numbers, given, strict=True):
        if each.keys() != expected.keys():
            found, wanted = (", ".join(parts) or "one array" for parts in (each, expected))
            raise DataError(
                f"{called} of sample {number}: found {found}, expected {wanted} as of sample 0: give all "
                "samples the same parts"
            )
    for place, room in leaves(rooms) if raw else ():
        values = [each[place] for each in given]
        if not _stacked(values, room):
            for at, (number, value) in enumerate(zip(numbers, values, strict=True)):
                said = f"{called}{place} of sample {number}"
                room[at] = expected[place].fitted(said, value, label=label)


def _stacked(values: list[Any], room: Array) -> bool:
    """Put tensors, arrays or numbers side by side into the room (n, ...); False where one is not like it."""
    try:
        if hasattr(values[0], "detach"):  # of PyTorch, in host memory
            values = [each.detach().numpy() for each in values]
        if isinstance(values[0], (np.ndarray, np.generic)):
            np.stack(values, out=room, casting="no")
            return True
        found = np.array(values) if all(type(each) in (int, float) for each in values) else None
        if found is None or found.dtype != room.dtype or found.shape != room.shape:
            return False
        room[...] = found
        return True
    except (AttributeError, TypeError, ValueError, RuntimeError):  # of which `Leaf.fitted` tells
        return False


def fitted(called: str, found: Array, shape: Shape, kind: np.dtype[Any]) -> Array:
    """Numbers of a sample in the type of the first one; raises `DataError` where shape or type differ."""
    if found.shape != shape:
        raise DataError(
            f"{called}: found the shape {found.shape}, expected {shape} as of sample 0: pad or cut "
            "all samples to one shape"
        )
    wanted = "uint8" if kind == PIXELS else "integers" if kind == BROAD["i"] else ""
    if wanted and kind not in (found.dtype, broad(called, found)):
        raise DataError(
            f"{called}: found {found.dtype}, expected {wanted} as of sample 0: give all in one type"
        )
    with np.errstate(over="ignore"):  # what is not finite then is told
        return found.astype(kind)


def guarded(read: Callable[[], T], called: str) -> T:
    """The result of a user's function; what it raises as a `DataError` that says where."""
    try:
        return read()
    except D5Error:
        raise
    except (Exception, SystemExit) as error:
        steps = extract_tb(error.__traceback__)
        last = f", in {Path(steps[-1].filename).name}, line {steps[-1].lineno}" if len(steps) > 1 else ""
        raise DataError(
            f"{called} cannot be read: {type(error).__name__}: {first_line(error)}{last}: mend the sample, "
            "or leave it out"
        ) from error


def _as_label(found: Array) -> Array:
    return found.view(np.uint8) if found.dtype == bool else found
