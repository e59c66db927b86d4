"""Runs contenders in pairs of fresh processes, alternately first, and judges what was measured."""

import platform
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from d5ray.actors import session
from d5ray.actors.launch import new_run_id
from d5ray.actors.run_row import RunOrigin, run_row
from d5ray.dashboards import terminal
from d5ray.frameworks.torch.peers import Task
from d5ray.metrics import store
from d5ray.metrics.criteria import Metric
from d5ray.metrics.definitions import catalogue_rows
from d5ray.metrics.environment import capture
from d5ray.metrics.recorder import Recorder
from d5ray.metrics.schema import table_of
from d5ray.recipes.contenders import Agents, Contender, DataParallel, HandWritten, Times
from d5ray.recipes.overhead import MOST_AGENTS, Overhead, whole_batches
from d5ray.recipes.recipe import Recipe, Result, judged, overall
from d5ray.training.datasets import load_dataset

Pair = tuple[Contender, Contender]


def run(job: Overhead, recipe: Recipe, origin: RunOrigin, address: str | None, quiet: bool) -> Result:
    """The job to its verdict; Ctrl-C ends it, keeps what was measured and leaves the verdict open."""
    root = store.runs_root()
    store.check_writable(root)
    run_id = new_run_id(recipe.name)
    started = datetime.now(UTC)
    metadata = {"recipe": origin.recipe, "recipe_hash": origin.recipe_hash, "run": run_id}
    ray_session = session.connect(address, cpus=MOST_AGENTS, metadata=metadata, quiet=quiet)
    environment = capture()
    row = run_row(
        run_id=run_id,
        origin=origin,
        job=job.describe(),
        seed=job.seed,
        status="running",
        started=started,
        session=ray_session,
        agents=MOST_AGENTS,
        environment=environment,
    )
    writer = store.RunWriter(root, run_id)
    writer.open(row, _metric_rows(recipe))
    facts = [
        {"run_id": run_id, "node": platform.node(), "key": key, "value": value}
        for key, value in environment.items()
    ]
    writer.write_table("environment", table_of("environment", facts))
    status, reason = "failed", ""
    try:
        status, reason = _measure(job, writer, quiet)
    except BaseException as error:
        reason = str(error)
        raise
    finally:
        tables = store.Run(writer.folder).tables()
        verdicts = judged(recipe.criteria, tables, status)
        verdict = overall(verdicts, status)
        writer.write_table("verdicts", table_of("verdicts", [v.row for v in verdicts]))
        writer.update_run(
            status=status,
            stop_reason=reason or None,
            verdict=verdict,
            ended=datetime.now(UTC),
            steps=job.steps,
            rows=tables["samples"].num_rows,
        )
        writer.close()
    return Result(
        recipe=recipe,
        run_id=run_id,
        folder=writer.folder,
        verdict=verdict,
        verdicts=verdicts,
        status=status,
        reason=reason,
        startup_seconds={"ray.init": ray_session.seconds},
    )


def comparisons(job: Overhead, root: Path) -> list[Pair]:
    """Ours and base, for one process and for two. root: where the launched runs are kept."""
    dataset = whole_batches(load_dataset(job.dataset), MOST_AGENTS * job.batch_size)
    task = Task(
        model=job.model,
        dataset=dataset,
        batch_size=job.batch_size,
        learning_rate=job.optimizer.learning_rate,
        momentum=job.optimizer.momentum,
        sampler=job.train_sampler,
        seed=job.seed,
        threads=job.threads,
    )
    steps = job.warmup_steps + job.steps
    one, two = (Agents(f"d5ray[{agents}]", job.experiment(dataset, agents), steps, root) for agents in (1, 2))
    return [
        (one, HandWritten("pytorch[1]", task, steps)),
        (two, DataParallel("ddp[2]", task, 2, steps)),
    ]


def turns(pairs: int, comparisons: list[Pair]) -> Iterator[tuple[int, Contender]]:
    """Who is measured when, with the number of the pair: ours first, then base first, and so on (ABBA)."""
    for pair in range(pairs):
        for ours, base in comparisons:
            for contender in (ours, base) if pair % 2 == 0 else (base, ours):
                yield pair, contender


def _measure(job: Overhead, writer: store.RunWriter, quiet: bool) -> tuple[str, str]:
    """Measures all turns; the run's status and the reason why it ended early."""
    # Within the run's folder, so that even a killed driver leaves nothing elsewhere.
    kept = tempfile.TemporaryDirectory(prefix="launched-", dir=writer.folder, ignore_cleanup_errors=True)
    try:
        with kept as folder:
            both = comparisons(job, Path(folder))
            with terminal.rounds(job.name, 2 * len(both) * job.pairs, show=not quiet) as begin:
                for pair, contender in turns(job.pairs, both):
                    begin(f"pair {pair + 1} of {job.pairs}: {contender.name}")
                    record(writer, job, contender.name, pair, contender.measure())
    except KeyboardInterrupt:
        return "interrupted", "interrupted by the user"
    return "completed", ""


def record(writer: store.RunWriter, job: Overhead, contender: str, pair: int, times: Times) -> None:
    """The rows of one turn: contender as scope, pair as repetition."""
    recorders: dict[int, Recorder] = {}
    for (metric, rank), seconds in times.items():
        recorder = recorders.get(rank) or recorders.setdefault(
            rank,
            Recorder(
                run_id=writer.run_id,
                agent=f"{contender}/{rank}",
                rank=rank,
                node=platform.node(),
                attempt=pair,
                send=writer.append,
            ),
        )
        for step, value in enumerate(seconds):
            phase = "warmup" if step < job.warmup_steps else "train"
            recorder.record(metric, value, step=step, phase=phase, scope=contender, rep=pair)
    for recorder in recorders.values():
        recorder.flush()


def _metric_rows(recipe: Recipe) -> list[dict[str, Any]]:
    """The catalogue, and the metrics that this recipe judges."""
    known = catalogue_rows()
    return known + [_metric_row(criterion.metric) for criterion in recipe.criteria]


def _metric_row(metric: Metric) -> dict[str, Any]:
    columns = ("unit", "direction", "kind", "aggregation", "description")
    return {"name": metric.label} | {column: getattr(metric, column) for column in columns}
