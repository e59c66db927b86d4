"""Small runs with known values, finished or still being written"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.store import RunWriter

METRICS = ("step_time", "loss")


def values_of(seed: int, steps: int = 200) -> np.ndarray[Any, Any]:
    """What a run recorded: (steps, 2), the columns as in METRICS."""
    return np.random.default_rng(seed).lognormal(size=(steps, len(METRICS)))


def written(root: Path, name: str, seed: int, steps: int = 200, **row: Any) -> RunWriter:
    """A run that is being written, with the values of this seed; one row a step and metric."""
    writer = RunWriter(root, name)
    writer.open({"seed": seed, "recipe": "small", "agents": 1, "d5ray_version": "0.1.0"} | row)
    record(writer, values_of(seed, steps))
    return writer


def record(writer: RunWriter, values: np.ndarray[Any, Any], attempt: int = 0) -> None:
    """Further steps."""
    sent: list[pa.RecordBatch] = []
    recorder = Recorder(
        run_id=writer.run_id, agent="agent-0", rank=0, node="n", attempt=attempt, send=sent.append,
        send_events=writer.append_events, batch_rows=100,
    )  # fmt: skip
    frame = recorder.frame(METRICS)
    for step, row in enumerate(values):
        frame.append(step, 0, "train", tuple(row))
        recorder.poll()
    recorder.event("begun", step=0)
    recorder.flush()
    for batch in sent:
        writer.append(batch)


def finished(root: Path, name: str, seed: int, **row: Any) -> Path:
    """A complete run; its folder."""
    writer = written(root, name, seed, **row)
    writer.update_run(status="completed")
    writer.close()
    return writer.folder
