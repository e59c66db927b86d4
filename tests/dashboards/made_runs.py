"""Runs that are written by hand for the page's tests, at once or step by step; and a page that shows some."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.agent.records import STEP_METRICS
from d5ray.dashboards.page import server
from d5ray.metrics.definitions.catalogue import catalogue_rows
from d5ray.metrics.record.columns import expand
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import table_of
from d5ray.metrics.record.store import RunWriter
from tests.patience import patience

NS = 1_000_000_000
STEP_NS = 2_000_000  # of a made step: 2 ms
LEARNT = 3.0  # the loss falls by a factor of e to this power


class Made:
    """A run of that many agents and steps, with numbers that look like those of a training."""

    def __init__(self, root: Path, name: str, agents: int = 3, steps: int = 300, **row: Any) -> None:
        self.agents, self.steps = agents, steps
        self.writer = RunWriter(root, name)
        started = {"started": datetime.now(UTC), "agents": agents, "recipe": name, "d5ray_version": "0.1.0"}
        self.writer.open(started | row, catalogue_rows())
        self.generator = np.random.default_rng(len(name))
        self.done, self.now = 0, 0
        begin = time.time_ns()
        self.recorders = [
            Recorder(
                run_id=name, agent=f"TrainingAgent(rank={rank})", rank=rank, node="here",
                send=self.writer.append, send_events=self.writer.append_events,
                send_frames=lambda batch: self.writer.append(expand(batch)),
                now=lambda: self.now, wall_minus_mono=begin, batch_rows=1 << 30, interval_seconds=1e9,
            )
            for rank in range(agents)
        ]  # fmt: skip
        self.frames = [recorder.frame(tuple(STEP_METRICS)) for recorder in self.recorders]

    def write(self, steps: int) -> None:
        """That many further steps of all agents, on disk when this returns."""
        noise = self.generator.lognormal(0.0, 0.3, size=(steps, self.agents, 3))
        for at in range(steps):
            step = self.done + at
            self.now = (step + 1) * STEP_NS
            loss = 2.3 * float(np.exp(-LEARNT * step / self.steps))
            for rank, frame in enumerate(self.frames):
                wait = 2e-4 * float(noise[at, rank, 1])
                values = (loss * (1 + 0.1 * float(noise[at, rank, 0])), 2e-3, 1e-4, 6e-4, 7e-4, 1e-4 + wait,
                          2e-4, 1e-5, 32.0, 16000.0, 1000.0, 1000.0, 4.0)  # fmt: skip
                frame.append(step, step // 100, "train" if step >= 10 else "warmup", values, self.now)
            if step % 100 == 99:
                self.evaluate(step)
        self.done += steps
        for recorder in self.recorders:
            recorder.flush()

    def evaluate(self, step: int) -> None:
        """An evaluation of every agent."""
        for recorder in self.recorders:
            accuracy = 1.0 - 0.9 * float(np.exp(-LEARNT * step / self.steps))
            recorder.record("test_accuracy", accuracy, step=step, epoch=step // 100, phase="test")

    def close(self, status: str = "completed", **row: Any) -> None:
        """The end of the run."""
        rows = sum(self.writer.received().values())
        self.writer.update_run(status=status, ended=datetime.now(UTC), steps=self.done, rows=rows, **row)
        self.writer.close()

    def verdict(self, *rows: dict[str, Any]) -> None:
        """Its criteria, as they were judged."""
        self.writer.write_table("verdicts", table_of("verdicts", rows))

    def keep_writing(self, steps: int, every_seconds: float) -> threading.Thread:
        """Write the rest in a thread, some steps at a time, and close the run then."""

        def write() -> None:
            while self.done < self.steps:
                time.sleep(every_seconds)
                self.write(min(steps, self.steps - self.done))
            self.close()

        thread = threading.Thread(target=write, daemon=True)
        thread.start()
        return thread


@contextmanager
def serving(root: Path, run: str, **options: Any) -> Iterator[str]:
    """The address of a page on these runs."""
    made, address = server.prepared(run, root=root, **options)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield address
    finally:
        made.shutdown()
        made.server_close()
        thread.join(patience(5.0))
