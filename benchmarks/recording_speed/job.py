"""The job that times recording: a recorder as an agent has it, the store's writer, queries on many rows"""

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, final

import numpy as np

from benchmarks.recording_speed.metrics import QUERY_TIME, RECORDING_TIME, STORING_RATE
from d5ray.agent.records import STEP_METRICS
from d5ray.checks import check_count, check_number
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons import processes
from d5ray.kits.laboratory.comparisons.contenders import Contender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.comparisons.timing import Times, repeated
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.reader import Run
from d5ray.metrics.record.recorder import Recorder, StepFrame
from d5ray.metrics.record.store import RunWriter
from d5ray.metrics.statistics.sequential_stopping import StoppingRule

HASHED_AS = "d5ray.recipes.recordings"  # where the first runs knew it

PROCESS_SECONDS = 600.0  # for one process to do everything it is to
WIDTH = len(STEP_METRICS)  # values a step
MEDIANS = "select metric, median(value) from samples group by metric"
NAME = "recorded"
BLOCK = 50_000  # steps whose values are drawn at once


@final
@dataclass(frozen=True, kw_only=True)
class Recordings(SideBySide):
    """Contenders that record, store and ask. Wrong values raise `ConfigurationError`.

    steps       recorded for one repetition, each of as many values as a training step has
    rows        of the run that is asked, at least
    seconds     about so long a process repeats what it does, at most
    """

    steps: int = 20_000
    rows: int = 10_000_000
    seconds: float = 5.0

    cpus = 0  # outside Ray

    def check(self) -> None:
        for name in ("steps", "rows"):
            check_count(name, getattr(self, name), 1)
        check_number("seconds", self.seconds, low=0.0, low_included=False)
        list(self.contenders_of(PartOfTheWay, "Values(), Storing() or Query()"))  # type: ignore[type-abstract]

    @property
    def rule(self) -> StoppingRule:
        """When a process stops repeating; the unit of the verdict is the process."""
        return StoppingRule(precision=0.02, most=68, seconds=self.seconds)


@dataclass(frozen=True)
class PartOfTheWay(Contender[Recordings], ABC):
    """One part of the way of a value, in a process of its own."""

    processes: int = 1

    def times(self, work: Callable[[int], Times], folder: Path) -> Times:
        """What the one process measured."""
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        assert isinstance(found, Times)
        return found


@final
@dataclass(frozen=True)
class Values(PartOfTheWay):
    """A training step's values into the recorder's frame, and batches of them made of that, but not sent."""

    word = "recorder"

    def measure(self, job: Recordings, folder: Path) -> list[RankSeries]:
        times, values = self.times(partial(recording, job.steps, job.rule), folder), job.steps * WIDTH
        of_one = [seconds / values for seconds in times.seconds]
        return [RankSeries.of(Times(of_one, times.loops * values, times.stop_reason), RECORDING_TIME)]


@final
@dataclass(frozen=True)
class Storing(PartOfTheWay):
    """An agent's batches into a run's folder: expanded to rows, checked, and handed to the file system."""

    word = "store"
    HASHED_AS = "Store"

    def measure(self, job: Recordings, folder: Path) -> list[RankSeries]:
        times = self.times(partial(storing, job.steps, folder, job.rule), folder)
        rates = [job.steps * WIDTH / seconds for seconds in times.seconds]
        return [replace(RankSeries.of(times, STORING_RATE), unit="1/s", values=rates)]


@final
@dataclass(frozen=True)
class Query(PartOfTheWay):
    """A median for each metric over the rows of a finished run."""

    word = "sql"

    def measure(self, job: Recordings, folder: Path) -> list[RankSeries]:
        work = partial(querying, job.rows, folder, job.rule)
        return [RankSeries.of(self.times(work, folder), QUERY_TIME)]


def recording(steps: int, rule: StoppingRule, _: int = 0) -> Times:
    """The work of the one process: that many steps into a recorder, again and again."""
    values = drawn(steps)
    kept: list[Any] = []

    def record() -> None:
        kept.clear()
        recorder = recorder_to(kept.append)
        recorded(recorder, recorder.frame(tuple(STEP_METRICS)), steps, values)
        if recorder.rows != steps * WIDTH or sum(b.num_rows for b in kept) != steps:
            raise AgentError(f"{recorder.rows} rows were recorded, not {steps * WIDTH}")

    return repeated(record, rule)


def storing(steps: int, folder: Path, rule: StoppingRule, _: int = 0) -> Times:
    """The work of the one process: the same batches into the same run, numbered on."""
    writer = RunWriter(folder, NAME)
    writer.open({})
    batches: list[Any] = []
    recorder, values = recorder_to(batches.append), drawn(steps)
    frame = recorder.frame(tuple(STEP_METRICS))
    expected = steps * WIDTH

    def once() -> float:
        batches.clear()
        recorded(recorder, frame, steps, values)
        begin = perf_counter()
        stored = sum(writer.append(expand(batch)) for batch in batches)
        seconds = perf_counter() - begin
        if stored != expected:
            raise AgentError(f"{stored} rows were stored, not {expected}: nothing is measured")
        return seconds

    once()  # a warm-up
    found: list[float] = []
    begin = perf_counter()
    while not (reason := rule.reason(found, perf_counter() - begin)):
        found.append(once())
    writer.leave()
    return Times(found, 1, reason)


def querying(rows: int, folder: Path, rule: StoppingRule, _: int = 0) -> Times:
    """The work of the one process: a run with that many rows, complete on disk, and the query on it."""
    writer = RunWriter(folder, NAME)
    writer.open({})
    steps = -(-rows // WIDTH)
    recorder = recorder_to(lambda batch: writer.append(expand(batch)))
    frame, blocks = recorder.frame(tuple(STEP_METRICS)), []
    for number, first in enumerate(range(0, steps, BLOCK)):
        values = drawn(min(BLOCK, steps - first), seed=number)
        recorded(recorder, frame, len(values), values)
        blocks.append(np.array(values))
    writer.close()
    run = Run(folder / NAME)
    check_medians(run, np.concatenate(blocks))
    return repeated(lambda: sql(run, MEDIANS), rule)


def check_medians(run: Run, values: "np.ndarray[Any, Any]") -> None:
    """Raise `AgentError` unless the medians are NumPy's of these values (steps, metrics)."""
    found = dict(zip(*sql(run, MEDIANS).to_pydict().values(), strict=True))
    for at, name in enumerate(STEP_METRICS):
        expected = np.median(values[:, at])
        if not np.isclose(found[name], expected, rtol=1e-12):
            raise AgentError(f"SQL's median of {name} is {found[name]}, NumPy's {expected}")


def recorder_to(send: Callable[[Any], object]) -> Recorder:
    """A recorder as an agent has it, that sends frames in their compact form."""
    return Recorder(
        run_id=NAME, agent="TrainingAgent(rank=0)", rank=0, node="here", send=send, send_frames=send
    )


def recorded(recorder: Recorder, frame: StepFrame, steps: int, values: list[tuple[float, ...]]) -> None:
    """That many steps, as the loop of an agent records them, and everything sent."""
    clock = perf_counter_ns
    for step in range(steps):
        now = clock()
        frame.append(step, 0, "train", values[step], now)
        recorder.poll(now)
    recorder.flush()


def drawn(rows: int, seed: int = 0) -> list[tuple[float, ...]]:
    """Values of that many steps, all different: equal ones would be stored for nothing."""
    generator = np.random.default_rng(seed)
    return [tuple(row) for row in generator.lognormal(size=(rows, WIDTH)).tolist()]
