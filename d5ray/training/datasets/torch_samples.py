"""The samples of a PyTorch `Dataset`, or of any object that has a length and samples by number"""

from collections.abc import Iterable
from typing import Any, final

from d5ray.identity.canonical import digest
from d5ray.networks.executors.trees import Tree
from d5ray.training.datasets.fields import Fields
from d5ray.training.datasets.one_by_one import OneByOne
from d5ray.training.datasets.sample_form import Read


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
