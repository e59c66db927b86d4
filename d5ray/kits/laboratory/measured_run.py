"""The folder of a run that measures contenders in turn, from its row to its verdict"""

import platform
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, final

from d5ray.actors.group.run_row import RunOrigin, new_run_id, run_row
from d5ray.actors.session.session import Session
from d5ray.metrics.definitions.catalogue import catalogue_rows
from d5ray.metrics.judge.criteria import Criterion, Verdict
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.record import store
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.recipes.engine.recipe import judged, overall


@final
class MeasuredRun:
    """A run that is kept while it is measured; its folder is there from `open` on.

    name: of its recipe; job: what is measured, as JSON data; agents: processes that work at a time.
    connect: gives the Ray that it uses, of the metadata of the run; facts: further rows of `environment`.
    """

    def __init__(
        self,
        name: str,
        origin: RunOrigin,
        job: Mapping[str, Any],
        *,
        seed: int,
        agents: int,
        connect: Callable[[dict[str, str]], Session],
        facts: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        root = store.runs_root()
        store.check_writable(root)
        run_id, started = new_run_id(name), datetime.now(UTC)
        self.session = connect({"recipe": origin.recipe, "recipe_hash": origin.recipe_hash, "run": run_id})
        self._environment = {**capture(), **facts()}
        self._row = run_row(
            run_id=run_id,
            origin=origin,
            job=job,
            seed=seed,
            status="running",
            started=started,
            ray_address=self.session.address,
            dashboard=self.session.dashboard,
            agents=agents,
            environment=self._environment,
        )
        self.writer = store.RunWriter(root, run_id)
        self.is_open = False

    @property
    def kept(self) -> store.Run:
        """The run as it lies in its folder."""
        return store.Run(self.writer.folder)

    def open(self, metrics: Iterable[dict[str, Any]], facts: Mapping[str, str] | None = None) -> None:
        """Begin the folder. metrics: rows of `metrics` besides the catalogue; facts: of `environment`."""
        self.writer.open(self._row, [*catalogue_rows(), *metrics])
        known = [
            {"run_id": self.writer.run_id, "node": platform.node(), "key": key, "value": value}
            for key, value in {**self._environment, **(facts or {})}.items()
        ]
        self.writer.write_table("environment", table_of("environment", known))
        self.is_open = True

    def recorder(self, agent: str, rank: int = 0, attempt: int = 0) -> Recorder:
        """A recorder of rows of this run, that a process of this machine measured."""
        return Recorder(
            run_id=self.writer.run_id,
            agent=agent,
            rank=rank,
            node=platform.node(),
            attempt=attempt,
            send=self.writer.append,
            send_events=self.writer.append_events,
        )

    def close(
        self, status: str, reason: str, criteria: tuple[Criterion, ...] | None = None
    ) -> tuple[str | None, tuple[Verdict, ...]]:
        """End the folder: its verdict and those of the criteria; None of a run that nothing is wanted of."""
        tables = self.kept.tables()
        verdicts = judged(criteria or (), tables, status)
        verdict = None if criteria is None else overall(verdicts, status)
        self.writer.write_table("verdicts", table_of("verdicts", [each.row for each in verdicts]))
        self.writer.update_run(
            status=status,
            stop_reason=reason or None,
            verdict=verdict,
            ended=datetime.now(UTC),
            rows=tables["samples"].num_rows,
        )
        self.writer.close()
        return verdict, verdicts
