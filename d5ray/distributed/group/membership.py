"""One member's place in a group: small values from the others, and the news when one of them is gone"""

import json
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, final

from d5ray.distributed.group.group import Group, Store
from d5ray.distributed.group.rendezvous import (
    FRAME_BYTES,
    MOST_KEY,
    MOST_LABEL,
    MOST_VALUE_BYTES,
    MOST_WORDS,
    PURPOSE,
)
from d5ray.distributed.group.waits import PresentWait, declared, ends
from d5ray.distributed.wire.proof import HANDSHAKE_SECONDS, LENGTH, Claim, Refused, framed, initiate
from d5ray.distributed.wire.wire import Wire
from d5ray.errors import ConfigurationError, D5Error, PeerLost

NEWS_SECONDS = 1.0  # in which the news of a loss has spread
ANSWER_SECONDS = 2.0  # in which a member that lives has said for whom it waits
LEFT_SECONDS = 1.0  # in which those who had all they need from a member that left are done with it
REFUSED_SECONDS = 2.0  # for which a store that nobody listens at is asked again
CROWDED_SECONDS = 30.0  # for which one is that hangs up, since too many want to be heard
CLOSED = "the process that holds the group together is gone"


@final
class Membership:
    """A connection to the group's `Rendezvous`, held open until `leave`: breaking it is being lost.

    Keys are the group's own: (name, epoch) separates groups. Every wait is bounded by the group's time-out.
    News come in a background thread, to all members in the same order. Both ends prove the run's secret
    before anything else is said, and everything travels under TLS.
    """

    def __init__(self, group: Group) -> None:
        if group.store is None:
            raise ConfigurationError(
                f"the group {group.name!r} has no store: give the address of a Rendezvous where its members "
                "meet"
            )
        self.group = group
        self.left: list[int] = []  # the members that left, in that order
        self._left_since = 0.0
        self._failure: D5Error | None = None
        self._values: dict[str, bytes] = {}
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._ended = False
        self._listeners: list[Callable[[], None]] = []
        self.waits: Callable[[], list[PresentWait]] = self.own_waits  # of this member, for the others
        self._taking: tuple[Sequence[int], str] | None = None  # from whom, what
        self._asked = 0  # how often this member has asked who waits
        self._doubtful = 0.0  # until when the news may come of a member that another one asks for
        if len(group.label) > MOST_LABEL:
            raise ConfigurationError(
                f"the group's name and epoch have {len(group.label)} characters: at most {MOST_LABEL}"
            )
        claim = Claim(PURPOSE, group.label, group.rank)
        self._wire = _connect(group.store, claim, group.timeout_seconds)
        self._send(["enter", group.label, group.rank, group.size])
        threading.Thread(target=self._listen, name="d5ray-membership", daemon=True).start()

    # -- values ----------------------------------------------------------------------------------------

    def put(self, key: str, value: bytes) -> None:
        """Leave a value for the members: at most `MOST_VALUE_BYTES`, under a key of its own."""
        if len(value) > MOST_VALUE_BYTES or len(key) > MOST_KEY:
            raise ConfigurationError(
                f"the value of {key[:MOST_KEY]!r} has {len(value):,} bytes: members leave each other small "
                f"ones, of at most {MOST_VALUE_BYTES:,}"
            )
        self._send(["put", key, value.decode("latin-1")])

    def take(self, key: str, seconds: float | None = None) -> bytes:
        """The value of a key, waiting until somebody has put it; it stays there for others.

        Raises what `failure` is once a member is gone, `PeerLost` when one left without having put it, or
        when it takes longer than the time-out.
        """
        return self._take(key, None, seconds)

    def gather(self, key: str, value: bytes) -> list[bytes]:
        """Every member's value, by rank; all call it with the same key, which is used once."""
        self.put(f"{key}/{self.group.rank}", value)
        return [self._take(f"{key}/{rank}", rank, None) for rank in range(self.group.size)]

    def _take(self, key: str, giver: int | None, seconds: float | None) -> bytes:
        seconds = self.group.timeout_seconds if seconds is None else seconds
        deadline = time.monotonic() + seconds
        if key not in self._values:
            self._send(["take", key])
            self._taking = self._others if giver is None else (giver,), key
        try:
            with self._news:
                self._news.wait_for(
                    lambda: key in self._values or self._troubled() or self._ended, timeout=seconds
                )
                if self._ended and self._failure is None:
                    raise PeerLost(self.group.rank, "this member has left the group")
                if self.left:  # what they have put is on its way
                    soon = min(NEWS_SECONDS, max(0.0, deadline - time.monotonic()))
                    self._news.wait_for(
                        lambda: key in self._values or self._failure is not None, timeout=soon
                    )
                if key in self._values:
                    return self._values[key]
        finally:
            self._taking = None
        self.check(*range(self.group.size))
        raise PeerLost(giver, f"nobody gave {key!r} to the group {self.group.label!r} within {seconds:g} s")

    # -- news ------------------------------------------------------------------------------------------

    @property
    def failure(self) -> D5Error | None:
        """Why the group cannot go on, the same on all members: one is lost or failed; or left a while ago."""
        if self._failure is None and self.left and time.monotonic() > self._left_since + LEFT_SECONDS:
            return _left(self.left[0])
        return self._failure

    def check(self, *awaited: int) -> None:
        """Raise the group's failure if there is one, or `PeerLost` if one of the ranks awaited has left."""
        for rank in self.left if awaited and self._failure is None else ():
            if rank in awaited:
                raise _left(rank)
        if (failure := self.failure) is not None:
            raise failure.with_traceback(None)

    def explain(self, error: D5Error) -> D5Error:
        """The cause of a broken exchange: the news about who is gone or failed, else `error` itself."""
        with self._news:
            while not self._news.wait_for(lambda: self._troubled() or self._ended, timeout=NEWS_SECONDS):
                if time.monotonic() > self._doubtful:
                    break
            return self._failure or (_left(self.left[0]) if self.left else error)

    # -- who waits for whom ----------------------------------------------------------------------------

    def own_waits(self) -> list[PresentWait]:
        """The wait for a value of the others, if this member is in one; called from another thread."""
        return declared(self.group, self._taking)

    def silent(self, awaited: Sequence[int], call: object) -> PeerLost:
        """The error where these members were waited for in vain, in this call, up to the time-out.

        Who waits too is not to blame: the others are asked for whom they wait, and waits are followed to
        their end, a member that waits for nobody or does not answer.
        """
        waiting, group = self._who_waits(), self.group
        agents = [group.agent(rank) for rank in range(group.size)]
        found = ends([agents[rank] for rank in awaited], {r: a for r, a in waiting.items() if a})
        blamed = min(found, key=lambda agent: agent in waiting) if found else agents[awaited[0]]
        if blamed not in agents:  # in another group, in which one of these waits
            return PeerLost(None, f"no sign of life from rank {blamed} for {group.timeout_seconds:g} s")
        idle = f"it took no part in {call}" if blamed in waiting else "no sign of life"
        return PeerLost(agents.index(blamed), f"{idle} for {group.timeout_seconds:g} s")

    def _who_waits(self) -> dict[int, list[int]]:
        """For whom the agents of the group wait that answer, by rank among all agents."""
        self._asked += 1
        question = f"who waits/{self.group.rank}/{self._asked}"
        keys = {f"{question}/{rank}": self.group.agent(rank) for rank in self._others}
        self._send(["who waits", question])
        for key in keys:
            self._send(["take", key])
        with self._news:
            self._news.wait_for(
                lambda: self._failure is not None or all(key in self._values for key in keys),
                timeout=ANSWER_SECONDS,
            )
            answers = {agent: self._values.pop(key) for key, agent in keys.items() if key in self._values}
        own = {self.group.agent(self.group.rank): _agents(self.waits())}
        return {agent: json.loads(answer) for agent, answer in answers.items()} | own

    def _answer(self, question: str) -> None:
        """Tell another member for whom this one waits."""
        self._doubtful = time.monotonic() + ANSWER_SECONDS + NEWS_SECONDS
        told = json.dumps(_agents(self.waits())).encode()
        self._send(["put", f"{question}/{self.group.rank}", told.decode("latin-1")])

    # --------------------------------------------------------------------------------------------------

    def fail(self, error: D5Error) -> None:
        """Tell all members that the group cannot go on, and why; they raise the same.

        The first failure counts: it is this member's `failure` too when this returns.
        """
        rank, text = (error.rank, error.detail) if isinstance(error, PeerLost) else (None, str(error))
        self._send(["failed", type(error).__name__, rank, text[:MOST_WORDS]])
        with self._news:
            self._news.wait_for(lambda: self._failure is not None, timeout=NEWS_SECONDS)
        self._note(error)

    def on_failure(self, call: Callable[[], None]) -> None:
        """Call this, in another thread, when a member is lost or fails; at once if one is."""
        with self._news:
            self._listeners.append(call)
            late = self._failure is not None
        if late:
            call()

    def leave(self) -> None:
        """End the membership: the others are told that this member left."""
        if not self._ended:
            with self._news:
                self._ended = True
                self._news.notify_all()  # another thread may wait for a value
            self._send(["leave"])
            self.waits, self._listeners = self.own_waits, []  # what belongs to the group is nobody's any more

    # --------------------------------------------------------------------------------------------------

    @property
    def _others(self) -> list[int]:
        return [rank for rank in range(self.group.size) if rank != self.group.rank]

    def _troubled(self) -> bool:
        return self._failure is not None or bool(self.left)

    def _send(self, words: list[Any]) -> None:
        try:
            with self._sending:
                self._wire.send(framed(words))
        except (OSError, PeerLost):
            self._wire.shut()  # what has come is heard first: it may say why

    def _listen(self) -> None:
        """Runs in a thread until the connection ends."""
        try:
            header = bytearray(LENGTH.size)
            while self._wire.fill(header, may_end=True):
                (length,) = LENGTH.unpack(header)
                if length > FRAME_BYTES:
                    break
                words = bytearray(length)
                self._wire.fill(words)
                self._hear(json.loads(words))
        except (OSError, ValueError, RecursionError, D5Error):
            pass
        finally:
            self._wire.close()
        if not self._ended:
            self._note(PeerLost(None, CLOSED))

    def _hear(self, words: list[Any]) -> None:
        match words:
            case ["value", str(key), str(value)]:
                with self._news:
                    self._values[key] = value.encode("latin-1")
                    self._news.notify_all()
            case ["left", int(rank)]:
                with self._news:
                    self._left_since = self._left_since or time.monotonic()
                    self.left.append(rank)
                    self._news.notify_all()
            case ["who waits", str(question)]:
                self._answer(question)
            case ["failed", str(kind), int() | None as rank, str(text)]:
                self._note(_error(kind, rank, text))

    def _note(self, failure: D5Error) -> None:
        with self._news:
            if self._failure is not None:
                return
            self._failure = failure
            self._news.notify_all()
            listeners = list(self._listeners)
        for call in listeners:
            call()


def _agents(waits: Sequence[PresentWait]) -> list[int]:
    return sorted({agent for wait in waits for agent in wait.agents})


def _error(kind: str, rank: int | None, text: str) -> D5Error:
    if kind == "PeerLost":
        return PeerLost(rank, text)
    return ConfigurationError(text) if kind == "ConfigurationError" else D5Error(text)


def _left(rank: int) -> PeerLost:
    return PeerLost(rank, "it left the group")


def _connect(store: Store, claim: Claim, seconds: float) -> Wire:
    """A wire to the store."""
    begin = time.monotonic()
    place = f"the store at {store.host}:{store.port}"
    while True:
        left = max(0.1, begin + seconds - time.monotonic())
        connection = None
        try:
            connection = socket.create_connection((store.host, store.port), timeout=left)
            bound = min(left, HANDSHAKE_SECONDS)
            wire = initiate(connection, store.secret, claim, bound, kept_seconds=seconds, apart=True)
        except Refused as error:
            raise PeerLost(None, f"{place} is none of this run: {error}") from None
        except (OSError, PeerLost) as error:
            patience = CROWDED_SECONDS if connection is not None else seconds
            if isinstance(error, ConnectionRefusedError):
                patience = REFUSED_SECONDS
            if time.monotonic() - begin > min(seconds, patience) - 0.1:
                raise PeerLost(None, f"{place} does not answer: {error}") from error
            time.sleep(0.05)
        else:
            wire.bound(None)
            return wire
