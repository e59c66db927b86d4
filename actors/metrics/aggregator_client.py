"""The driver's side of a run's aggregator: an actor, and after its death one in this process"""

import json
import time
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from d5ray.actors.calls import CALL_SECONDS, ActorDied, get
from d5ray.actors.metrics.aggregator import MetricsAggregator
from d5ray.actors.metrics.running import CONTROL
from d5ray.actors.session import session
from d5ray.errors import AgentError, RayLost, first_line
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter

Row = dict[str, Any]


@final
class AggregatorClient:
    """The driver's side of the aggregator: writes into the run's folder and asks about it. actor: its."""

    def __init__(self, actor: Any, folder: Path) -> None:
        self.actor = actor
        self._folder = folder
        self._own: MetricsAggregator | None = None  # in the place of an actor that died

    def open(self, row: Row, environments: dict[str, dict[str, str]]) -> None:
        """Begin the run's folder; environments: keys and values of every node, by host name."""
        rows = [
            {"run_id": self._folder.name, "node": node, "key": key, "value": value}
            for node, facts in environments.items()
            for key, value in facts.items()
        ]
        get([self.actor.open.remote(row, table_of("environment", rows))], CALL_SECONDS, "open the run")

    def serve(self, bind: str) -> dict[str, str]:
        """Let the aggregator answer queries by Arrow Flight; gives location and token."""
        call = self.actor.serve.options(concurrency_group=CONTROL).remote(bind)
        served: dict[str, str] = get([call], CALL_SECONDS, "serve queries")[0]
        return served

    def tables(self) -> dict[str, pa.Table]:
        """All tables of the run, by name."""
        found: dict[str, pa.Table] = get([self.actor.tables.remote()], CALL_SECONDS, "give its tables")[0]
        return found

    def note(self, name: str, rank: int, **detail: object) -> None:
        """Keep an event of the run as a whole; rank: of whom it tells, or -1."""
        event = self._event(name, rank, detail)
        if self._own is not None:
            self._own.append_events(event)
        else:
            get([self.actor.append_events.remote(event)], CALL_SECONDS, "keep an event")

    def received(self, row: Row) -> dict[tuple[str, int], int]:
        """Rows received of each agent; row: the run's, for one that goes on in the place of an actor."""
        try:
            session.check_alive()  # actors may answer for some time after the head's end, but not to the last
            call = self.actor.received.remote()
            received: dict[tuple[str, int], int] = get([call], CALL_SECONDS, "count its rows")[0]
        except (AgentError, RayLost) as error:
            received = self._take_over(row, error).received()
        return received

    def close(self, row: Row, verdicts: pa.Table) -> None:
        """Write the end of the run."""
        if self._own is None:
            try:
                get([self.actor.close.remote(row, verdicts)], CALL_SECONDS, "complete the run")
                return
            except (ActorDied, RayLost) as error:
                if (self._folder / "samples.parquet").exists():  # it died as it wrote the last tables
                    RunWriter(self._folder.parent, self._folder.name).update_run(**row)
                    return
                self._take_over(row, error)
        assert self._own is not None
        self._own.close(row, verdicts)

    def close_without_rows(self, row: Row) -> None:
        """Write how the run ended where its rows cannot be taken over, since another process holds them."""
        del row["rows"]  # nobody has counted them
        RunWriter(self._folder.parent, self._folder.name).update_run(**row)

    def _take_over(self, row: Row, error: Exception) -> MetricsAggregator:
        """Go on in this process where the actor stopped, and say so."""
        if session.lost():
            session.end_processes()  # the aggregator's too, which holds the files
        self._own = MetricsAggregator(str(self._folder.parent), self._folder.name)
        self._own.resume(row)
        name = "ray_lost" if session.lost() else "aggregator_died"
        self._own.append_events(self._event(name, -1, {"reason": first_line(error)}))
        return self._own

    def _event(self, name: str, rank: int, detail: dict[str, object]) -> pa.RecordBatch:
        row = {
            "run_id": self._folder.name, "agent": "driver", "rank": rank, "name": name,
            "t_wall": time.time_ns(), "t_mono": time.perf_counter_ns(), "detail": json.dumps(detail),
        }  # fmt: skip
        return table_of("events", [row]).combine_chunks().to_batches()[0]
