"""The books of asynchronous servers: parameters worked out again from the orders of an events table"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from d5ray.experiment import Experiment
from tests.distributed.in_numpy import SIZE, Array, gradient_of, start_of

MU = 0.9


@dataclass
class Ledger:
    """A server of one shard: what it does with a gradient that was taken at x_read."""

    x: Array
    update: "Update"
    version: int = 0
    velocity: Any = 0.0
    square: Any = 0.0


Update = Callable[[Ledger, Array, Array, int], None]  # of a ledger by g, x_read, τ


def momentum(rate: float) -> Update:
    """v ← μ v + g, x ← x − η v."""

    def update(ledger: Ledger, g: Array, read: Array, staleness: int) -> None:
        ledger.velocity = MU * ledger.velocity + g
        ledger.x = ledger.x - rate * ledger.velocity

    return update


def aware(rate: float) -> Update:
    """x ← x − η g / max(τ, 1)."""

    def update(ledger: Ledger, g: Array, read: Array, staleness: int) -> None:
        ledger.x = ledger.x - rate / max(staleness, 1) * g

    return update


def compensated(rate: float, lam: float) -> Update:
    """x ← x − η (g + λ g ⊙ g ⊙ (x − x_read))."""

    def update(ledger: Ledger, g: Array, read: Array, staleness: int) -> None:
        ledger.x = ledger.x - rate * (g + lam * g * g * (ledger.x - read))

    return update


def adaptively(rate: float, lam: float, decay: float) -> Update:
    """The same with λ / √(v + 10⁻⁷), v ← m v + (1 − m) g ⊙ g."""

    def update(ledger: Ledger, g: Array, read: Array, staleness: int) -> None:
        ledger.square = decay * ledger.square + (1 - decay) * g * g
        lam_t = lam / np.sqrt(ledger.square + 1e-7)
        ledger.x = ledger.x - rate * (g + lam_t * g * g * (ledger.x - read))

    return update


def replayed(wanted: Experiment, rows: Sequence[dict[str, Any]], update: Update) -> tuple[Array, list[int]]:
    """The parameters at the servers (n,) and every push's staleness, from the rows of a schedule.

    Checks every version and staleness that the rows have. A gradient is taken at what its agent had read
    before, whose pieces may be of different versions.
    """
    assert wanted.servers is not None
    shards = range(wanted.servers.shards)
    edges = [SIZE * shard // len(shards) for shard in range(len(shards) + 1)]
    parts = [slice(low, high) for low, high in pairwise(edges)]
    ledgers = [Ledger(start_of(wanted)[part], update) for part in parts]
    turns = [sorted(rows, key=lambda row, shard=shard: row["orders"][shard]) for shard in shards]  # type: ignore[misc]
    reads: dict[tuple[int, int, int], tuple[Array, int]] = {}  # by agent, operation and shard
    staleness = []
    while any(turns):
        before = sum(map(len, turns))
        for shard, ledger in enumerate(ledgers):
            while turns[shard]:
                row = turns[shard][0]
                rank, number = row["rank"], row["number"]
                if row["name"] == "push_pull":
                    pieces = [reads.get((rank, number - 1, other)) for other in shards]
                    known = [piece[0] for piece in pieces if piece is not None]
                    if len(known) < len(shards):
                        break  # another shard has to come first
                    read = np.concatenate(known)
                    g = gradient_of(wanted, rank, row["step"], read)[parts[shard]]
                    own, seen = reads[rank, number - 1, shard]
                    staleness.append(ledger.version - seen)
                    assert row["staleness"][shard] == staleness[-1]
                    ledger.update(ledger, g, own, staleness[-1])
                    ledger.version += 1
                assert row["versions"][shard] == ledger.version
                reads[rank, number, shard] = ledger.x, ledger.version
                turns[shard].pop(0)
        assert sum(map(len, turns)) < before, "the orders of two shards contradict each other"
    return np.concatenate([ledger.x for ledger in ledgers]), staleness
