"""Running runs of a Ray cluster, queried through their aggregators from anywhere in it"""

import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, final

import ray

from d5ray.actors.calls import ActorDied, get
from d5ray.actors.session import session
from d5ray.checks import shown
from d5ray.errors import FEW, ConfigurationError, D5Error, StorageError, nearest
from d5ray.metrics.queries.run_queries import Queryable
from d5ray.metrics.queries.source import Answer, Limits, QuerySource
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.reader import Run, list_runs

ACTOR_NAME = "MetricsAggregator"  # the actor's name, in the namespace of its run
QUESTIONS, CONTROL = "questions", "control"  # its concurrency groups: neither holds up what agents send
RESTORED_SECONDS = 10.0  # for another aggregator to stand in the place of one that died
LOOK_SECONDS = 0.2  # between two looks whether it does
ANSWER_SECONDS = 120.0  # for a query and those before it, of which each has 30 s


@final
class RunningRun(Queryable):
    """A run that is going on, asked through its aggregator; a query sees what has been stored by then."""

    def __init__(self, name: str, aggregator: Any) -> None:
        self.name, self.aggregator = name, aggregator

    def __repr__(self) -> str:
        return f"RunningRun({self.name!r})"

    def serve(self, bind: str = "0") -> Run:
        """Let the run answer by Arrow Flight at PORT or HOST:PORT, for programs outside of the cluster.

        Gives the run as such a program sees it; its folder has the address and the token in `flight.json`.
        """
        call = self.aggregator.serve.options(concurrency_group=CONTROL).remote(bind)
        served = get([call], ANSWER_SECONDS, "serve queries")[0]
        return Run(served["location"], token=served["token"])

    def _source(self, limits: Limits | None = None) -> QuerySource:
        return _Aggregator(self.name, self.aggregator)


@final
class _Aggregator(QuerySource):
    def __init__(self, name: str, actor: Any) -> None:
        self._name, self._actor = name, actor
        self._by = uuid.uuid4().hex

    @contextmanager
    def ask(self, query: str) -> Iterator[Answer]:
        try:
            table = self._answer(query)
        except ActorDied:
            self._actor = self._another()
            table = self._answer(query)
        yield Answer(table.schema, iter(table.to_batches()))

    def _answer(self, query: str) -> Any:
        call = self._actor.ask.options(concurrency_group=QUESTIONS).remote(query, self._by)
        return get([call], ANSWER_SECONDS, "answer a query")[0]

    def _another(self) -> Any:
        """The aggregator that was started in the place of one that died, unless the run's folder, where it is
        on this machine, says that the run has ended.
        """
        deadline = time.monotonic() + RESTORED_SECONDS
        while time.monotonic() < deadline:
            with suppress(ValueError):  # the run has ended, or the next is not there yet
                found = ray.get_actor(ACTOR_NAME, namespace=self._name)
                if found._actor_id != self._actor._actor_id:
                    return found
            if _has_ended(self._name):
                break
            time.sleep(LOOK_SECONDS)
        raise StorageError(
            f"the run {self._name} has ended, or its aggregator died and no other was there within "
            f"{RESTORED_SECONDS:g} s: ask again, or ask its folder, d5.Run({self._name!r})"
        )

    def interrupt(self) -> None:
        with suppress(D5Error):
            call = self._actor.interrupt.options(concurrency_group=CONTROL).remote(self._by)
            get([call], ANSWER_SECONDS, "interrupt a query")

    def close(self) -> None:
        """Nothing is open."""


def running(name: str = "last", address: str | None = None) -> RunningRun:
    """The running run of a Ray cluster with this name, or beginning of a name; "last": the newest.

    address: of the cluster, HOST:PORT, or "auto" for one of this machine; by default the Ray that this
    program uses, RAY_ADDRESS, or the one that the run's folder names. Raises `ConfigurationError` if no such
    run is running, and `PlacementError` if no Ray answers.
    """
    if not ray.is_initialized() or address is not None:
        where = address or os.environ.get("RAY_ADDRESS") or _address_of(name)
        session.connect(where, cpus=0, metadata={"asks": name}, quiet=True)
    named = ray.util.list_named_actors(all_namespaces=True)
    there = sorted(actor["namespace"] for actor in named if actor["name"] == ACTOR_NAME)
    fitting = [run for run in there if run == name] or [run for run in there if run.startswith(name)]
    if name == "last" and there:
        fitting = [max(there, key=lambda run: run.rsplit("-", 3)[1:3])]
    if len(fitting) > 1:
        raise ConfigurationError(
            f"Several running runs begin with {name!r}: {', '.join(fitting)}: write more"
        )
    if not fitting:
        raise ConfigurationError(f"No run {name!r} is going on in this cluster: {nearest(name, there, FEW)}")
    return RunningRun(fitting[0], ray.get_actor(ACTOR_NAME, namespace=fitting[0]))


def _address_of(name: str) -> str:
    """The address of the Ray in which the run goes on, by its folder; raises `ConfigurationError` without."""
    runs = list_runs()
    fitting = [run for run in runs if name in (run.name, "last")]
    rows = [run.row for run in fitting or [run for run in runs if run.name.startswith(name)]]
    for row in rows:  # the newest first
        if row["status"] == "running" and row["ray_address"]:
            return str(row["ray_address"])
    if not rows:
        near = nearest(name, [run.name for run in runs], FEW)
        why = f"There is no run {shown(name)} in {runs_root()}: {near}"
    elif rows[0]["status"] == "running":
        why = f"The run {rows[0]['run_id']} has no Ray: it is a simulation, or has not begun to train"
    else:
        why = f"The run {rows[0]['run_id']} is not going on, its status is {rows[0]['status']}"
    raise ConfigurationError(
        f"{why} (for a run of another machine give the address of its Ray cluster, HOST:PORT or 'auto')"
    )


def _has_ended(name: str) -> bool:
    """Whether the run's folder says so; False where it is on another machine."""
    try:
        return bool(Run.find(name).row.get("status", "running") != "running")
    except D5Error:
        return False
