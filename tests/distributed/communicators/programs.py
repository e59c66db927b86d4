"""Programs of all that communicators do, each result compared with what NumPy makes of all members' arrays"""

import random
from dataclasses import dataclass
from functools import lru_cache
from itertools import cycle, product
from typing import Any

import ml_dtypes
import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.communicators.shared_memory.communicator import SMALL_BYTES
from d5ray.distributed.topologies.topology import Topology

Array = np.ndarray[Any, Any]
FLOATS = ["float16", "float32", "float64", "bfloat16"]
DTYPES = [*FLOATS, "int8", "int16", "int32", "int64", "uint8", "bool"]
REDUCTIONS = ["sum", "mean", "min", "max"]
AVERAGES = ["mean", "neighbor_average", "pair_average"]  # of floating types alone
OPERATIONS = [
    *REDUCTIONS, "reduce_scatter", "all_gather", "all_to_all", "broadcast", "barrier", "neighbor_average",
    "reduce_from_neighbors", "neighbor_exchange", "pair_average", "send", "messages",
]  # fmt: skip
ELEMENTS = [0, 1, 2, 17, 1000, SMALL_BYTES // 4, SMALL_BYTES // 4 + 1, 300_000]
LARGE = SMALL_BYTES + 1  # for which no type is small
KINDS = ["ordinary", "allocated", "a slice", "mixed"]  # of memory; mixed: every second member's is ordinary


@dataclass(frozen=True)
class Case:
    """One operation on integers that are others on every member, so that every type sums them exactly."""

    seed: int
    operation: str
    dtype: str
    elements: int
    kind: str

    @lru_cache(maxsize=2)  # noqa: B019 - what one member has drawn, the others look at
    def everyone(self, size: int) -> Array:
        """All members' arrays (size, elements)."""
        low = 0 if self.dtype in ("uint8", "bool") else -3
        rows = np.random.default_rng([self.seed, size]).integers(low, 4, (size, 9973))
        rows = np.tile(rows, self.elements // 9973 + 1)[:, : self.elements]
        rows = rows.astype(ml_dtypes.bfloat16 if self.dtype == "bfloat16" else self.dtype)
        rows.setflags(write=False)
        return rows

    @lru_cache(maxsize=2)  # noqa: B019 - as above: one of every member would take gigabytes
    def exact(self, size: int) -> Array:
        """The same as float64."""
        return self.everyone(size).astype(np.float64)


def program(topology: Topology) -> list[Case]:
    """Every operation at every size, every reduction in every type, in an order of the topology's own."""
    dtypes, kinds = cycle(DTYPES), cycle(KINDS)
    drawn = [
        *product(OPERATIONS, ["float32"], ELEMENTS),
        *product(REDUCTIONS, DTYPES, [5, LARGE]),
        *((operation, next(dtypes), LARGE) for operation in OPERATIONS),
    ]
    order = random.Random(repr(topology))
    order.shuffle(drawn)
    return [
        Case(seed, operation, dtype, elements, next(kinds))
        for seed, (operation, dtype, elements) in enumerate(drawn)
        if dtype in FLOATS or operation not in AVERAGES
    ]


def place(member: Communicator, kind: str, data: Array) -> Array:
    """A copy of the data in memory of this kind."""
    if kind == "ordinary":
        return data.copy()
    margin = 5 * member.rank if kind == "a slice" else 0  # each begins elsewhere
    whole = member.allocate(data.size + 64, data.dtype.name)
    if kind == "mixed" and member.rank % 2:
        return data.copy()
    own: Array = whole[margin:][: data.size]
    own[:] = data
    return own


def perform(member: Communicator, case: Case) -> None:
    """One case on this member, compared with what NumPy makes of all members' arrays."""
    size, rank = member.size, member.rank
    everyone = case.everyone(size)
    exact = case.exact(size)
    weights = member.topology.weights()[rank]
    near = [int(other) for other in np.flatnonzero(weights) if other != rank]
    mine = place(member, case.kind, everyone[rank])
    expected = exact[rank]
    match case.operation:
        case "sum" | "mean" | "min" | "max":
            member.allreduce(mine, case.operation)
            expected = getattr(exact, case.operation)(axis=0)
        case "reduce_scatter":
            part = member.reduce_scatter(mine)
            assert part == member.bounds(case.elements)[rank]
            mine, expected = mine[part], exact.sum(axis=0)[part]
        case "all_gather":
            member.all_gather(mine)
            parts = enumerate(member.bounds(case.elements))
            expected = np.concatenate([exact[other, part] for other, part in parts])
        case "all_to_all":
            mine = mine[: case.elements // size * size]
            member.all_to_all(mine)
            expected = exact[:, : len(mine)].reshape(size, size, -1)[:, rank].reshape(-1)
        case "broadcast":
            member.broadcast(mine, case.seed % size)
            expected = exact[case.seed % size]
        case "barrier":
            member.barrier()
        case "neighbor_average":
            member.neighbor_average(mine)
            expected = weights @ exact
        case "reduce_from_neighbors":
            member.reduce_from_neighbors(mine)
            expected = exact[[rank, *near]].sum(axis=0)
        case "neighbor_exchange":
            found = member.neighbor_exchange(mine)
            assert sorted(found) == near
            np.testing.assert_array_equal(mine, everyone[rank])
            mine, expected = np.stack([found[other] for other in near]), exact[near]
        case "pair_average":
            if (peer := rank ^ 1) < size:
                member.pair_average(mine, peer)
                expected = (exact[rank] + exact[peer]) / 2
        case "send":  # once around
            around = mine.copy()
            for _ in range(1 if rank else 2):
                if rank == 0 and around is not mine:
                    member.send(around, 1, tag=7)
                    around = mine
                else:
                    member.recv(mine, rank - 1 if rank else size - 1, tag=7)
            if rank:
                member.send(around, (rank + 1) % size, tag=7)
            expected = exact[rank - 1]
        case "messages":  # of other lengths, which cannot be written
            sent = [row.view(np.uint8)[other:] for other, row in enumerate(everyone)]
            received = member.all_gather_messages(sent[rank])
            assert all(map(np.array_equal, received, sent)) and len(received) == size
    if case.dtype == "bool":
        expected = expected > 0
    precision = {"float16": 2e-3, "bfloat16": 2e-2, "float64": 1e-14}.get(case.dtype, 1e-6)
    tolerance = precision if case.operation in AVERAGES else 0
    assert mine.dtype == everyone.dtype, case
    np.testing.assert_allclose(
        mine.astype(np.float64), expected, rtol=tolerance, atol=tolerance, err_msg=str(case)
    )
