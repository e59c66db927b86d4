"""Samples that are read one by one from what holds them, and checked as they are"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from d5ray.networks.executors.trees import Tree
from d5ray.training.datasets.sample_form import LOOKED_AT, FormedSamples, Read, SampleForm, guarded
from d5ray.training.datasets.samples import Labels, OnDemand


class OneByOne(FormedSamples, OnDemand, ABC):
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
        form = self.form
        inputs, labels = form.empty(len(indices))
        with self._lock:
            raw = list(self._read_many(indices.tolist()))
            if not form.put_all(raw, inputs, labels):
                for at, (index, each) in enumerate(zip(indices.tolist(), raw, strict=True)):
                    form.put(self.what, index, each, at, inputs, labels)
        form.check(self.what, indices, inputs, labels, self.classes)
        return inputs, labels

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
