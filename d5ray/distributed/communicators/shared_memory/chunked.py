"""Collectives on arrays of the members of one node: where they lie in common, or by chunks through slots"""

from collections.abc import Sequence
from typing import final

import numpy as np

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.shared_memory.arena import LINE_BYTES, PARITIES, Arena
from d5ray.distributed.communicators.shared_memory.barrier import Barrier
from d5ray.distributed.communicators.shared_memory.reduce_kernels import Flat, ReduceKernels, take_over


@final
class Chunked:
    """Exchange in steps: each member writes to one of as many slots, all wait, then read the others' slots.

    The slots of a step are written over two steps later, each by a member that has read it. (Writing to
    memory that another core has read since is ten times as slow for the core that wrote it before as for the
    one that read it: measured on AMD's Zen 4.) Every method returns the number of its barriers.
    """

    def __init__(self, arena: Arena, barrier: Barrier, kernels: ReduceKernels) -> None:
        self._arena, self._rank, self._size = arena, arena.rank, arena.size
        self._barrier, self._kernels = barrier, kernels
        self._share = arena.slot_bytes // self._size // LINE_BYTES * LINE_BYTES  # of a slot, for one member
        self._step = 0  # of the slots' use, the same on all members

    def allreduce_whole(self, flat: Flat, operation: str, call: Signature) -> int:
        """flat ← the reduction of all members' arrays, which each computes for itself from everything."""
        chunks = self._chunks(flat)
        for chunk in chunks:
            self._step += 1
            self._show(chunk)
            self._barrier.wait(call)
            arrays = [chunk if rank == self._rank else self._shown(rank, chunk) for rank in range(self._size)]
            self._kernels.reduce(arrays, chunk, operation)
        return len(chunks)

    def allreduce(self, flat: Flat, parts: Sequence[slice], operation: str, call: Signature) -> int:
        """flat ← the reduction of all members' arrays; of three or more each computes one part of it."""
        if self._size <= 2:
            return self.allreduce_whole(flat, operation, call)
        rows = self._rows(parts, self._share // flat.itemsize)
        for row, finished in zip([*rows, None], [None, *rows], strict=True):
            self._step += 1
            if finished:
                begin, offset = self._corner(self._rank)
                self._arena.put(begin, flat[finished[self._rank]], offset)
            if row:
                self._give_row(flat, row)
            self._barrier.wait(call)
            if finished:
                for rank, piece in self._others(flat, finished):
                    np.copyto(piece, self._view(sum(self._corner(rank)), piece))
            if row:
                self._reduce_row(flat, row, operation)
        return len(rows) + 1

    def reduce_scatter(self, flat: Flat, parts: Sequence[slice], operation: str, call: Signature) -> int:
        """This member's part of flat ← the reduction of all members'."""
        rows = self._rows(parts, self._share // flat.itemsize)
        for row in rows:
            self._step += 1
            self._give_row(flat, row)
            self._barrier.wait(call)
            self._reduce_row(flat, row, operation)
        return len(rows)

    def all_gather(self, flat: Flat, parts: Sequence[slice], call: Signature) -> int:
        """Every part of flat ← that of the member that has it."""
        rows = self._rows(parts, self._arena.slot_bytes // flat.itemsize)
        for row in rows:
            self._step += 1
            self._show(flat[row[self._rank]])
            self._barrier.wait(call)
            for rank, piece in self._others(flat, row):
                np.copyto(piece, self._shown(rank, piece))
        return len(rows)

    def all_to_all(self, flat: Flat, parts: Sequence[slice], call: Signature) -> int:
        """Part i of flat ← this member's part of member i's."""
        rows = self._rows(parts, self._share // flat.itemsize)
        for row in rows:
            self._step += 1
            self._give_row(flat, row)
            self._barrier.wait(call)
            for rank, piece in self._others(flat, row):
                np.copyto(piece, self._given(rank, piece))
        return len(rows)

    def broadcast(self, flat: Flat, root: int, call: Signature) -> int:
        """flat ← the root's."""
        chunks = self._chunks(flat)
        for chunk in chunks:
            self._step += 1
            if self._rank == root:
                self._show(chunk)
            self._barrier.wait(call)
            if self._rank != root:
                shown = self._shown(root, chunk)
                np.copyto(chunk, shown)
                if self._size == 2:
                    take_over(shown)
        return len(chunks)

    # -- pieces ---------------------------------------------------------------------------------------

    def _chunks(self, flat: Flat) -> list[Flat]:
        step = self._arena.slot_bytes // flat.itemsize
        return [flat[low : low + step] for low in range(0, max(1, flat.size), step)]

    def _rows(self, parts: Sequence[slice], length: int) -> list[list[slice]]:
        """Rows of pieces, one from every part."""
        longest = max(part.stop - part.start for part in parts)
        return [
            [slice(min(p.start + low, p.stop), min(p.start + low + length, p.stop)) for p in parts]
            for low in range(0, max(1, longest), length)
        ]

    def _others(self, flat: Flat, row: Sequence[slice]) -> list[tuple[int, Flat]]:
        return [(rank, flat[piece]) for rank, piece in enumerate(row) if rank != self._rank]

    def _give_row(self, flat: Flat, row: Sequence[slice]) -> None:
        """Let every member read its piece after the coming barrier."""
        for rank, piece in self._others(flat, row):
            self._give(rank, piece)

    def _reduce_row(self, flat: Flat, row: Sequence[slice], operation: str) -> None:
        own = flat[row[self._rank]]
        pieces = [own if rank == self._rank else self._given(rank, own) for rank in range(self._size)]
        self._kernels.reduce(pieces, own, operation)

    # -- slots: who reads a place writes to it next ---------------------------------------------------

    def _show(self, piece: Flat) -> None:
        """Copy a piece to where all members read it after the coming barrier."""
        self._arena.put(self._slot(self._rank), piece)

    def _shown(self, rank: int, like: Flat) -> Flat:
        """The array that a member showed before the barrier."""
        return self._view(self._slot(rank), like)

    def _slot(self, rank: int) -> int:
        return self._arena.slot(self._turned(rank), self._step)

    def _corner(self, rank: int) -> tuple[int, int]:
        """A slot, and where in it, that nobody gives anything to: for what a member shows meanwhile."""
        return self._arena.slot(self._turned(rank), self._step), self._share * self._turned(rank)

    def _turned(self, rank: int) -> int:
        return (rank + self._step // PARITIES) % self._size

    def _give(self, rank: int, piece: Flat) -> None:
        """Copy a piece to where one member reads it after the coming barrier."""
        begin, offset = self._between(self._rank, rank)
        self._arena.put(begin, piece, offset)

    def _given(self, rank: int, like: Flat) -> Flat:
        """The array that a member gave to this one before the barrier."""
        begin, offset = self._between(rank, self._rank)
        return self._view(begin + offset, like)

    def _between(self, giver: int, taker: int) -> tuple[int, int]:
        """The slot, and where in it, of what one member gives to another; the two take turns."""
        number, position = (giver, taker) if self._step // PARITIES % 2 else (taker, giver)
        return self._arena.slot(number, self._step), self._share * position

    def _view(self, start: int, like: Flat) -> Flat:
        return self._arena.bytes[start : start + like.nbytes].view(like.dtype)


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
