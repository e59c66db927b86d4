"""Runs a job's contenders in rounds of fresh processes, keeps what they measured, and judges it"""

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from d5ray.actors.group.run_row import RunOrigin
from d5ray.display.console import BarColumn, Field, MofNCompleteColumn, TimeRemainingColumn, progress
from d5ray.errors import RayLost, StorageError
from d5ray.kits.laboratory.comparisons.contenders import AnyContender, RankSeries
from d5ray.kits.laboratory.comparisons.side_by_side import SideBySide
from d5ray.kits.laboratory.measured_run import MeasuredRun
from d5ray.kits.laboratory.metrics.side_by_side import FAILED, UNAVAILABLE, scope_of
from d5ray.metrics.judge.comparable import DATA
from d5ray.metrics.judge.criteria import Criterion, Metric
from d5ray.metrics.judge.summary import STOPPED
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.statistics.sequential_stopping import SequentialStopping
from d5ray.recipes.engine.recipe import Recipe, Result
from d5ray.training.datasets.catalogue import load_dataset


def run(job: SideBySide, recipe: Recipe, origin: RunOrigin, address: str | None, quiet: bool) -> Result:
    """Run the job to its verdict; Ctrl-C ends it, keeps what was measured and leaves the verdict open."""

    def data() -> dict[str, str]:
        return {
            f"{DATA} {name}".rstrip(): load_dataset(dataset, **options).fingerprint
            for name, (dataset, options) in job.datasets().items()
        }

    run = MeasuredRun(
        recipe.name,
        origin,
        job.describe(),
        seed=job.seed,
        agents=max(contender.processes for contender in job.contenders()),
        connect=lambda metadata: job.connect(address, metadata),
        facts=data,
    )
    run.open(_metric_row(criterion.metric) for criterion in recipe.criteria)
    status, reason = "failed", ""
    try:
        status, reason = _measure(job, run, recipe.criteria, quiet)
    except BaseException as error:
        reason = str(error)
        raise
    finally:
        verdict, verdicts = run.close(status, reason, recipe.criteria)
    return Result(
        recipe=recipe,
        run_id=run.writer.run_id,
        folder=run.writer.folder,
        verdict=str(verdict),
        verdicts=verdicts,
        status=status,
        reason=reason,
        startup_seconds={"ray.init": run.session.seconds},
    )


def _measure(
    job: SideBySide, run: MeasuredRun, criteria: tuple[Criterion, ...], quiet: bool
) -> tuple[str, str]:
    """Measures all turns; the run's status and the reason why it ended, if that was not fixed before."""
    reasons = {contender.name: contender.missing() for contender in job.contenders()}
    for name, reason in reasons.items():
        if reason:
            record_missing(run, name, reason)
    turns = [(pair, contender) for pair, contender in job.interleaved() if not reasons[contender.name]]
    # Within the run's folder, so that even a killed driver leaves nothing elsewhere.
    kept = tempfile.TemporaryDirectory(prefix="measured-", dir=run.writer.folder, ignore_cleanup_errors=True)
    try:
        with kept as folder, progress_of(job.name, len(turns), show=not quiet) as begin:
            for number, (pair, contender) in enumerate(turns):
                if number and pair != turns[number - 1][0] and (reason := _enough(job, run, criteria, pair)):
                    return "completed", reason
                begin(f"round {pair + 1} of {job.most_pairs}: {contender.name}")
                own = Path(folder) / str(number)
                own.mkdir()
                _take_turn(job, run, contender, pair, own)
    except KeyboardInterrupt:
        return "interrupted", "interrupted by the user"
    return "completed", _enough(job, run, criteria, job.most_pairs)


def _take_turn(job: SideBySide, run: MeasuredRun, contender: AnyContender, pair: int, folder: Path) -> None:
    """Measure a contender once. A peer's failure is kept in the place of what it would have measured."""
    try:
        measured = contender.measure(job, folder)
    except (StorageError, RayLost):  # of the disk or the cluster of all
        raise
    except Exception as error:
        if not contender.is_peer:
            raise
        record_missing(run, contender.name, f"{FAILED} {_why(error)}", pair)
    else:
        record(run, contender, pair, measured)


def _why(error: Exception) -> str:
    """What an error says first and, where the output of a process follows, last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def _enough(job: SideBySide, run: MeasuredRun, criteria: tuple[Criterion, ...], pairs: int) -> str:
    """Why to stop after that many rounds; empty to go on. What cannot be measured here holds up nobody."""
    if not isinstance(job.pairs, SequentialStopping) or pairs not in job.pairs.pairs:
        return ""
    tables = run.kept.tables()
    found = [criterion.metric.estimate(tables) for criterion in criteria]
    widths = [
        math.inf if each.low is None or each.high is None else (each.high - each.low) / 2 / each.value
        for each in found
        if each.value and not each.exact
    ]
    return job.pairs.reason(pairs, widths)


def record(run: MeasuredRun, contender: AnyContender, pair: int, measured: list[RankSeries]) -> None:
    """The rows of one turn: the contender as scope, the round as repetition."""
    recorders: dict[int, Recorder] = {}
    for series in measured:
        if series.rank not in recorders:
            recorders[series.rank] = run.recorder(f"{contender.name}/{series.rank}", series.rank, pair)
        recorder = recorders[series.rank]
        recorder.declare(series.metric, series.unit)
        scope = scope_of(contender.name, series.at)
        if series.stop_reason:
            recorder.event(STOPPED, metric=series.metric, scope=scope, stop_reason=series.stop_reason)
        for step, value in enumerate(series.values):
            phase = "warmup" if step < series.warmup else series.phase
            recorder.record(
                series.metric, value, step=step, phase=phase, scope=scope, rep=pair, loops=series.loops
            )
    for recorder in recorders.values():
        recorder.flush()


def record_missing(run: MeasuredRun, contender: str, reason: str, pair: int = 0) -> None:
    """A row without a value that says why there are no others of this contender, or none of this round."""
    recorder = run.recorder(f"{contender}/0", attempt=pair)
    status = f"{UNAVAILABLE}: {reason}"
    recorder.record("step_time", None, scope=contender, status=status, source=UNAVAILABLE, rep=pair)
    recorder.flush()


def _metric_row(metric: Metric) -> dict[str, Any]:
    columns = ("unit", "direction", "kind", "aggregation", "description")
    return {"name": metric.label} | {column: getattr(metric, column) for column in columns}


@contextmanager
def progress_of(title: str, total: int, *, show: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function that says what begins now; shown as a bar on a terminal, and not in a pipe.

    Draws only when it is called: a thread that draws would disturb what is measured meanwhile.
    """
    columns = Field("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    bar = progress(*columns, show=show and sys.stderr.isatty(), auto_refresh=False)
    task = bar.add_task(title, total=total)
    begun = 0

    def begin(what: str) -> None:
        nonlocal begun
        bar.update(task, description=f"{title}  {what}", completed=begun, refresh=True)
        begun += 1

    with bar:
        yield begin
