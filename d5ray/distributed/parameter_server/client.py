"""The agent's side of the parameter servers: `self.server` of a distributed optimizer"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final

import numpy as np

from d5ray.distributed.checkpoints.packed import Packed
from d5ray.distributed.communicators.background import Handle, Worker
from d5ray.distributed.communicators.point_to_point.collectives import parts
from d5ray.distributed.compression.compressor import Compressor, computed_in
from d5ray.distributed.group.waits import PresentWait
from d5ray.distributed.parameter_server.requests import Array, Reply
from d5ray.distributed.rpc.dtypes import numpy_dtype
from d5ray.distributed.scheduler import Scheduler
from d5ray.distributed.traffic import Traffic
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_copy, host_view, on_device
from d5ray.training.arrays import like, use_device_of

KINDS = ("pull", "push", "push_pull")


class ServerOperation(NamedTuple):
    """One push or pull of this agent, as it is kept for the schedule."""

    kind: str
    number: int  # of this agent's operations, from 0
    replies: tuple[Reply, ...]  # by shard
    seconds: float  # from its begin to its end
    ended: int = 0  # ns of the scheduler's clock

    @property
    def detail(self) -> dict[str, Any]:
        """The operation's facts for the events table."""
        above = [(reply.above, reply.round) for reply in self.replies if reply.above >= 0]
        return {
            "number": self.number,
            "orders": [reply.order for reply in self.replies],
            "versions": [reply.version for reply in self.replies],
            "staleness": [reply.staleness for reply in self.replies],
            "waited": max((reply.waited for reply in self.replies), default=0) * 1e-9,  # s, at the servers
        } | ({"above": above} if above else {})


SERVER_METRICS = (
    "staleness", "clock_gap", "server_queue", "parameter_version", "server_wait_time", "pushes", "pulls",
)  # fmt: skip


def summary(operations: Sequence[ServerOperation]) -> tuple[float | None, ...]:
    """`SERVER_METRICS` of the operations of one step."""
    pushed = [reply.staleness for done in operations for reply in done.replies if reply.staleness >= 0]
    replies = [reply for done in operations for reply in done.replies]
    return (
        sum(pushed) / len(pushed) if pushed else None,
        max(reply.gap for reply in replies),
        sum(reply.waiting for reply in replies) / len(replies),
        sum(reply.version for reply in operations[-1].replies) / len(operations[-1].replies),
        sum(max(reply.waited for reply in done.replies) for done in operations) * 1e-9,
        sum(done.kind != "pull" for done in operations),
        sum(done.kind != "push" for done in operations),
    )


class Ask(NamedTuple):
    """The request that one operation sends to one shard."""

    number: int  # of this agent's operations
    sequence: int
    vector: Array | None  # what is pushed (n,), as the shard gets it
    message: Array | None  # instead: the same, compressed (bytes,)
    into: Array | None


Answer = Callable[[], Reply]  # waits for it


@dataclass(eq=False)
class Sending:
    """The state of an agent's compressed pushes, such as the error that is fed back."""

    residual: Array | None = None  # (n,): what the compressor dropped so far
    rng: np.random.Generator = field(default_factory=np.random.default_rng)


class Server(ABC):
    """Pushes to and pulls from all shards at once; arrays are flat, of the model's size. Device arrays go
    through host memory.

    An agent's operations are executed in the order in which they were started. Bytes on the wire and waiting
    times are counted.
    """

    def __init__(
        self,
        *,
        rank: int,
        elements: int,
        dtype: Any,
        shards: int,
        scheduler: Scheduler,
        traffic: Traffic,
        seconds: float,
    ) -> None:
        """dtype: of the parameters."""
        self.rank = rank
        self.shards = shards
        self.traffic = traffic
        self.operations: deque[ServerOperation] = (
            deque()
        )  # that were done; whoever records them takes them out
        self.scheduler = scheduler
        self.timeout_seconds = seconds
        self.counts = 1.0  # for which a push counts in a mean
        self.links = [[0, 0] for _ in range(shards)]  # bytes sent to and received from each shard
        self.acknowledged = [0] * shards  # the number of the last push that each shard has answered
        self._bounds = parts(elements, shards)
        self._elements = elements
        self._computed = computed_in(dtype)  # what is compressed
        self._pushes = 0
        self._number = 0
        self.sending = Sending()
        self._compressor: Compressor | None = None
        self._start: BackgroundRequests | None = None

    # -- operations ------------------------------------------------------------------------------------

    @final
    def push(self, vector: Any) -> None:
        """Send a vector (n,), such as a gradient; returns when it is part of an update, or dropped."""
        self._do("push", vector, None)

    @final
    def pull(self, into: Any) -> None:
        """into (n,) ← the parameters, as soon as the consistency allows reading them."""
        self._do("pull", None, into)

    @final
    def push_pull(self, vector: Any, into: Any) -> None:
        """Push, then pull into (n,), in one message each way; some server rules reply something else."""
        self._do("push_pull", vector, into)

    @final
    @property
    def start(self) -> "BackgroundRequests":
        """The operations in the background: `handle = self.server.start.push(gradient)`, `handle.wait()`.

        The vector is copied, so the agent may compute the next gradient meanwhile; `into` must not be
        touched before `wait` has returned.
        """
        if self._start is None:
            self._start = BackgroundRequests(self)
        return self._start

    @final
    def drain(self) -> None:
        """Return when all operations that were started in the background are complete."""
        if self._start is not None:
            self._start.drain()

    @final
    def compress(self, compressor: Compressor, rng: np.random.Generator | None = None) -> None:
        """Compress pushes from now on, each shard's slice separately; to be called in an optimizer's `start`.

        With a contraction C error feedback adds what it drops to the next push; otherwise C must be unbiased.
        rng: seeds the compressor's own generator, by default the rank.
        """
        for part in self._bounds:
            compressor.check(part.stop - part.start)
        if compressor.contraction(self._elements) == 1.0:
            self.sending.residual = None  # nothing is dropped
        elif compressor.bounded_residual(self._elements):
            self.sending.residual = np.zeros(self._elements, self._computed)
        elif not (compressor.unbiased or compressor.rounding):
            raise ConfigurationError(
                f"{compressor!r} is biased and no contraction: what it drops would be lost for good; take "
                "another compressor, such as TopK(0.01)"
            )
        self._announce(compressor)
        self._compressor = compressor
        seed = [self.rank, 0xC0] if rng is None else int(rng.integers(2**63))
        self.sending.rng = np.random.default_rng(seed)

    @final
    @property
    def version(self) -> tuple[int, ...]:
        """The versions, by shard, of the parameters that were read last."""
        return self._read

    _read: tuple[int, ...] = ()

    # -- what a world fills ----------------------------------------------------------------------------

    @abstractmethod
    def _ask(self, shard: int, ask: Ask) -> Answer:
        """Send this to a shard; counts in `traffic` what it moves."""

    @abstractmethod
    def kept(self) -> list[Packed]:
        """The contents of every shard, for a checkpoint; no agent may be in the middle of an operation."""

    @abstractmethod
    def keep(self, kept: Sequence[Packed]) -> None:
        """Restore every shard from a checkpoint; to be called by one agent, before the first push."""

    def waits(self) -> list[PresentWait]:
        """The current waits of this agent for answers; called from another thread."""
        return []

    def _announce(self, compressor: Compressor) -> None:  # noqa: B027 - the simulation needs none
        """Let the shards know by what pushes are compressed from now on."""

    @final
    def go_on(self, pushes: int) -> None:
        """Number the next push as if this many had been made, by an earlier process of this agent."""
        self._pushes = pushes

    def begin(self, x: Any) -> None:  # noqa: B027 - simulated ones have theirs
        """Send the servers their initial parameters (n,), unless they have some."""

    def allocate(self, elements: int, dtype: str) -> Array:
        """A flat array of zeros (elements,) in the memory with the fastest pushes and pulls."""
        return np.zeros(elements, numpy_dtype(dtype))

    @abstractmethod
    def close(self) -> None:
        """Leave the servers: nobody waits for this agent any more."""

    # --------------------------------------------------------------------------------------------------

    def _do(self, kind: str, vector: Any, into: Any) -> None:
        self.drain()  # a shard takes a push with a smaller number for a repetition
        self._operate(self._begin(kind, vector, into))

    def _begin(self, kind: str, vector: Any, into: Any, *, copied: bool = False) -> "_Begun":
        """Number an operation, and look at its arrays."""
        pushed = None if vector is None else self._flat(vector, "push")
        wanted = None if into is None else self._flat(into, "pull into")
        if pushed is not None:
            self._pushes += 1
            if copied:
                pushed = pushed.copy()
        number = self._number
        self._number += 1
        return _Begun(kind, number, self._pushes, pushed, wanted, into if on_device(into) else None)

    def _operate(self, begun: "_Begun", *, timed: bool = True) -> None:
        begin = self.scheduler.now()
        answers: list[Answer] = []
        for shard, part in enumerate(self._bounds):
            vector = message = None
            if begun.vector is not None:
                vector, message = self._payload(begun.vector, part)
            into = None if begun.into is None else begun.into[part]
            answers.append(self._ask(shard, Ask(begun.number, begun.sequence, vector, message, into)))
            self._count(shard, vector if message is None else message, into)
        replies = tuple(answer() for answer in answers)
        if begun.device is not None:
            use_device_of(begun.device)  # in the background this is a thread of its own
            begun.device[...] = like(begun.device, begun.into)
        if begun.into is not None:
            self._read = tuple(reply.version for reply in replies)
        ended = self.scheduler.now()
        taken = ended - begin
        self.traffic.nanoseconds += taken if timed else 0
        self.traffic.operations += 1
        self.traffic.rounds += 2
        self.operations.append(ServerOperation(begun.kind, begun.number, replies, taken * 1e-9, ended))

    def _count(self, shard: int, sent: Array | None, received: Array | None) -> None:
        there, back = (0 if array is None else array.nbytes for array in (sent, received))
        self.links[shard][0] += there
        self.links[shard][1] += back
        self.traffic.bytes_sent += there
        self.traffic.bytes_received += back
        self.traffic.messages_sent += 1

    def _payload(self, vector: Array, part: slice) -> tuple[Array | None, Array | None]:
        piece = vector[part]
        if self._compressor is None:
            return piece, None
        corrected, residual = piece.astype(self._computed), self.sending.residual
        if residual is not None:
            corrected += residual[part]
        message = self._compressor.compress(corrected, self.sending.rng)
        if residual is not None:
            sent = self._compressor.decompress(message, len(corrected), corrected.dtype)
            residual[part] = corrected - self._compressor.sent(corrected, message, sent)
        return None, message

    def _flat(self, array: Any, what: str) -> Array:
        flat = host_copy(array) if on_device(array) else host_view(array)
        if flat.shape != (self._elements,):
            raise ConfigurationError(
                f"cannot {what} an array of shape {flat.shape}: the servers hold {self._elements:,} "
                "parameters, give a flat array of that size"
            )
        return flat


class _Begun(NamedTuple):
    kind: str
    number: int
    sequence: int
    vector: Array | None
    into: Array | None
    device: Any = None  # where `into` goes from host memory


@final
class BackgroundRequests(Worker):
    """Pushes and pulls beside the caller."""

    def __init__(self, server: Server) -> None:
        super().__init__(server.scheduler, server.traffic, server.timeout_seconds)
        self._server = server
        self._last: Handle | None = None
        server.scheduler.spawn(self._run, "d5ray-server")

    def push(self, vector: Any) -> Handle:
        """Start `Server.push` in the background."""
        return self._put("push", vector, None)

    def pull(self, into: Any) -> Handle:
        """Start `Server.pull` in the background."""
        return self._put("pull", None, into)

    def push_pull(self, vector: Any, into: Any) -> Handle:
        """Start `Server.push_pull` in the background."""
        return self._put("push_pull", vector, into)

    def _put(self, kind: str, vector: Any, into: Any) -> Handle:
        server = self._server
        begun = server._begin(kind, vector, into, copied=True)
        handle = self._handle(lambda: server._operate(begun, timed=False))
        self._last = handle
        self._queue.put(handle)
        return handle

    def drain(self) -> None:
        """Return when all that was started is done."""
        if self._last is not None and not self._last.done():
            self._last.wait()

    def unawaited(self) -> bool:
        """True if something is under way that nobody waits for."""
        return self._last is not None and not self._last.done() and not self.awaited

    def _run(self) -> None:
        while (handle := self._queue.get()) is not None:
            handle.run()
