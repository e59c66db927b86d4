"""Streams: samples that come one after the other, of which one goes back only by beginning anew"""

import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from copy import copy
from functools import partial
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import DataError
from d5ray.identity.canonical import digest
from d5ray.networks.executors.trees import Tree, leaves, mapped, rows
from d5ray.training.datasets.dataset import MOST_CLASSES, Split
from d5ray.training.datasets.fields import Fields
from d5ray.training.datasets.sample_form import LOOKED_AT, FormedSamples, SampleForm, guarded
from d5ray.training.datasets.samples import Labels

MOST_BYTES: Final = 1 << 30  # of a stream that is read into memory
MOST_SAMPLES: Final = 1 << 18
AT_ONCE: Final = 1024  # samples that are put together at a time


class SampleStream(FormedSamples):
    """Samples that come in an order of their own; an epoch is as many of them as it has samples.

    Sample i of epoch e is the one at place e × length + i. It needs `OrderedSampler`, and agents share it as
    they share all samples: each takes its own places.
    """

    in_order = True

    @property
    def labels(self) -> Labels:
        """The labels of the first epoch's samples (N, ...), gathered anew at every use."""
        return self.take(np.arange(len(self)))[1]

    @final
    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        return self.take_in(0, indices)

    @abstractmethod
    def take_in(self, epoch: int, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]: ...

    def _looked_at(self) -> Tree:
        """The first ones, by a reader of its own."""
        return copy(self).take(np.arange(min(LOOKED_AT, len(self))))


@final
class Iterated(SampleStream):
    """The samples of an object that is iterated over, such as a PyTorch `IterableDataset`; again at its end.

    Every agent iterates over the whole of it and leaves out the places of the others, so that their shares
    add up. It goes on in the middle by iterating up to there; to the last bit, if the object gives the same
    again. An epoch has every sample once where `samples` is the number that the object has.

    Its fingerprint is of the object's class, with its source where that is the user's own, of `samples`, and
    of the first 64 of them.
    """

    def __init__(self, items: Iterable[Any], fields: Fields, samples: int, classes: int, what: str) -> None:
        check_count("samples", samples)
        self.items, self.fields, self.samples, self.classes, self.what = items, fields, samples, classes, what
        self._rewind()
        self.form = SampleForm.of(what, self._next(0))
        self.sample_shape = self.form.sample_shape
        self._rewind()

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, Any]:
        own = ("_iterator", "_place", "_lock")
        return {name: value for name, value in vars(self).items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._rewind()

    def opened(self) -> "Iterated":
        return copy(self)

    def take_in(self, epoch: int, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        form = self.form
        inputs, labels = form.empty(len(indices))
        with self._lock:
            for at in np.argsort(indices, kind="stable").tolist():
                place = epoch * self.samples + int(indices[at])
                rooms = rows(inputs, slice(at, at + 1)), labels[at : at + 1]
                form.fill(self.what, [place], [self._at(place)], *rooms)  # before it uses its arrays again
        form.check(self.what, indices + epoch * self.samples, inputs, labels, self.classes)
        return inputs, labels

    def _told(self) -> str:
        return f"stream {digest(type(self.items))} {self.fields}"

    def _rewind(self) -> None:
        self._lock = threading.Lock()
        self._iterator: Iterator[Any] | None = None
        self._place = 0  # of what comes next

    def _at(self, place: int) -> Any:
        if place < self._place - 1 or (place == self._place - 1 and not hasattr(self, "_last")):
            self._iterator, self._place = None, 0
        while self._place <= place:
            self._last = self._next(self._place)
            self._place += 1
        return self._last

    def _next(self, place: int) -> Any:
        """Inputs and label of the next sample, at this place."""
        called = f"{self.what}: sample {place}"
        for _ in range(2):
            if self._iterator is None:
                self._iterator = guarded(lambda: iter(self.items), f"{self.what}: its samples")
            item = guarded(partial(next, self._iterator, END), called)
            if item is not END:
                return self.fields.of(item, called)
            self._iterator = None
        raise DataError(f"{self.what}: found no sample, expected at least one: give one that is not empty")


END: Final = object()


def read_whole(items: Iterable[Any], fields: Fields, what: str) -> Split:
    """All samples of what is iterated over, in memory; raises `DataError` for what has no end in sight."""
    iterator = guarded(lambda: iter(items), f"{what}: its samples")
    form: SampleForm | None = None
    parts: list[tuple[Tree, Labels]] = []
    count = total = 0
    while True:
        raw: list[Any] = []
        while len(raw) < AT_ONCE:
            item = guarded(partial(next, iterator, END), f"{what}: sample {count + len(raw)}")
            if item is END:
                break
            raw.append(fields.of(item, f"{what}: sample {count + len(raw)}"))
        if not raw:
            break
        form = form or SampleForm.of(what, raw[0])
        inputs, labels = form.batch(what, range(count, count + len(raw)), raw, MOST_CLASSES)
        parts.append((inputs, labels))
        count += len(raw)
        total += labels.nbytes + sum(array.nbytes for _, array in leaves(inputs))
        if total > MOST_BYTES or count > MOST_SAMPLES:
            raise DataError(
                f"{what}: found more than {count:,} samples, {total >> 20} MiB, without an end: say how many "
                "make an epoch, such as samples=100_000; it is then read as it is needed, in its own order"
            )
    if not parts:
        raise DataError(f"{what}: found no sample, expected at least one: give one that is not empty")
    whole = mapped(lambda *each: np.concatenate(each), *(inputs for inputs, _ in parts))
    return Split(whole, np.concatenate([labels for _, labels in parts]))
