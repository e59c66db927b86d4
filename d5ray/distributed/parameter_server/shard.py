"""One shard of a parameter server: it takes requests in an order, and answers each as soon as it may

A state machine without threads and clocks: what happens depends on the order of the requests alone.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from d5ray.distributed.parameter_server.consistency import Consistency
from d5ray.distributed.parameter_server.requests import Array, Request, Restored, ShardState
from d5ray.distributed.parameter_server.server_rules import ServerRule, ShardContents, mean
from d5ray.errors import ConfigurationError
from d5ray.training.optimizers.optimizer import Optimizer

STATE_FORMAT = 1
Upstream = Callable[[Array, float, int], None]  # the mean (n,) of pushes, what they count, its number from 1


@final
class Shard:
    """Parameters x (n,) that agents push to and pull from.

    members: the ranks that take part. upstream: where it is given, this is the server of a group: the mean
    of the group's pushes goes there, and `install` brings what came of it.
    """

    def __init__(
        self,
        x: Array,
        base: Optimizer,
        rule: ServerRule,
        consistency: Consistency,
        members: Sequence[int],
        upstream: Upstream | None = None,
    ) -> None:
        self.held = ShardContents(x, base, base.state(x), rule.own(x), {})
        self.rule = rule
        self.version = 0
        self.orders = 0  # requests taken
        self.policy = consistency.policy(members, self._apply)
        self._upstream = upstream
        self._last: dict[int, int] = {}  # number of the last push, by rank
        self._seen: dict[int, int] = {}  # version at the last read, by rank
        self._results: dict[int, Array] = {}  # what the rule replied last, by rank
        self._open: dict[tuple[int, int], Request] = {}  # pushes that are not applied yet
        self._under_way: list[list[Request]] = []  # rounds of pushes for the upstream; the first is there
        self._rounds = 0  # that came back from the upstream
        self._readers: list[Request] = []  # that may not read yet
        self._busy = False

    @property
    def x(self) -> Array:
        """The shard's parameters (n,)."""
        return self.held.x

    @property
    def waiting(self) -> int:
        """The requests that were taken and are not answered yet."""
        return len(self._open) + len(self._readers)

    def submit(self, request: Request) -> None:
        """Take a request; it, and others that waited for it, may be answered before this returns."""
        request.order = self.orders
        self.orders += 1
        request.waiting = self.waiting
        if request.vector is None:
            self._readers.append(request)
        else:
            self._take_push(request)
        self._serve_readers()

    def install(self, x: Array, version: int, order: int) -> None:
        """Take x and its version from upstream; order: in which the pushes sent there came in."""
        self.held.x[...] = x
        self.version = version
        self._rounds += 1
        for push in sorted(self._under_way.pop(0), key=_order):
            push.above, push.round = order, self._rounds
            self._settle(push)
        if self._under_way:
            self._forward()
        self._serve_readers()

    def refresh(self, x: Array, version: int) -> None:
        """The upstream's parameters, which other groups have changed since; no push is on its way there."""
        self.held.x[...] = x
        self.version = version

    def enter(self, rank: int, *, again: bool = False) -> None:
        """An agent takes part from now on; it numbers its pushes from 1, or on, if it comes `again`."""
        if rank not in self.policy.members and not again:
            self._last.pop(rank, None)
            self._results.pop(rank, None)
            self._open = {key: push for key, push in self._open.items() if key[0] != rank}
        self.policy.enter(rank)
        self._serve_readers()

    def leave(self, rank: int) -> None:
        """An agent does not take part any more: nobody waits for it, and its requests are forgotten."""
        self._readers = [reader for reader in self._readers if reader.rank != rank]
        self.policy.leave(rank)
        self._serve_readers()

    @property
    def restored(self) -> Restored:
        """The version, and the last push of each agent that is part of it."""
        last = self._last.copy()
        for rank, _ in self._open:
            if rank in last:
                last[rank] -= 1
        return Restored(self.version, last)

    def pending(self) -> list[Request]:
        """The requests that were taken and are not answered yet, in their order."""
        return sorted({*self._open.values(), *self._readers}, key=_order)

    # -- snapshots -------------------------------------------------------------------------------------

    def kept(self) -> ShardState:
        """The contents that a checkpoint keeps, as copies; no push is on its way here."""
        return copy.deepcopy(ShardState(self.held.x, self.held.state, self.held.own))

    def keep(self, kept: ShardState) -> None:
        """Go on from a checkpoint, before the first push; versions and clocks count from here."""
        if kept.x.shape != self.held.x.shape or kept.x.dtype != self.held.x.dtype:
            raise ConfigurationError(
                f"the checkpoint's shard holds {kept.x.size:,} × {kept.x.dtype}, this one "
                f"{self.held.x.size:,} × {self.held.x.dtype}: resume with as many shards of the same model"
            )
        self.held.x[...] = kept.x
        self.held.state, self.held.own = kept.state, kept.own

    def state(self) -> dict[str, Any]:
        """The copies that `restore` needs; pushes that are not applied yet are not in them."""
        held, counters = self.held, {name: f.all() for name, f in self.policy.counters().items()}
        for rank, _ in self._open:  # it comes again, and is counted then
            counters["clocks"][rank] = counters["clocks"].get(rank, 0) - 1
        return copy.deepcopy(
            {
                "format": STATE_FORMAT,
                "x": held.x,
                "state": held.state,
                "own": held.own,
                "read": held.read,
                "version": self.version,
                "orders": self.orders,
                "last": self.restored.last,
                "counters": counters,
                "seen": self._seen,
                "results": self._results,
                "rounds": self._rounds,
            }
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken, possibly in another process."""
        if state.get("format") != STATE_FORMAT or state["x"].shape != self.held.x.shape:
            raise ConfigurationError(
                f"this is no state of a shard of {self.held.x.size:,} parameters, of format {STATE_FORMAT}: "
                "restore what `state` gave for the same shard"
            )
        state = copy.deepcopy(state)
        held = self.held
        held.x[...] = state["x"]
        held.state, held.own, held.read = state["state"], state["own"], state["read"]
        self.version, self.orders = state["version"], state["orders"]
        self._last, self._seen, self._results = state["last"], state["seen"], state["results"]
        self._rounds = state["rounds"]
        for name, frontier in self.policy.counters().items():
            for rank, value in state["counters"][name].items():
                frontier.raise_to(rank, value)

    # --------------------------------------------------------------------------------------------------

    def _take_push(self, push: Request) -> None:
        rank, last = push.rank, self._last.get(push.rank, 0)
        if push.sequence <= last:  # it came before, and the agent did not hear of it
            original = self._open.get((rank, push.sequence))
            if original is not None:
                original.followers.append(push)
            else:
                push.result = self._results.get(rank)
                self._finish_push(push)
            return
        push.skipped = push.sequence - last - 1
        self._last[rank] = push.sequence
        push.staleness = self.version - self._seen.get(rank, 0)
        self._open[rank, push.sequence] = push
        if not self.policy.push(push):
            self._settle(push, applied=False)

    def _apply(self, pushes: list[Request]) -> None:
        for push in pushes:
            push.staleness = self.version - self._seen.get(push.rank, 0)
        if self._upstream is not None:
            self._under_way.append(pushes)
            if len(self._under_way) == 1:
                self._forward()
            return
        if any(push.counts for push in pushes):  # else no label of them counts
            self.rule.update(self.held, pushes)
        self.version += 1
        for push in sorted(pushes, key=_order):
            self._settle(push)

    def _forward(self) -> None:
        assert self._upstream is not None
        pushes = self._under_way[0]
        self._rounds += max(push.skipped for push in pushes)  # rounds that are not in the restored state
        self._upstream(mean(pushes), sum(push.counts for push in pushes), self._rounds + 1)

    def _settle(self, push: Request, *, applied: bool = True) -> None:
        """A push has become part of an update, or is dropped."""
        push.applied = applied
        if self._open.get((push.rank, push.sequence)) is push:  # not of an agent that had this rank before
            del self._open[push.rank, push.sequence]
        if self.rule.replies and push.result is not None:
            self._results[push.rank] = push.result
        self._finish_push(push)
        for follower in push.followers:
            follower.staleness, follower.result = push.staleness, push.result
            self._finish_push(follower)

    def _finish_push(self, push: Request) -> None:
        push.version = self.version
        if push.into is None:
            self._answer(push)
        else:
            self._readers.append(push)

    def _serve_readers(self) -> None:
        """Let read who may; a read may complete updates, which let others read."""
        if self._busy:
            return
        self._busy = True
        try:
            while ready := [reader for reader in self._readers if self.policy.may_read(reader.rank)]:
                for reader in ready:
                    self._readers.remove(reader)
                    if reader.into is not None:
                        reader.into[...] = self.held.x if reader.result is None else reader.result
                    self._note_read(reader)
                    self._answer(reader)
        finally:
            self._busy = False

    def _note_read(self, request: Request) -> None:
        request.version = self._seen[request.rank] = self.version
        if self.rule.keeps_reads:
            self.held.read.setdefault(request.rank, np.empty_like(self.held.x))[...] = self.held.x
        self.policy.read(request.rank)

    def _answer(self, request: Request) -> None:
        request.gap = self.policy.gap(request.rank)
        request.vector = None
        request.done(request)


def _order(request: Request) -> int:
    """The key that puts the first request first."""
    return request.order
