"""A run in the schema of benchmarker (Drozd and Matsuoka; github.com/undertherain/benchmarker)

All its keys, with null for what was not measured. `hostname`, `linux`, `shape_x_train` and `time` are those
of its first published form. Times are of the steps after the warm-up, of the slowest agent: `time_total` is
their sum and `time_batch` their mean; `time_epoch` is the mean times the steps of an epoch. d5ray's medians
with intervals have no place in it: `d5ray sql RUN "select * from summary" --format json` has them.
"""

import json
from pathlib import Path
from typing import Any, ClassVar, final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from d5ray.metrics.definitions.catalogue import SamplesSeen, StepTime, Throughput
from d5ray.metrics.exports.benchmarker_schema import FRAMEWORKS, full_name, platform_of, surroundings
from d5ray.metrics.exports.exporter import WholeExporter
from d5ray.metrics.record.reader import Run
from d5ray.metrics.statistics.estimates import Rows
from d5ray.names.kits import parts


@final
class BenchmarkerExporter(WholeExporter):
    """An exporter to one JSON file; for operators to a folder, with a file for each problem and framework."""

    name: ClassVar[str] = "benchmarker"
    ending: ClassVar[str] = ".benchmarker.json"

    def ending_of(self, run: Run) -> str:
        return "-benchmarker" if _documents(run) else self.ending

    def write(self, run: Run, target: Path) -> None:
        if not (documents := _documents(run)):
            _write(target, benchmarked(run) | {"path_out": str(target.parent)})
            return
        target.mkdir()
        for name, told in documents.items():
            _write(target / f"{name}.json", told | {"path_out": str(target.parent)})


def _documents(run: Run) -> dict[str, dict[str, Any]]:
    """The documents by the names of their files where a run has several, as kits find them."""
    found = (of(run) for of in parts("documents of benchmarker").values())
    return {name: told for documents in found for name, told in documents.items()}


def _write(file: Path, told: dict[str, Any]) -> None:
    text = json.dumps(told, indent=4, sort_keys=True, allow_nan=False) + "\n"
    file.write_text(text, encoding="utf-8")


def benchmarked(run: Run) -> dict[str, Any]:
    """The document as data; path_out is null."""
    row, tables = run.row, run.tables()
    job = json.loads(row["experiment"] or "{}")
    platform = platform_of(tables["environment"], row["host"])
    framework = _framework(str(job.get("executor")))
    kinds = _devices(job.get("executor_kwargs") or {})
    gpus = [int(kind.partition(":")[2] or 0) for kind in kinds if kind.startswith("cuda")]
    size = _step_batch_size(job)
    times = _times(tables["samples"], row, job)
    return {
        "framework": framework,
        "framework_full": full_name(framework, platform),
        "problem": {
            "name": job["model"] if isinstance(job.get("model"), str) else row["recipe"],
            "sample_shape": None,
            "cnt_samples": times.pop("cnt_samples"),
            "cnt_batches_per_epoch": times.pop("cnt_batches_per_epoch"),
            "numerics": None,
            "precision": None,
            "gflop_estimated": None,
            "gflop_measured": None,
        },
        "mode": "training",
        "batch_size": size * _replicas(job, row) if size is not None and row["agents"] is not None else None,
        "batch_size_per_device": size,
        "nb_epoch": job.get("epochs"),
        **surroundings(row, platform, gpus),
        **times,
        "gflop_per_second": None,
        "shape_x_train": None,
        "time": times["time_total"],
    }


def _times(samples: pa.Table, row: dict[str, Any], job: dict[str, Any]) -> dict[str, Any]:
    """The counts and times; null where the run recorded no steps of agents."""
    names = ("time_total", "time_epoch", "time_batch", "time_sample", "samples_per_second")
    times: dict[str, Any] = dict.fromkeys(("cnt_samples", "cnt_batches_per_epoch", *names))
    of_agents = {"samples": samples.filter(pc.equal(samples["scope"], "agent"))}
    steps, seen = Rows(of_agents, StepTime.name), Rows(of_agents, SamplesSeen.name)
    if not len(steps):
        return times
    begun = int(steps.epoch.min()) + (steps.step.min() > 0)  # the first epoch that a resumed run has whole
    ended = row["status"] == "completed" and not row["stop_reason"] and job.get("epochs") == begun + 1
    if begun < steps.epoch.max() or (begun == steps.epoch.max() and ended):
        _, step, together = seen.per(seen.step, np.add)
        own = np.isin(step, seen.step[seen.epoch == begun])
        times["cnt_samples"] = int(together[own].sum())
        times["cnt_batches_per_epoch"] = int(own.sum())
    measured = Rows(of_agents, StepTime.name, "train")
    if not len(measured):
        return times
    _, _, slowest = measured.per(measured.step, np.maximum)
    total, batch = float(np.sum(slowest)), float(np.mean(slowest))
    times |= {"time_total": total, "time_batch": batch}
    if size := _step_batch_size(job):
        times["time_sample"] = batch / (size * _replicas(job, row))
    if times["cnt_batches_per_epoch"]:
        times["time_epoch"] = batch * times["cnt_batches_per_epoch"]
    times["samples_per_second"] = Throughput().estimate(of_agents).value
    return times


def _replicas(job: dict[str, Any], row: dict[str, Any]) -> int:
    """The agents, or the replicas of a mesh: as many batches are in a step."""
    return int((job.get("mesh") or {}).get("replicas") or row["agents"])


def _step_batch_size(job: dict[str, Any]) -> int | None:
    """The samples of an agent and step; None where they change."""
    size = job.get("batch_size")
    return size * int(job.get("accumulate", 1)) if isinstance(size, int) else None


def _framework(executor: str) -> str | None:
    found = [name for part, name in FRAMEWORKS.items() if f".{part}." in executor]
    return found[0] if found else None


def _devices(executor_kwargs: dict[str, Any]) -> list[str]:
    """The device of an agent as the frameworks write it."""
    device = executor_kwargs.get("device")
    if isinstance(device, dict):
        return [f"cuda:{device.get('index', 0)}"] if "GPU" in str(device.get("class")) else ["cpu"]
    return [str(device)] if device else ["cpu"]
