"""Claims about the buckets of a flat gradient: how it is divided, and when each part is announced."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.networks.executors.gradient_buckets import Announcer, Buckets, Range, partition

SIZES = st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any)
KEPT = settings(derandomize=True, deadline=None, max_examples=150)


def slots(sizes: list[int]) -> tuple[Slot, ...]:
    return tuple(Slot(f"p{i}", sum(sizes[:i]), (size,)) for i, size in enumerate(sizes))


@pytest.mark.parametrize(
    ("bucket_bytes", "ranges"),
    [
        (1, ((18, 20), (8, 18), (6, 8), (0, 6))),
        (9, ((8, 20), (0, 8))),
        (49, ((6, 20), (0, 6))),
        (80, ((0, 20),)),
    ],
)
def test_a_bucket_is_closed_when_it_is_full(bucket_bytes: int, ranges: tuple[Range, ...]) -> None:
    """Two layers by hand, 6 weights + 2 biases and 10 + 2, of four bytes: from the end to the beginning."""
    assert partition(slots([6, 2, 10, 2]), 4, bucket_bytes).ranges == ranges


@KEPT
@given(SIZES, st.sampled_from([2, 4, 8]), st.integers(1, 400))
def test_buckets_are_whole_tensors_that_cover_the_buffer(
    sizes: list[int], element_bytes: int, bucket_bytes: int
) -> None:
    """Each range begins where the next ends, at tensors' bounds; all but the last are full, none longer."""
    places = slots(sizes)
    buckets = partition(places, element_bytes, bucket_bytes)
    ranges = buckets.ranges
    assert ranges[0][1] == sum(sizes) and ranges[-1][0] == 0
    assert all(later[1] == earlier[0] for earlier, later in pairwise(ranges))
    bounds = {slot.offset for slot in places} | {sum(sizes)}
    assert all(begin < end and {begin, end} <= bounds for begin, end in ranges)
    for begin, end in ranges[:-1]:
        first = min(slot.size for slot in places if slot.offset == begin and slot.size)
        assert (end - begin) * element_bytes >= bucket_bytes > (end - begin - first) * element_bytes
    for slot, bucket in zip(places, buckets.of_slot, strict=True):
        begin, end = ranges[bucket]
        assert begin <= slot.offset and slot.offset + slot.size <= end


@KEPT
@given(SIZES, st.integers(1, 200), st.data())
def test_a_range_is_announced_as_soon_as_it_and_all_before_it_are_complete(
    sizes: list[int], bucket_bytes: int, data: st.DataObject
) -> None:
    """Whatever arrives in whatever order; at the end all were announced, once each, in the same order."""
    buckets = partition(slots(sizes), 4, bucket_bytes)
    order = data.draw(st.permutations(range(len(sizes))))
    arriving = order[: data.draw(st.integers(0, len(order)))]
    announced: list[Range] = []
    announcer = Announcer(buckets, lambda begin, end: announced.append((begin, end)))
    for count, slot in enumerate(arriving, start=1):
        announcer.arrived(slot)
        assert announced == complete(buckets, set(arriving[:count]))
    announcer.finish()
    announcer.finish()
    assert tuple(announced) == buckets.ranges


def complete(buckets: Buckets, arrived: set[int]) -> list[Range]:
    """The ranges up to the first of which a tensor is missing."""
    missing = {bucket for slot, bucket in enumerate(buckets.of_slot) if slot not in arrived}
    return list(buckets.ranges[: min(missing, default=len(buckets.ranges))])


def test_a_gradient_that_arrives_twice_is_refused_only_after_its_announcement() -> None:
    """Before it, nobody has read the sum; after it, somebody has read a part of it."""
    announced: list[Range] = []
    announcer = Announcer(partition(slots([3, 4]), 4, 1000), lambda *bounds: announced.append(bounds))
    announcer.arrived(0)
    announcer.arrived(0)
    assert announced == []
    announcer.arrived(1)
    assert announced == [(0, 7)]
    with pytest.raises(ConfigurationError, match=r"'p0' got another gradient.*use_reentrant=False"):
        announcer.arrived(0)


@pytest.mark.parametrize("bucket_bytes", [0, True, 2.0])
def test_a_size_that_is_none_is_refused(bucket_bytes: object) -> None:
    """With what was found and what it must be."""
    with pytest.raises(ConfigurationError) as caught:
        partition(slots([3]), 4, bucket_bytes)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"bucket_bytes is {bucket_bytes!r}: it must be an integer number of bytes, at least 1"
    )
