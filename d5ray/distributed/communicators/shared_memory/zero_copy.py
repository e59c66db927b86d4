"""Collectives on arrays that lie in memory common to the members: nothing is copied in or out"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, ReduceKernels


@final
class ZeroCopy:
    """The work of one member between two barriers, on all members' arrays, each (n,), by rank.

    No element is written by two members, or written by one and read by another.
    """

    def __init__(self, rank: int, kernels: ReduceKernels) -> None:
        self._rank, self._kernels = rank, kernels

    def allreduce(self, arrays: Sequence[Flat], parts: Sequence[slice], operation: str) -> None:
        """This member's part of every array ← the reduction of that part of all."""
        pieces = [array[parts[self._rank]] for array in arrays]
        others = [piece for rank, piece in enumerate(pieces) if rank != self._rank]
        self._kernels.reduce(pieces, pieces[self._rank], operation, copies=others)

    def reduce_scatter(self, arrays: Sequence[Flat], parts: Sequence[slice], operation: str) -> None:
        """This member's part of its array ← the reduction of that part of all."""
        pieces = [array[parts[self._rank]] for array in arrays]
        self._kernels.reduce(pieces, pieces[self._rank], operation)

    def all_gather(self, arrays: Sequence[Flat], parts: Sequence[slice]) -> None:
        """Every other part of this member's array ← that of the member that has it."""
        own = arrays[self._rank]
        for rank, part in enumerate(parts):
            if rank != self._rank:
                np.copyto(own[part], arrays[rank][part])

    def all_to_all(self, arrays: Sequence[Flat], parts: Sequence[slice]) -> None:
        """Exchange part i of this member's array with its part of member i's; each of a pair does a half."""
        own = parts[self._rank]
        for rank, part in enumerate(parts):
            if rank != self._rank:
                here, there = arrays[self._rank][part], arrays[rank][own]
                middle = here.size // 2
                half = slice(0, middle) if self._rank < rank else slice(middle, None)
                self._kernels.swap(here[half], there[half])

    def broadcast(self, arrays: Sequence[Flat], root: int) -> None:
        """This member's array ← the root's."""
        if self._rank != root:
            np.copyto(arrays[self._rank], arrays[root])
