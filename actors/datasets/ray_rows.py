"""The rows of a Ray Data set as samples, streamed to the agents"""

import uuid
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

from d5ray.actors.calls import ActorLate, get
from d5ray.errors import D5Error, DataError, nearest
from d5ray.networks.executors.trees import Tree, leaves, rows
from d5ray.training.datasets.sample_form import SampleForm, fitted
from d5ray.training.datasets.samples import Array, Labels
from d5ray.training.datasets.stream import SampleStream

SECONDS: Final = 180.0  # for Ray Data to make the next rows, its workers to start among them
KEPT: Final = 2  # blocks that an agent keeps, besides those of the rows that it is asked for


@final
@dataclass(frozen=True)
class Columns:
    """The columns of a row: one with its inputs, or several, and its labels.

    Several columns of numbers make an array (columns,), others a dictionary of what is in each.
    """

    inputs: str | tuple[str, ...]
    labels: str

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return (*((self.inputs,) if isinstance(self.inputs, str) else self.inputs), self.labels)

    def of(self, block: Any, begin: int, end: int) -> tuple[Tree, Array]:
        """Inputs (n, ...) and labels (n, ...) of some rows of a block."""
        from ray.data.block import BlockAccessor  # noqa: PLC0415 - it takes a second to import

        rows = BlockAccessor.for_block(BlockAccessor.for_block(block).slice(begin, end, copy=False))
        return self.parts(rows.to_numpy(list(self.names)))

    def parts(self, found: Mapping[str, Array]) -> tuple[Tree, Array]:
        """Inputs (n, ...) and labels (n, ...) of rows whose columns these are."""
        if isinstance(self.inputs, str):
            return found[self.inputs], found[self.labels]
        inputs = {name: found[name] for name in self.inputs}
        if any(each.ndim > 1 or each.dtype == object for each in inputs.values()):
            return inputs, found[self.labels]
        return np.stack(list(inputs.values()), axis=1), found[self.labels]


@final
class RayRows(SampleStream):
    """The rows of a Ray Data set in its order, which each epoch runs anew; see `BlockFeed`.

    Where the data set shuffles by itself, an epoch goes on in the middle to the last bit only if it does so
    by a seed. Its fingerprint is of the schema, the number of rows, and the first 64 of them.
    """

    def __init__(
        self, feed: Any, columns: Columns, samples: int, classes: int, what: str, schema: str
    ) -> None:
        self.feed, self.columns, self.samples, self.classes = feed, columns, samples, classes
        self.what, self.schema = what, schema
        self._reader = ""
        self._blocks: dict[Any, Any] = {}
        inputs, labels = self._rows(0, 0, 1)[0]
        self.form = SampleForm.of(what, (rows(inputs, 0), labels[0]))
        self.sample_shape = self.form.sample_shape

    def __len__(self) -> int:
        return self.samples

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_blocks": {}}

    def opened(self) -> "RayRows":
        mine = copy(self)
        mine._reader, mine._blocks = uuid.uuid4().hex, {}
        get([self.feed.register.remote(mine._reader)], SECONDS, "take note of a reader")
        return mine

    def take_in(self, epoch: int, indices: npt.NDArray[np.int64]) -> tuple[Tree, Labels]:
        form = self.form
        if not len(indices):
            return form.empty(0)
        begin, end = int(indices.min()), int(indices.max()) + 1
        all_inputs, all_labels = form.empty(end - begin)
        at = 0
        for some_inputs, some_labels in self._rows(epoch, begin, end):
            here = slice(at, at + len(some_labels))
            self._put(begin + at, some_inputs, some_labels, rows(all_inputs, here), all_labels[here])
            at = here.stop
        inputs, labels = rows(all_inputs, indices - begin), all_labels[indices - begin]
        form.check(self.what, indices, inputs, labels, self.classes)
        return inputs, labels

    def _told(self) -> str:
        return f"ray {self.schema} {self.columns}"

    def _put(self, first: int, given: Tree, truth: Array, inputs: Tree, labels: Labels) -> None:
        """Write rows (n, ...) into their places; raises `DataError` with the number of a wrong one."""
        arrays = [(f"inputs{place}", each) for place, each in leaves(given)]
        rooms = [each for _, each in leaves(inputs)]
        if any(each.dtype == object for each in (truth, *(each for _, each in arrays))):
            raw = [(rows(given, at), truth[at]) for at in range(len(truth))]
            self.form.fill(self.what, range(first, first + len(raw)), raw, inputs, labels)
            return
        for (part, found), room in zip((*arrays, ("label", truth)), (*rooms, labels), strict=True):
            called = f"{self.what}: {part} of sample {first}"
            if found.shape != room.shape:
                found = fitted(called, found[0], room.shape[1:], room.dtype)
            room[...] = fitted(called, found, room.shape, room.dtype)

    def _rows(self, epoch: int, begin: int, end: int) -> list[tuple[Tree, Array]]:
        """The rows [begin, end) of an epoch, block by block."""
        try:
            (pieces,) = get(
                [self.feed.pieces.remote(self._reader, epoch, begin, end)], SECONDS, "give its rows"
            )
        except ActorLate:
            raise DataError(
                f"{self.what}: Ray Data gave no rows within {SECONDS:g} s: its tasks need CPUs beside those "
                "of the agents: ray.init(num_cpus=…) with more, fewer agents, or a smaller cpus_per_agent"
            ) from None
        for kept in [kept for kept in self._blocks if kept not in {each for each, _, _ in pieces}][:-KEPT]:
            del self._blocks[kept]
        missing = list(dict.fromkeys(each for each, _, _ in pieces if each not in self._blocks))
        self._blocks |= zip(missing, get(missing, SECONDS, "send a block of rows"), strict=True)
        try:
            return [self.columns.of(self._blocks[each], first, last) for each, first, last in pieces]
        except D5Error:
            raise
        except Exception as error:
            raise DataError(f"{self.what}: rows {begin} to {end - 1} are no arrays: {error}") from error


def check_columns(what: str, columns: Columns, names: list[str]) -> None:
    """Raise `DataError` for a column that there is not."""
    for name in columns.names:
        if name not in names:
            raise DataError(f"{what} has no column {name!r}: {nearest(name, names)}")


def is_ray_data(given: object) -> bool:
    """True for a data set of Ray Data."""
    module = "ray.data.dataset"
    return any((kind.__module__, kind.__name__) == (module, "Dataset") for kind in type(given).__mro__)
