"""Deals the blocks that Ray Data streams: which block has which rows of an epoch, for every agent"""

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, final

from d5ray.errors import DataError, first_line

OF_THE_USER: Final = re.compile(r"(?P<kind>[A-Za-z]\w*(Error|Exception)): ")
Piece = tuple[Any, int, int]  # a reference to a block, and the rows [begin, end) of it


class BlockFeed:
    """Runs a Ray Data set once an epoch, and says where its rows are; agents fetch the blocks themselves.

    Rows are counted in the order of the data set, so that agents share an epoch as they share all data: every
    row once, whatever the remainder. Ray Data's own `streaming_split` either drops rows or gives shares whose
    sizes nobody knows before. A block is let go when all readers are past it; one that is asked for again is
    had by running the data set anew.

    dataset: pickled; rows: that it has. As a plain class it works on whatever has
    `iter_internal_ref_bundles()`.
    """

    def __init__(self, dataset: Any, rows: int, what: str) -> None:
        self._dataset, self._rows, self._what = dataset, rows, what
        dataset.context.execution_options.preserve_order = True
        self._passes: dict[int, _Pass] = {}
        self._readers: dict[str, tuple[int, int]] = {}  # the epoch and the row that each is at

    def register(self, reader: str) -> None:
        """Keep all blocks from now on until this reader is past them."""
        self._readers[reader] = max(self._readers.values(), default=(0, 0))

    def pieces(self, reader: str, epoch: int, begin: int, end: int) -> list[Piece]:
        """The blocks with the rows [begin, end) of an epoch, in their order; raises `DataError`."""
        if reader in self._readers:
            self._readers[reader] = (epoch, begin)
            self._let_go()
        found = self._passes.get(epoch)
        if found is None or begin < found.begin:
            found = self._passes[epoch] = _Pass(self._dataset, self._rows, f"{self._what}, epoch {epoch}")
        return found.pieces(begin, end)

    @property
    def kept(self) -> int:
        """The number of blocks that are kept now."""
        return sum(len(each.blocks) for each in self._passes.values())

    def _let_go(self) -> None:
        latest, _ = max(self._readers.values())
        places = [place for place in self._readers.values() if place[0] >= latest - 1]  # others have ended
        epoch, row = min(places)
        for number in [number for number in self._passes if number < epoch]:
            del self._passes[number]
        if epoch in self._passes:
            self._passes[epoch].let_go(row)


@final
class _Pass:
    """One execution of the data set, as far as it was asked for."""

    def __init__(self, dataset: Any, rows: int, what: str) -> None:
        self.blocks: deque[tuple[int, int, Any]] = deque()  # first row, rows, reference
        self.begin = self._end = 0
        self._rows, self._what = rows, what
        self._failed: DataError | None = None  # what ended it, for all who ask
        self._bundles: Iterator[Any] = _running(dataset, what)

    def pieces(self, begin: int, end: int) -> list[Piece]:
        while self._end < end or (end == self._rows and self._end == end):
            bundle = self._next()
            if bundle is None:
                break
            for reference, rows in _blocks(bundle):
                self.blocks.append((self._end, rows, reference))
                self._end += rows
        if self._end < end or self._end > self._rows:
            raise DataError(
                f"{self._what}: found {'fewer' if self._end < end else 'more'} than the {self._rows} rows "
                "that there were before, expected as many in every epoch: let what filters or samples them "
                "draw by a seed"
            )
        return [
            (reference, max(begin, first) - first, min(end, first + rows) - first)
            for first, rows, reference in self.blocks
            if first < end and first + rows > begin
        ]

    def _next(self) -> Any:
        """The next blocks; None at the end. Raises `DataError`, again and again."""
        if self._failed is None:
            try:
                return next(self._bundles, None)
            except DataError as error:
                self._failed = error
        raise self._failed

    def let_go(self, row: int) -> None:
        """Let go of the blocks before a row."""
        while self.blocks and sum(self.blocks[0][:2]) <= row:
            first, rows, _ = self.blocks.popleft()
            self.begin = first + rows


def _running(dataset: Any, what: str) -> Iterator[Any]:
    try:
        yield from dataset.iter_internal_ref_bundles()
    except Exception as error:  # what the user's own functions raise, and what Ray makes of it
        raise DataError(
            f"{what}: its rows cannot be had: {told(error)}: mend what reads or maps them"
        ) from None


def _blocks(bundle: Any) -> Iterator[tuple[Any, int]]:
    """Reference and rows of each block; up to Ray 2.59 an entry is a pair."""
    for entry in bundle.blocks:
        reference, metadata = entry if isinstance(entry, tuple) else (entry.ref, entry.metadata)
        if metadata.num_rows:
            yield reference, metadata.num_rows


def told(error: BaseException) -> str:
    """The user's own error, in a line: Ray Data keeps it in the text of the one that it raises."""
    inner = getattr(error, "cause", None) or error
    for line in str(error).splitlines():
        if (found := OF_THE_USER.match(line.strip())) and found["kind"] != "UserCodeException":
            return line.strip()
    return f"{type(inner).__name__}: {first_line(inner)}"
