"""Claims about the feed of blocks: which rows lie where, what is kept, and epochs of another length"""

from collections.abc import Iterator
from typing import Any

import pytest

from d5ray.actors.datasets.block_feed import BlockFeed
from d5ray.errors import DataError


class Bundles:
    """What a `BlockFeed` sees of a data set: blocks with a number of rows, and how often it was run."""

    class context:
        class execution_options:
            preserve_order = False

    def __init__(self, *sizes: int) -> None:
        self.sizes, self.runs = sizes, 0

    def iter_internal_ref_bundles(self) -> Iterator[Any]:
        self.runs += 1
        for number, size in enumerate(self.sizes):
            metadata = type("Metadata", (), {"num_rows": size})
            yield type("Bundle", (), {"blocks": [(f"block {number}", metadata)]})


def test_blocks_are_let_go_behind_the_last_reader() -> None:
    """Kept while a reader may ask for them, gone when all are past; asked again, the data set runs anew."""
    bundles = Bundles(4, 4, 0, 4)
    feed = BlockFeed(bundles, 12, "rows")
    feed.register("a")
    feed.register("b")
    assert feed.pieces("a", 0, 2, 6) == [("block 0", 2, 4), ("block 1", 0, 2)]
    assert feed.pieces("a", 0, 9, 12) == [("block 3", 1, 4)]
    assert feed.kept == 3
    assert feed.pieces("b", 0, 8, 9) == [("block 3", 0, 1)]
    assert feed.kept == 1 and bundles.runs == 1
    assert feed.pieces("b", 0, 0, 1) == [("block 0", 0, 1)]
    assert bundles.runs == 2
    assert feed.pieces("a", 1, 0, 12) == [("block 0", 0, 4), ("block 1", 0, 4), ("block 3", 0, 4)]
    feed.pieces("b", 1, 8, 12)
    assert bundles.runs == 3
    for epoch in (2, 3):  # the other one has ended
        feed.pieces("b", epoch, 0, 12)
    assert feed.kept == 3 and bundles.runs == 5


def test_all_who_ask_hear_what_ended_an_epoch() -> None:
    """The first reader is told of the mistake, and so are the others."""

    class Failing(Bundles):
        def iter_internal_ref_bundles(self) -> Iterator[Any]:
            yield from super().iter_internal_ref_bundles()
            raise ValueError("a bad row")

    feed = BlockFeed(Failing(4, 4), 12, "rows")
    for reader in "ab":
        with pytest.raises(DataError, match="its rows cannot be had: ValueError: a bad row"):
            feed.pieces(reader, 0, 8, 12)
    assert feed.pieces("a", 0, 0, 3) == [("block 0", 0, 3)]


@pytest.mark.parametrize(("sizes", "found"), [((4, 4), "fewer"), ((4, 4, 5), "more")])
def test_an_epoch_of_another_length_is_an_error(sizes: tuple[int, ...], found: str) -> None:
    with pytest.raises(DataError, match=f"epoch 0: found {found} than the 12 rows"):
        BlockFeed(Bundles(*sizes), 12, "rows").pieces("", 0, 8, 12)
