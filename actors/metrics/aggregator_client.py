"""The driver's side of a run's aggregator: an actor, those that follow it, or at last one in this process"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa
from ray.exceptions import RayError

from d5ray.actors.calls import CALL_SECONDS, ActorDied, get
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.keeper import GONE_SECONDS, AggregatorKeeper
from d5ray.actors.metrics.running import ACTOR_NAME, CONTROL
from d5ray.actors.metrics.sink import ToAggregator
from d5ray.actors.session import session
from d5ray.errors import AgentError, D5Error, DiskFull, RayLost, StorageError, first_line
from d5ray.metrics.record.delivery import RETRY_SECONDS, Delivery
from d5ray.metrics.record.files import ROOM_SECONDS
from d5ray.metrics.record.run_clock import RunClock
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter

Row = dict[str, Any]
NOW_SECONDS: Final = 2.0  # for an event that is noted before its cause
DIED: Final = "agent_died"


@final
class AggregatorClient:
    """The driver's side of the aggregator: writes into the run's folder and asks about it.

    A call whose aggregator died is made again when another stands in its place (`AggregatorKeeper`), and one
    that finds the disk full as long as that may have room again. folder: the run's. start_again: starts
    another actor. seconds: for another to come, or for the disk to have room. stuck_seconds: without an
    answer until an aggregator is taken for dead; 0: as many as `seconds`.
    """

    def __init__(
        self,
        folder: Path,
        start_again: Callable[[], Any],
        seconds: float,
        stuck_seconds: float,
        clock: RunClock,
    ) -> None:
        self._folder, self._seconds, self._clock = folder, seconds, clock
        stuck_seconds = stuck_seconds or seconds
        self._keeper = AggregatorKeeper(
            start_again, self.note, self._restored, self._send, seconds, stuck_seconds
        )
        self._lock = threading.Lock()  # of the notes, which the keeper's thread makes and sends as well
        self._notes: Delivery
        self._early: list[tuple[str, pa.RecordBatch]] | None = []  # notes, until the run's folder is there
        self._patience = seconds + stuck_seconds  # with notes, as an aggregator may be stuck, and then die
        self._served: dict[str, str] = {}
        self._watched: tuple[Any, ...] = ()  # what `watch_node` was called with
        self._phase = ""
        self._own: MetricsAggregator | None = None  # in this process, when Ray has ended

    @property
    def actor(self) -> Any:
        """The actor, as it is now."""
        return self._keeper.actor

    def begin(self, actor: Any) -> None:
        """Take this actor, and let it be watched."""
        self._notes = Delivery(ToAggregator(actor, ACTOR_NAME, self._folder.name), self._patience)
        self._keeper.begin(actor)

    def end(self) -> None:
        """Watch the actor no more; no other is started. Harmless twice."""
        self._keeper.end()

    def check(self) -> None:
        """Raise what ends the run: no aggregator can be started, or the disk stays full."""
        self._keeper.check()

    def open(self, row: Row, environments: dict[str, dict[str, str]]) -> None:
        """Begin the run's folder; environments: keys and values of every node, by host name."""
        rows = [
            {"run_id": self._folder.name, "node": node, "key": key, "value": value}
            for node, facts in environments.items()
            for key, value in facts.items()
        ]
        self._ask("open the run", "open", row, table_of("environment", rows))
        with self._lock:
            early, self._early = self._early, None
            for method, event in early or ():
                self._notes.put(method, event)

    def serve(self, bind: str) -> dict[str, str]:
        """Let the aggregator answer queries by Arrow Flight; gives location and token."""
        self._served = self._ask("serve queries", "serve", bind, group=CONTROL)
        return self._served

    def watch_node(self, node: str, seconds: float, pids: Mapping[str, int]) -> None:
        """Let the aggregator watch the driver's node, see `NodeMonitor`; so does one in its place."""
        self._watched = node, seconds, pids
        self._ask("watch its node", "watch_node", *self._watched)

    def phase(self, name: str) -> None:
        """Let the monitor of the driver's node record under this phase from now on. Waits for nobody."""
        self._phase = name
        self.actor.phase.remote(name)

    def stop_watching(self) -> None:
        """Let the monitor of the driver's node read once more, and end."""
        self._ask("end its watch", "stop")
        self._watched = ()

    def wanted(self) -> Any:
        """A reference to the number of agents that somebody requested, or None."""
        return self.actor.wanted.options(concurrency_group=CONTROL).remote()

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        found: dict[str, pa.Table] = self._ask("give its tables", "tables")
        return found

    def note(self, name: str, rank: int, **detail: object) -> None:
        """Keep an event of the run as a whole; rank: of whom it tells, or -1. Waits for nobody."""
        method, event = "append_deaths" if name == DIED else "append_events", self._event(name, rank, detail)
        if self._own is not None:
            getattr(self._own, method)(event)
            return
        with self._lock:
            if self._early is not None:
                self._early.append((method, event))
            else:
                self._notes.put(method, event)

    def note_now(self, name: str, rank: int, **detail: object) -> None:
        """Keep an event, and wait some seconds at most until it is kept: this process may end next."""
        self.note(name, rank, **detail)
        bound = time.monotonic() + NOW_SECONDS
        while self._send() and time.monotonic() < bound:
            time.sleep(0.01)

    def received(self) -> dict[tuple[str, int], int]:
        """Rows received of each agent."""
        try:
            session.check_alive()  # actors may answer for some time after the head's end, but not to the last
            self._sent()
            received: dict[tuple[str, int], int] = self._ask("count its rows", "received")
        except (AgentError, RayLost) as error:
            received = self._take_over(error).received()
        return received

    def close(self, row: Row, verdicts: pa.Table) -> None:
        """Write the end of the run."""
        if self._own is None:
            try:
                self._ask("complete the run", "close", row, verdicts, first=self._sent)
                return
            except (AgentError, RayLost) as error:
                self._take_over(error)
        assert self._own is not None
        self._own.close(row, verdicts)

    def close_without_rows(self, row: Row) -> None:
        """Write how the run ended where its rows cannot be taken over, since another process holds them."""
        del row["rows"]  # nobody has counted them
        RunWriter(self._folder.parent, self._folder.name).update_run(**row)

    # --------------------------------------------------------------------------------------------------

    def _ask(
        self,
        doing: str,
        method: str,
        *given: Any,
        group: str | None = None,
        first: Callable[[], None] = lambda: None,
    ) -> Any:
        """The answer of the aggregator; of another, where this one dies. first: done before each is asked."""
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                return self._answer(doing, method, given, group, first)
            except DiskFull:
                self.check()  # it may have been full for long
                if time.monotonic() > deadline:
                    raise
            time.sleep(ROOM_SECONDS)

    def _answer(
        self, doing: str, method: str, given: tuple[Any, ...], group: str | None, first: Callable[[], None]
    ) -> Any:
        while True:
            first()
            actor = self.actor
            call = getattr(actor, method)
            if group is not None:
                call = call.options(concurrency_group=group)
            try:
                return get([call.remote(*given)], CALL_SECONDS + self._patience, doing)[0]
            except ActorDied:
                self.check()
                if not self._keeper.another(actor):
                    raise

    def _send(self) -> bool:
        """Send what was noted, without waiting; True while something is not acknowledged."""
        with self._lock:
            return self._early is None and self._notes.pump()

    def _sent(self) -> None:
        """Return when what was noted is stored."""
        while self._send():
            self.check()
            if self._keeper.ended and self._notes.away:
                raise AgentError("the run's aggregator died, and none is to come in its place")
            time.sleep(RETRY_SECONDS / 10)

    def _take_over(self, error: Exception) -> MetricsAggregator:
        """Go on in this process, where there is no actor any more, and say so."""
        self.end()
        if session.lost():
            session.end_processes()  # the aggregator's too, which holds the files
        self._own = self._in_this_process()
        for method, given in self._notes.left():
            getattr(self._own, method)(*given)
        if session.lost():
            self._own.append_events(self._event("ray_lost", -1, {"reason": first_line(error)}))
        return self._own

    def _in_this_process(self) -> MetricsAggregator:
        """One that has the run's files, as soon as a process that is being ended has let go of them."""
        deadline = time.monotonic() + GONE_SECONDS
        while True:
            try:
                return MetricsAggregator(
                    str(self._folder.parent), self._folder.name, again=True, clock=self._clock
                )
            except StorageError as error:
                if not isinstance(error.__cause__, BlockingIOError) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _restored(self, actor: Any) -> None:
        """Let another aggregator do what the one before did beside the rows."""
        if self._served:
            bind = self._served["location"].removeprefix("grpc+tcp://")
            call = actor.serve.options(concurrency_group=CONTROL).remote(bind, self._served["token"])
            with suppress(D5Error, RayError):  # another program may have taken the port
                get([call], CALL_SECONDS, "serve queries")
        if self._watched:
            actor.watch_node.remote(*self._watched)
            actor.phase.remote(self._phase or "run")

    def _event(self, name: str, rank: int, detail: dict[str, object]) -> pa.RecordBatch:
        now = time.perf_counter_ns()
        row = {
            "run_id": self._folder.name, "agent": "driver", "rank": rank, "name": name,
            "t_wall": now + self._clock.wall_minus_mono, "t_mono": now, "detail": json.dumps(detail),
        }  # fmt: skip
        return table_of("events", [row]).combine_chunks().to_batches()[0]
