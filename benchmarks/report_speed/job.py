"""The job that times reports: runs as agents write them, and the command on them"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np

from benchmarks.report_speed.metrics import REPORT_TIME
from d5ray.agent.records import EVALUATION_METRICS, STEP_METRICS
from d5ray.checks import check_count
from d5ray.errors import AgentError, ConfigurationError
from d5ray.metrics.definitions.catalogue import StepTime, TestAccuracy, catalogue_rows
from d5ray.metrics.probes.environment import capture
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import Run, RunWriter
from d5ray.recipes.engine.comparisons import processes
from d5ray.recipes.engine.comparisons.contenders import Contender, RankSeries
from d5ray.recipes.engine.comparisons.side_by_side import SideBySide
from d5ray.recipes.engine.recipe import overall

if TYPE_CHECKING:
    from d5ray.actors.session.session import Session

HASHED_AS = "d5ray.recipes.reports"  # where the first runs knew it

PROCESS_SECONDS: Final = 1200.0  # for one process to write its runs and report on them
REPORT_SECONDS: Final = 300.0
EVALUATIONS: Final = 30  # of a run
THOUSANDS: Final = {"thousand": 1000, "million": 1_000_000}
SECTIONS: Final = ("verdict", "convergence", "step-time", "communication", "comparison", "environment")


@final
@dataclass(frozen=True, kw_only=True)
class Reports(SideBySide):
    """Reports on several runs of several agents. Wrong values raise `ConfigurationError`.

    sizes   of one run, such as "36 thousand rows"
    """

    sizes: tuple[str, ...]
    runs: int = 10
    agents: int = 2

    def check(self) -> None:
        check_count("runs", self.runs, 2)
        check_count("agents", self.agents, 1)
        for size in self.sizes:
            rows_of(size)

    def connect(self, address: str | None, metadata: dict[str, str], quiet: bool) -> "Session":
        return processes.without_ray(address)


def rows_of(size: str) -> int:
    """The rows that a size stands for; `ConfigurationError` for what is none.

    >>> rows_of("36 thousand rows")
    36000
    """
    found = re.fullmatch(r"(\d+) (thousand|million) rows", size)
    if found is None:
        raise ConfigurationError(f"sizes has {size!r}: it must be as '36 thousand rows' or '1 million rows'")
    return int(found[1]) * THOUSANDS[found[2]]


@final
@dataclass(frozen=True)
class Page(Contender[Reports]):
    """`d5ray report`, writing a page."""

    processes: int = field(default=1, init=False)

    @property
    def name(self) -> str:
        return "report[1]"

    def missing(self) -> str:
        return ""

    def measure(self, job: Reports, folder: Path) -> list[RankSeries]:
        work = Reported(job.sizes, job.runs, job.agents, folder)
        (found,) = processes.measured(work, folder, 1, PROCESS_SECONDS)
        return [
            RankSeries(REPORT_TIME, "s", 0, [seconds], phase="run", at=size)
            for size, seconds in found.items()
        ]


@final
@dataclass(frozen=True)
class Reported:
    """The work of the one process: for each size the runs, and the command's seconds."""

    sizes: tuple[str, ...]
    runs: int
    agents: int
    folder: Path

    def __call__(self, rank: int) -> dict[str, float]:
        return {size: self.of(size) for size in self.sizes}

    def of(self, size: str) -> float:
        """Seconds of the command on fresh runs of this size."""
        home = self.folder / size.replace(" ", "-")
        steps = max(EVALUATIONS, round(rows_of(size) / (self.agents * len(STEP_METRICS))))
        names = [written(home / "runs", number, steps, self.agents).name for number in range(self.runs)]
        page = self.folder / f"{home.name}.html"
        command = [sys.executable, "-m", "d5ray", "report", *names, "--output", str(page)]
        environment = processes.environment() | {"D5RAY_HOME": str(home)}
        begin = perf_counter()
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=REPORT_SECONDS, check=False
        )
        seconds = perf_counter() - begin
        if done.returncode:
            raise AgentError(f"d5ray report ended with {done.returncode}: {done.stderr}")
        check(page.read_text(encoding="utf-8"), steps, names)
        return seconds


def check(page: str, steps: int, names: list[str]) -> None:
    """Raise `AgentError` where the page lacks a run, its steps or a section."""
    wanted = [*names, f"{steps:,}", *(f'<section id="{key}">' for key in SECTIONS)]
    lacking = [text for text in wanted if text not in page]
    if lacking:
        raise AgentError(f"the report lacks {', '.join(lacking)}: nothing is measured")


def written(root: Path, number: int, steps: int, agents: int) -> Run:
    """A finished run as agents write it; those with even numbers learn at one rate, the others at another."""
    name, rate = f"reported-{number}", (0.05, 0.02)[number % 2]
    writer = RunWriter(root, name)
    started = datetime.now(UTC) + timedelta(seconds=number)
    described = {"agents": agents, "seed": number, "optimizer": {"class": "Momentum", "learning_rate": rate}}
    row = {
        "recipe": "reported", "recipe_hash": "0" * 16, "experiment": json.dumps(described), "seed": number,
        "agents": agents, "started": started, "d5ray_version": "0",
    }  # fmt: skip
    writer.open(row, catalogue_rows())
    for rank in range(agents):
        _agent(writer, name, rank, steps, np.random.default_rng([number, rank]), rate)
    facts = [{"run_id": name, "node": "here", "key": key, "value": fact} for key, fact in capture().items()]
    writer.write_table("environment", table_of("environment", facts))
    writer.close()
    run = Run(root / name)
    judged = [criterion.judge(run.tables()) for criterion in (TestAccuracy() >= 0.5, StepTime() <= 1.0)]
    writer.write_table("verdicts", table_of("verdicts", [each.row for each in judged]))
    word = overall(judged, "completed")
    writer.update_run(status="completed", steps=steps, ended=started, verdict=word)
    return run


def _agent(writer: RunWriter, run: str, rank: int, steps: int, rng: np.random.Generator, rate: float) -> None:
    """The rows of one agent: 13 values a step, and some evaluations."""
    clock = 0
    recorder = Recorder(
        run_id=run, agent=f"TrainingAgent(rank={rank})", rank=rank, node="here", now=lambda: clock,
        wall_minus_mono=10**18, send=writer.append, send_frames=lambda batch: writer.append(expand(batch)),
    )  # fmt: skip
    frame, evaluations = recorder.frame(tuple(STEP_METRICS)), recorder.frame(EVALUATION_METRICS)
    every = steps // EVALUATIONS
    parts = rng.lognormal(-8, 0.2, size=(steps, 6)).tolist()  # s: data, forward, backward, exchange, …
    for step in range(steps):
        whole = sum(parts[step])
        clock += round(whole * 1e9)
        progress = rate * 20 * (step + 1) / steps
        loss = 2.3 / (1 + 9 * progress) * (0.9 + 0.2 * float(rng.random()))
        values: tuple[Any, ...] = (loss, whole, *parts[step], 32.0, 32 / whole, 85e3, 85e3, 1.0)
        frame.append(step, step // every, "warmup" if step < 10 else "train", values, clock)
        if step % every == every - 1:
            evaluations.append(step, step // every, "test", (loss, 1 - loss / 3, 2e-3), clock)
        recorder.poll(clock)
    recorder.flush()
