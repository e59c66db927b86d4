"""The best contiguous partition of a sequence, by dynamic programming over the places where parts begin"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Table = np.ndarray[Any, np.dtype[np.float64]]  # (n + 1, n + 1): a number for every part [begin, end)
Allowed = np.ndarray[Any, np.dtype[np.bool_]]  # (n + 1, n + 1)


def partition(times: Table, ties: Table, allowed: Sequence[Allowed]) -> list[int] | None:
    """The begins of the second and further parts, so that the slowest part is as quick as can be.

    times: of every part [begin, end). Among the partitions whose slowest part is as quick, one with the least
    sum of `ties` is taken, from the back the one with the longest parts. allowed: for each part in its turn
    which [begin, end) it may be. None where no partition is allowed.
    """
    turns = len(allowed)
    slowest = _least([times] * turns, allowed, np.maximum)[-1][-1]
    if not np.isfinite(slowest):
        return None
    quick = [each & (times <= slowest) for each in allowed]
    sums = _least([ties] * turns, quick, np.add)
    end = len(times) - 1
    begins: list[int] = []
    for turn in range(turns - 1, 0, -1):
        ways = np.where(quick[turn][:, end], sums[turn - 1] + ties[:, end], np.inf)
        end = int(ways.argmin())
        begins.append(end)
    return begins[::-1]


def least_maximum(tables: Sequence[Table], allowed: Sequence[Allowed]) -> float:
    """The least that the largest part of any partition has; a table for each part in its turn."""
    return float(_least(tables, allowed, np.maximum)[-1][-1])


def _least(tables: Sequence[Table], allowed: Sequence[Allowed], joined: np.ufunc) -> list[Table]:
    """The least cost for every number of parts, up to every end."""
    found = [np.where(allowed[0][0], tables[0][0], np.inf)]
    for table, may in zip(tables[1:], allowed[1:], strict=True):
        found.append(np.where(may, joined(found[-1][:, None], table), np.inf).min(axis=0))
    return found


def parts_sum(values: Sequence[float]) -> Table:
    """The sum of the values of every part [begin, end); below the diagonal it means nothing."""
    until = np.concatenate([[0.0], np.cumsum(np.asarray(values, np.float64))])
    return np.asarray(until[None, :] - until[:, None])


def parts_reading(count: int, read: Iterable[tuple[int, Sequence[int], float]]) -> Table:
    """The weight of what every part [begin, end) reads from before its begin, each thing once.

    read: (where it is made, -1 for what is always there; where it is read, ascending; its weight).
    """
    steps = np.zeros((count + 2, count + 2))
    for maker, readers, weight in read:
        after = maker
        for reader in readers:  # the first reader of the parts that begin in (after, reader]
            _add(steps, (after + 1, reader), (reader + 1, count), weight)
            after = reader
    return _summed(steps)


def parts_feeding(count: int, made: Iterable[tuple[int, int, float]]) -> Table:
    """The weight of what every part [begin, end) makes for after its end, each thing once.

    made: (where it is made, where it is read last, its weight).
    """
    steps = np.zeros((count + 2, count + 2))
    for maker, last, weight in made:
        _add(steps, (0, maker), (maker + 1, last), weight)
    return _summed(steps)


def _add(steps: Table, begins: tuple[int, int], ends: tuple[int, int], weight: float) -> None:
    """Add a weight to all parts whose begin and end lie within these, both included."""
    (low, high), (first, last) = begins, ends
    if low <= high and first <= last:
        steps[low, first] += weight
        steps[high + 1, first] -= weight
        steps[low, last + 1] -= weight
        steps[high + 1, last + 1] += weight


def _summed(steps: Table) -> Table:
    return np.asarray(steps.cumsum(axis=0).cumsum(axis=1)[:-1, :-1])
