"""Sequences of different length, padded to one and masked, so that they are samples of one shape"""

from collections.abc import Mapping
from typing import Any, final

import numpy as np

from d5ray.checks import check_count, check_kind, is_number, shown
from d5ray.errors import ConfigurationError, DataError, nearest
from d5ray.identity.canonical import digest
from d5ray.training.datasets.numbers import as_numpy
from d5ray.training.datasets.sample_form import guarded
from d5ray.training.datasets.samples import Array


@final
class Padded:
    """The samples of a data set by number, dictionaries, whose sequences are padded at their end.

    It has a length and samples by number itself, for `from_torch` and the like, and for another `Padded`,
    which pads those that have another length, as targets to translate into have:
    `Padded(Padded(items, {"input_ids": 0}), {"labels": -100}, mask=None)`.

    Args:
        items: a PyTorch or Hugging Face `Dataset`, or a list, of dictionaries.
        values: the keys of the sequences (T, ...), which have one length in a sample, and what each is padded
            with, such as {"input_ids": 0, "labels": -100}.
        length: to which they are padded; None: that of the longest, for which all are read once.
        mask: the key under which a mask (length,) of 1 for what was there and 0 for padding is added; None:
            none is.
        cut: longer sequences lose their end; else they are an error.

    >>> padded = Padded([{"ids": [5, 6], "labels": 0}, {"ids": [7], "labels": 1}], {"ids": 0})
    >>> padded[1]["ids"], padded[1]["attention_mask"]
    (array([7, 0]), array([1, 0]))
    """

    def __init__(
        self,
        items: Any,
        values: Mapping[str, float],
        length: int | None = None,
        *,
        mask: str | None = "attention_mask",
        cut: bool = False,
    ) -> None:
        check_kind("values", values, Mapping, "a dictionary such as {'input_ids': 0}")
        check_kind("cut", cut, bool, "True or False")
        check_kind("mask", mask, str | None, "a key, or None")
        if not values or not all(isinstance(key, str) and is_number(value) for key, value in values.items()):
            raise ConfigurationError(
                f"values is {shown(values)}: it must say what each sequence is padded with, such as "
                "{'input_ids': 0, 'labels': -100}"
            )
        if not hasattr(items, "__getitem__") or not hasattr(items, "__len__") or isinstance(items, Mapping):
            raise ConfigurationError(
                f"items is {shown(items)}: it must be a data set by number, with __len__ and __getitem__"
            )
        self.items, self.values, self.mask, self.cut = items, dict(values), mask, cut
        if length is None:
            length = max((self._length(index, self._sample(index)) for index in range(len(items))), default=1)
        check_count("length", length)
        self.length = length

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        sample = self._sample(index)
        found = self._length(index, sample)
        if found > self.length and not self.cut:
            raise DataError(
                f"sample {index} has sequences of {found}, expected {self.length} at most: pad to a larger "
                "length, or say cut=True"
            )
        kept = min(found, self.length)
        for key, value in self.values.items():
            sequence = as_numpy(f"{key} of sample {index}", sample[key])[:kept]
            whole: Array = np.full((self.length, *sequence.shape[1:]), value, sequence.dtype)
            whole[:kept] = sequence
            sample[key] = whole
        if self.mask is not None:
            sample[self.mask] = (np.arange(self.length) < kept).astype(np.int64)
        return sample

    @property
    def told(self) -> str:
        """The form of the padding, which enters the fingerprint beside the samples."""
        items = getattr(self.items, "told", digest(type(self.items)))
        return f"padded {items} {self.values} {self.length} {self.mask} {self.cut}"

    def _sample(self, index: int) -> dict[str, Any]:
        sample = guarded(lambda: self.items[index], f"sample {index}")
        if not isinstance(sample, Mapping):
            raise DataError(f"sample {index}: found {type(sample).__name__}, expected a dictionary")
        for key in self.values:
            if key not in sample:
                raise DataError(f"sample {index} has no {key!r}: {nearest(key, map(str, sample))}")
        return dict(sample)

    def _length(self, index: int, sample: Mapping[str, Any]) -> int:
        """The length of a sample's sequences."""
        lengths = {}
        for key in self.values:
            array = as_numpy(f"{key} of sample {index}", sample[key])
            if not array.ndim:
                raise DataError(f"{key} of sample {index}: found one number, expected a sequence (T, ...)")
            lengths[key] = len(array)
        if len(set(lengths.values())) != 1:
            raise DataError(
                f"sample {index} has sequences of {lengths}, expected one length: mend the sample, or pad "
                "those of another length apart, such as Padded(Padded(items, {'input_ids': 0}), "
                "{'labels': -100}, mask=None)"
            )
        return int(next(iter(lengths.values())))
