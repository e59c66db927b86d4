"""The runs that the page has open: what was asked of one is kept until something new has come"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, final

import pyarrow as pa

from d5ray.errors import FEW, ConfigurationError, D5Error, nearest
from d5ray.metrics.judge.partners import partners
from d5ray.metrics.judge.run_series import RunSeries, find
from d5ray.metrics.queries.source import Limits, while_wanted
from d5ray.metrics.record.folders import runs_root
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.views import communication, key_figures, steps, time_series, verdicts
from d5ray.metrics.views import samples as rows
from d5ray.metrics.views.view import RunView

WHOLE: dict[str, Any] = {"over": "step", "low": None, "high": None}  # as the page asks at first
MOST_OPEN = 8
MOST_KEPT = 200  # answers of one run
LOOK_SECONDS = 0.4  # that a look for new rows may take; what it does not reach comes with the next one
JUDGE_SECONDS = 2.0  # between two verdicts of a run that goes on, at least
REST = 4.0  # times what the last answers took, before a run that goes on is asked again
SEEN_SECONDS = 60.0  # until what a viewer may ask for next is prepared, though nobody has looked yet
DRAWN_SECONDS = 1.0  # that a browser has for drawing the first view, before that takes a core
END_SECONDS = 5.0  # for that to end when the run is closed
LONG = 100_000  # rows from which on it pays to prepare something
LIST_SECONDS = 5.0  # for which the list of all runs is believed
MOST_ROWS: Final = 500  # of an answer to SQL
SQL_SECONDS: Final = 20.0  # for one


@final
class OpenRun:
    """An open run of the page. Threads may share it."""

    def __init__(self, run: Run) -> None:
        self.view = RunView(run, LOOK_SECONDS)
        self._kept: OrderedDict[Any, tuple[int, Any]] = OrderedDict()
        self._lock = threading.RLock()
        self._busy, self._rest = 0.0, 0.0
        self.seen = threading.Event()  # by somebody
        self._closed = threading.Event()
        self._warming: threading.Thread | None = None
        self._judged: tuple[float, float, int, pa.Table] | None = None  # when, for how long, version, verdict

    @property
    def name(self) -> str:
        """The run's name."""
        return self.view.name

    def ask(self, function: Callable[..., Any], **arguments: Any) -> Any:
        """The result of a view's function for this run; callers at the same time get the same answer."""
        key = function, tuple(sorted(arguments.items()))
        with self._lock:
            version = self.view.version
            found = self._kept.get(key)
            if found is not None and found[0] == version:
                return found[1]
            begin = time.monotonic()
            answer = function(self.view, **arguments)
            self._busy += time.monotonic() - begin
            self._kept[key] = version, answer
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        return answer

    def refresh(self) -> int:
        """Look for what is new; the version of what is known then.

        A run goes on while it is looked at: drawing it may take a share of one core, and no more.
        """
        now = time.monotonic()
        if self.view.running and now >= self._rest:
            with self._lock:
                self.view.refresh(LOOK_SECONDS)
                self._rest, self._busy = now + REST * self._busy, 0.0
        return self.view.version

    def verdict(self) -> pa.Table:
        """The verdict so far, which need not be of the last moment: judging may take a while."""
        now, known = time.monotonic(), self._judged
        if known is not None:
            at, took, version, table = known
            if version == self.view.version or now < at + max(JUDGE_SECONDS, 10 * took):
                return table
        version = self.view.version
        table = verdicts.so_far(self.view)
        end = time.monotonic()
        self._judged = end, end - now, version, table
        return table

    def warm(self) -> None:
        """Ask for what is looked at first, before somebody does, in a thread that ends with `close`."""
        self._warming = threading.Thread(target=self._warm, name="d5ray-dashboard-warm", daemon=True)
        self._warming.start()

    def _warm(self) -> None:
        try:
            self.ask(time_series.thinned, metric="loss", **WHOLE)
            length = self.ask(key_figures.figures)["rows"] or 0
            self.ask(time_series.throughput, **WHOLE)
            self.ask(time_series.thinned, metric=self.ask(key_figures.evaluated), **WHOLE)
            self.ask(steps.parts, **WHOLE)
            self.verdict()
            self.seen.wait(SEEN_SECONDS)
            if self._closed.wait(DRAWN_SECONDS):
                return
            if length >= LONG:
                steps.prepare(self.view)
            for function in (time_series.metrics, communication.actors, communication.edges):
                self.ask(function)
            for column in ("metric", "rank", "phase"):
                self.ask(rows.distinct, column=column)
            self.ask(rows.span, chosen=rows.Filter())
            over_time = {**WHOLE, "over": "seconds"}
            self.ask(time_series.thinned, metric="step_time", **WHOLE)
            self.ask(time_series.thinned, metric="loss", **over_time)
            self.ask(time_series.throughput, **over_time)
        except Exception as error:  # a closed connection, or a run that cannot be read: whoever asks is told
            logging.getLogger(__name__).debug("not warmed: %s", error)

    def close(self) -> None:
        """Give back the run's memory."""
        self._closed.set()
        self.seen.set()
        self.view.close()
        if self._warming is not None:
            self._warming.join(END_SECONDS)


@final
class Runs:
    """All runs of a folder, of which the last few that were looked at are open."""

    def __init__(self, root: Path | None = None) -> None:
        self.root = runs_root() if root is None else root
        self._open: OrderedDict[str, OpenRun] = OrderedDict()
        self._lock = threading.Lock()
        self._listed: tuple[float, list[dict[str, Any]]] = -LIST_SECONDS, []
        self._elsewhere: dict[str, Path] = {}  # runs in folders of their own, by name

    def found(self, name: str) -> str:
        """The whole name of a run, see `Run.find`; of a series that of its last complete run."""
        run = Run.find(name, self.root) if self.root != runs_root() else _alone(find(name))
        if run.folder.resolve().parent != self.root.resolve():
            self._elsewhere[run.name] = run.folder
        return run.name

    def get(self, name: str) -> OpenRun:
        """An open run by its name; raises `ConfigurationError` or `StorageError` where there is none."""
        with self._lock:
            if name in self._open:
                self._open.move_to_end(name)
                return self._open[name]
            shown = OpenRun(self._run(name))
            self._open[name] = shown
            while len(self._open) > MOST_OPEN:
                _, old = self._open.popitem(last=False)
                old.close()
            return shown

    def _run(self, name: str) -> Run:
        """One of the folder's runs, or of those that were named when the page began, and no other."""
        if name in self._elsewhere:
            return Run(self._elsewhere[name])
        if Path(name).name != name or not (self.root / name).is_dir():
            known = [run.name for run in list_runs(self.root)]
            raise ConfigurationError(f"There is no run {name!r} in {self.root}: {nearest(name, known, FEW)}")
        return Run.find(name, self.root)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of all runs, the newest first."""
        at, found = self._listed
        if time.monotonic() > at + LIST_SECONDS:
            known = [Run(folder) for folder in self._elsewhere.values()]
            found = [{**run.row, "run_id": run.name} for run in [*known, *list_runs(self.root)]]
            self._listed = time.monotonic(), found
        return found

    def partners(self, shown: OpenRun) -> list[str]:
        """The name of the run that says most beside this one and can be compared with it; [] without any."""
        return [run.name for run in partners(shown.view.run, list_runs(self.root), 1)]

    def close(self) -> None:
        """Close the views of all runs."""
        with self._lock:
            for shown in self._open.values():
                shown.close()
            self._open.clear()


def _alone(found: Run | RunSeries) -> Run:
    if isinstance(found, Run):
        return found
    if not (runs := found.counted()):
        raise ConfigurationError(
            f"The series {found.name} has no complete run yet: give one of its runs, which d5ray runs lists"
        )
    return runs[-1]


def answer(
    shown: OpenRun, text: str, gone: Callable[[], bool] = lambda: False
) -> tuple[pa.Table | None, str]:
    """The answer to SQL on a run that is shown, and how long it is; or None and the reason.

    It writes nothing and reads no other file. gone: whether whoever asked has gone, which ends the query.
    """
    if not text.strip():
        return None, "write a SELECT on samples, events, runs, metrics, environment, verdicts or summary"
    try:
        with (
            closing(shown.view.run.within(Limits(seconds=SQL_SECONDS))) as source,
            while_wanted(source, gone),
            source.ask(text) as rows,
        ):
            found = rows.table(MOST_ROWS + 1)
    except D5Error as error:
        return None, str(error)
    if found.num_rows > MOST_ROWS:
        return found.slice(0, MOST_ROWS), f"the first {MOST_ROWS} rows"
    return found, f"{found.num_rows:,} row{'s' * (found.num_rows != 1)}"
