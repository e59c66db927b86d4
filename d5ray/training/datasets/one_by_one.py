"""Samples read one by one from what holds them, such as a PyTorch `Dataset`, and checked as they are"""

import threading
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from d5ray.identity.canonical import digest
from d5ray.networks.executors.trees import Tree
from d5ray.training.datasets.fields import Fields
from d5ray.training.datasets.sample_form import LOOKED_AT, FormedSamples, Read, SampleForm, guarded
from d5ray.training.datasets.samples import Labels


class OneByOne(FormedSamples):
    """Samples with a number each, of which reading gives one; the first says the shapes and types of all.

    A subclass says how many there are, reads one, and then calls `_begin`. Reading is for one thread at a
    time: what a user's object holds may not bear two.
    """

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def _read(self, index: int) -> Read:
        """Inputs and label of a sample. It may raise anything."""

    def _begin(self, what: str, classes: int) -> None:
        """Learn from the first sample what all are like; raises `DataError`."""
        self.what, self.classes = what, classes
        self._lock = threading.Lock()
        self.form = SampleForm.of(what, self._raw(0)) if len(self) else SampleForm.none()
        self.sample_shape = self.form.sample_shape

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "labels")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._lock = threading.Lock()

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        with self._lock:  # also while what was read is copied
            raw = list(self._read_many(indices.tolist()))
            return self.form.batch(self.what, indices, raw, self.classes)

    @cached_property
    def labels(self) -> Labels:
        """The labels of all samples, for which every one of them is read, at the first use."""
        return self.take(np.arange(len(self)))[1]

    def _looked_at(self) -> Tree:
        """Sixty-four, evenly spread."""
        some = np.unique(np.linspace(0, max(0, len(self) - 1), LOOKED_AT).round().astype(np.int64))
        return self.take(some[: len(self)])

    def _read_many(self, indices: list[int]) -> Iterable[Read]:
        """Inputs and label of each of these samples; raises `DataError`."""
        return map(self._raw, indices)

    def _raw(self, index: int) -> Read:
        return guarded(lambda: self._read(index), f"{self.what}: sample {index}")


@final
class Items(OneByOne):
    """The samples `items[0]` to `items[len(items) - 1]`, each a tuple or a dictionary; PyTorch's map style.

    Its fingerprint is of the class of `items`, with its source where that is the user's own, of the number of
    samples, and of 64 of them; where reading one twice gives two different ones, of the class and the number.

    items: pickled with the data set, and so sent to every agent.
    """

    def __init__(self, items: Any, fields: Fields, classes: int, what: str, *, random: bool = False) -> None:
        self.items, self.fields, self.random = items, fields, random
        self._length = len(items)
        self._begin(what, classes)

    def __len__(self) -> int:
        return self._length

    def _read(self, index: int) -> Read:
        return self.fields.of(self.items[index], f"{self.what}: sample {index}")

    def _read_many(self, indices: list[int]) -> Iterable[Read]:
        many = getattr(self.items, "__getitems__", None)  # PyTorch's protocol, for more at once
        try:
            found = [] if many is None else list(many(indices))
        except Exception:  # which of them it is, reading one by one says
            found = []
        if len(found) != len(indices):
            return super()._read_many(indices)
        named = zip(indices, found, strict=True)
        return [self.fields.of(each, f"{self.what}: sample {index}") for index, each in named]

    def _told(self) -> str:
        return f"items {digest(type(self.items))} {self.fields} {getattr(self.items, 'told', '')}"

    def _looked_at(self) -> Tree:
        return {} if self.random else super()._looked_at()
