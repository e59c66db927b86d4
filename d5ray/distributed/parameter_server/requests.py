"""Requests of an agent to a shard of a parameter server, the replies, and the kinds of their frames"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
BEGIN, OPERATE, LEAVE, COMPRESS, KEPT, FETCH, KEEP = 10, 11, 12, 13, 14, 15, 16  # kinds of requests
ANSWER = 20
STATE, PUSH, PULL, PUSH_PULL, ENTERED, LEFT, INSTALLED = 30, 31, 32, 33, 34, 35, 36
COPIED = 40
NOTHING = -1  # no place in shared memory
PURPOSE = "server"
COPY_PURPOSE = "copy of a shard"


class Reply(NamedTuple):
    """The answer of a shard to a request."""

    order: int  # of the request among all that this shard took
    version: int  # of the values, after a push or as read
    staleness: int  # of the pushed vector: updates since its agent read; -1 without a push
    applied: bool  # False: the push was a repetition, or too late for its round
    gap: int  # clocks this agent is ahead of the slowest
    waiting: int  # other requests that wait at the shard
    above: int = -1  # order at the root, of what a group's shard made of the push
    round: int = -1  # its number among those that the group's shard sent there
    waited: int = 0  # ns between its coming and its answer, the shard's own work left out


class Restored(NamedTuple):
    """The contents of a shard that goes on from a state of another process."""

    version: int
    last: dict[int, int]  # the number of the last push that is part of it, by rank


def counts_as_bits(counts: float) -> int:
    """A request's counts as the integer that frames carry."""
    return int(np.float64(counts).view(np.int64))


def counts_of_bits(bits: int) -> float:
    """A request's counts, of the integer that a frame carries."""
    return float(np.int64(bits).view(np.float64))


@dataclass(eq=False)
class ShardState:
    """The part of a shard that outlives a run, between two steps of agents that meet at every step."""

    x: Array  # (n,)
    state: Any  # the base optimizer's
    own: dict[str, Any]  # the rule's


@dataclass(eq=False)
class Request:
    """A push, a pull, or both; `done` is called when it is answered, with the shard's lock held.

    rank      of the agent; sequence: its pushes are numbered 1, 2, 3, …; a pull has that of the push before
    vector    what is pushed (n,), in memory that stays as it is until the request is done; None: a pull
    into      where the values are copied to (n,); None: a push
    counts    the weight in a mean: by which the loss counts, and that of all pushes of which the server of a
              group makes one
    """

    rank: int
    sequence: int
    vector: Array | None
    into: Array | None
    done: Callable[["Request"], None]
    scale: float = 1.0  # that the vector enters with
    counts: float = 1.0
    order: int = -1
    staleness: int = -1
    version: int = -1
    applied: bool = False
    gap: int = 0
    waiting: int = 0
    above: int = -1
    round: int = -1
    waited: int = 0
    skipped: int = 0  # pushes of this agent that a server took which died with them
    number: int = -1  # of the agent's operations, in the simulation
    result: Array | None = None  # what the rule made for this agent, if it replies
    followers: list["Request"] = field(default_factory=list)  # repetitions of it that came meanwhile

    @property
    def reply(self) -> Reply:
        """The reply that is sent back beside the values."""
        return Reply(
            self.order, self.version, self.staleness, self.applied, self.gap, self.waiting, self.above,
            self.round, self.waited,
        )  # fmt: skip


def kept_bytes(size: int) -> int:
    """The most bytes of what a shard with parameters of this size keeps: with a base optimizer's state."""
    return 2**26 + 256 * size


def memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
