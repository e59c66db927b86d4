"""Measures what a bench has to the end of a budget, in rounds of fresh processes, and keeps the run"""

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import psutil
import pyarrow as pa

from d5ray.actors.calls import get
from d5ray.actors.executors.call_timer import ProblemTiming
from d5ray.actors.group.run_row import RunOrigin
from d5ray.actors.remote import SETUP_SECONDS
from d5ray.actors.session import session
from d5ray.actors.shipping import ship
from d5ray.errors import AgentError, first_line
from d5ray.kits.laboratory.bench.bench import Bench, Team
from d5ray.kits.laboratory.bench.plan import MEMORY_SHARE, MeasurementPlan, fitting, what_was_short
from d5ray.kits.laboratory.comparisons.rounds import progress_of
from d5ray.kits.laboratory.measured_run import MeasuredRun
from d5ray.kits.laboratory.metrics.operator_calls import (
    OF_OPERATORS,
    PEAK_BYTE_RATE,
    PEAK_FLOP_RATE,
    SHARE_OF_PEAK,
    operator_rows,
    peak,
)
from d5ray.kits.laboratory.metrics.side_by_side import times_by_pair
from d5ray.kits.laboratory.tables import operator_tables
from d5ray.metrics.record import store
from d5ray.metrics.record.recorder import Recorder
from d5ray.ops.counting.measurable import Measurable

GRACE_SECONDS: Final = 300.0  # beyond what is planned, until a call is given up
LEAST_ROUND_SECONDS: Final = 1.0
SWEEPS: Final = 4  # of a round over what was asked for by itself, so that slow spells hit all alike
FIRST_SHARE: Final = 0.9  # of an even share of the budget


def run(bench: Bench, address: str | None, quiet: bool) -> store.Run:
    """Run the measurement; gives the finished run. Ctrl-C ends it and keeps what was measured.

    Raises `ConfigurationError` where a framework is not there, before a run is kept.
    """
    ship(bench.sent, "what is measured")
    run = MeasuredRun(
        bench.recipe,
        _origin(bench),
        bench.describe(),
        seed=bench.seed,
        agents=len(bench.frameworks),
        connect=lambda metadata: session.connect(address, cpus=bench.cpus, metadata=metadata, quiet=True),
    )
    measuring = Measuring(bench, run, quiet)
    try:
        measuring.rounds()
    finally:
        measuring.close()
    return run.kept


def _origin(bench: Bench) -> RunOrigin:
    text = json.dumps(bench.fixed, sort_keys=True, separators=(",", ":"), allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return RunOrigin(bench.recipe, digest, text, json.dumps(bench.mutable, sort_keys=True))


@final
@dataclass
class Round:
    """One fresh process of every framework, and until when it measures."""

    number: int
    executors: dict[str, Team]
    until: float
    seconds: float  # that were left for measuring when the processes were ready


class Measuring:
    """A run that is being measured."""

    def __init__(self, bench: Bench, run: MeasuredRun, quiet: bool) -> None:
        self._bench, self._run, self._quiet = bench, run, quiet
        free = MEMORY_SHARE * psutil.virtual_memory().available
        self._plan = MeasurementPlan(bench.problems(), bench.frameworks, free, bench.seed)
        self._status, self._reason = "failed", ""
        self._processes = bench.processes
        self._starting_seconds = 0.0

    def rounds(self) -> None:
        """Measure all rounds; the run is opened when the first processes are ready."""
        try:
            self._rounds(time.monotonic() + self._bench.budget_seconds)
            self._status = "completed"
        except KeyboardInterrupt:
            if not self._run.is_open:
                raise
            self._status, self._reason = "interrupted", "interrupted by the user"
        except BaseException as error:
            self._reason = first_line(error)
            raise

    def close(self) -> None:
        """Write what follows from the rows, and the end of the run; nothing where it was not opened."""
        if not self._run.is_open:
            return
        self._derive()
        self._run.close(self._status, self._reason)

    def _rounds(self, end: float) -> None:
        number = 0
        with progress_of(self._bench.title, self._bench.processes, show=not self._quiet) as show:
            while number < self._processes and time.monotonic() < end:
                show(f"round {number + 1} of {self._processes}")
                left = (end - time.monotonic()) / (self._processes - number)
                self._round(number, time.monotonic() + left)
                number += 1
        bench = self._bench
        self._reason = what_was_short(
            number, bench.processes, len(bench.frameworks), self._starting_seconds, bench.budget_seconds
        )

    def _round(self, number: int, until: float) -> None:
        bench, began = self._bench, time.monotonic()
        with bench.teams(self._run.writer.run_id, number) as teams:
            getting_ready = [actor.prepare.remote() for team in teams.values() for actor in team]
            facts = get(getting_ready, SETUP_SECONDS, "get ready to measure")
            self._starting_seconds += time.monotonic() - began
            if not self._run.is_open:
                self._run.open(operator_rows(), {key: value for each in facts for key, value in each.items()})
            executors = dict(teams)
            if number == 0:
                until = began + self._first_seconds(time.monotonic() - began)
            if bench.has_peaks:
                for name in self._plan.interleaved(number):
                    self._kept(self._call(executors, name, "peaks", bench.dtype))
                if number == 0:
                    self._learn_peaks()
            self._measure(Round(number, executors, until, until - time.monotonic()))

    def _first_seconds(self, startup: float) -> float:
        """The length of the first round; fewer follow if starting them would take most of the budget.

        It is a little shorter than the others, which measure what it has reached.
        """
        self._processes = fitting(self._bench.processes, self._bench.budget_seconds, startup)
        return FIRST_SHARE * self._bench.budget_seconds / self._processes

    def _learn_peaks(self) -> None:
        tables = self._run.kept.tables()
        flops, moved = peak(tables, PEAK_FLOP_RATE), peak(tables, PEAK_BYTE_RATE)
        if flops is not None and moved is not None:
            self._plan.flops_per_second, self._plan.bytes_per_second = flops[0], moved[0]

    def _measure(self, now: Round) -> None:
        """Of a suite what the round has time for; of what was asked for by itself everything, in sweeps."""
        plan, sampled = self._plan, self._bench.is_sampled
        seconds = max(now.seconds, LEAST_ROUND_SECONDS)
        enough, most = plan.slice_seconds(seconds), plan.most_seconds(seconds)
        if sampled:
            # The least problem of each group is measured once, however long the processes took to start.
            self._sweep(now, len({each.group for each in plan.problems}), enough, most, keep=False)
            return
        keep = sum(each.needed_bytes for each in plan.problems) <= plan.memory_bytes
        for sweep in range(SWEEPS if keep else 1):
            if sweep == 0 or time.monotonic() < now.until:
                most_of_all = max(most, self._bench.budget_seconds)
                self._sweep(now, len(plan.problems), enough / SWEEPS, most_of_all, keep=keep)

    def _sweep(self, now: Round, certain: int, enough: float, most: float, *, keep: bool) -> None:
        """Every problem under every framework in turn. certain: as many are measured in the first round."""
        plan = self._plan
        for place, problem in enumerate(plan.order(now.number)):
            if (place >= certain or now.number) and time.monotonic() >= now.until:
                return
            for name in plan.interleaved(now.number):
                if name in now.executors and self._bench.does(name, problem.name):
                    self._one(now, name, problem, enough, most, keep=keep)

    def _one(
        self, now: Round, name: str, problem: Measurable, enough: float, most: float, *, keep: bool
    ) -> None:
        """One problem under one framework: in the first round unless something is known against it."""
        plan, known = self._plan, (name, problem.name)
        if now.number == 0:
            if reason := plan.why_not(name, problem, most):
                plan.skipped[known] = reason
                return
        elif known not in plan.reached:
            return
        found = self._call(now.executors, name, "measure", problem, enough, 2 * most, keep)
        self._kept(found)
        if found.call_seconds is not None:
            plan.learn(name, problem, found.call_seconds)
        if found.seconds is not None:
            plan.reached.add(known)
        elif now.number == 0:
            plan.skipped[known] = found.reason

    def _call(self, executors: dict[str, Team], name: str, method: str, *arguments: Any) -> ProblemTiming:
        """The answer of a contender; one of whose processes died is asked no more in this round."""
        calls = [getattr(actor, method).remote(*arguments) for actor in executors[name]]
        try:
            found = get(calls, GRACE_SECONDS + self._bench.budget_seconds, "measure")
        except AgentError as error:
            executors.pop(name)
            return ProblemTiming((), reason=f"failed: {first_line(error)}")
        return _together(found)

    def _kept(self, outcome: ProblemTiming) -> None:
        for batch in outcome.rows:
            self._run.writer.append(batch)

    def _derive(self) -> None:
        """The share of the peak in every process, and a row for everything that was not measured."""
        recorder = self._run.recorder("OperatorBench")
        for metric, kind in OF_OPERATORS.items():
            recorder.declare(metric, kind.unit)
        run = self._run.kept.tables()
        recorded = _scopes_without_value(run, self._bench.metric)
        flops, moved = peak(run, PEAK_FLOP_RATE), peak(run, PEAK_BYTE_RATE)
        for problem in self._plan.problems:
            for name in self._bench.frameworks:
                scope, known = f"{name} {problem.name}", (name, problem.name)
                if not self._bench.does(*known):
                    continue
                if known in self._plan.reached:
                    if flops is not None and moved is not None:
                        self._shares(recorder, run, scope, problem, (flops[0], moved[0]))
                elif scope not in recorded:
                    reason = self._plan.skipped.get(known) or (
                        f"budget: not reached within {self._bench.budget_seconds:g} s"
                    )
                    status = f"unavailable: {reason}"
                    recorder.record(
                        self._bench.metric,
                        None,
                        scope=scope,
                        level=problem.level,
                        status=status,
                        source="unavailable",
                    )
        recorder.flush()

    def _shares(
        self,
        recorder: Recorder,
        run: Mapping[str, pa.Table],
        scope: str,
        problem: Measurable,
        peaks: tuple[float, float],
    ) -> None:
        """The share of the peak in every process; one that nothing explains has no value, and the reason."""
        known, cache = problem.describe(), operator_tables.cache_bytes(run, {"device": self._bench.device})
        for rep, seconds in times_by_pair(run, self._bench.metric, scope).items():
            share, bound = operator_tables.share_of_peak(known, *peaks, seconds)
            refused = operator_tables.above(share, bound, known, cache) == operator_tables.REFUSED
            why = f"unavailable: {share:.3g} times the peak: the call does not do what is counted"
            recorder.record(
                SHARE_OF_PEAK,
                None if refused else share,
                step=0,
                scope=scope,
                rep=rep,
                level=problem.level,
                status=why if refused else "ok",
                source="unavailable" if refused else "measured",
            )


def _together(found: Sequence[ProblemTiming]) -> ProblemTiming:
    """What several processes found that did a problem together: all rows, and the slowest's seconds."""
    if len(found) == 1:
        return found[0]
    reason = next((each.reason for each in found if each.seconds is None), "")
    times = [each.seconds for each in found if each.seconds is not None]
    calls = [each.call_seconds for each in found if each.call_seconds is not None]
    rows = tuple(batch for each in found for batch in each.rows)
    return ProblemTiming(rows, None if reason or not times else max(times), max(calls, default=None), reason)


def _scopes_without_value(run: Mapping[str, pa.Table], metric: str) -> set[str]:
    """The problems that an executor could not measure and has said so."""
    rows = run["samples"].select(["scope", "value", "metric"]).to_pylist()
    return {row["scope"] for row in rows if row["value"] is None and row["metric"] == metric}
