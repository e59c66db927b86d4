"""Ray Train's TorchTrainer around a loop in plain PyTorch: a peer that d5ray is measured against"""

import importlib
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from d5ray.errors import AgentError, first_line

if TYPE_CHECKING:
    from benchmarks.torch_loops import TorchTask, Trained


def absent(module: str, package: str, name: str = "") -> str:
    """Why a peer cannot be measured here, and how to get it; empty if it can."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        return f"{name or module} cannot be imported ({first_line(error)}): pip install {package}"
    return ""


def missing() -> str:
    """What Ray Train lacks here, and how to get it; empty if nothing."""
    return absent("ray.train.torch", "'ray[train]'", "Ray Train")


@final
class TorchTrainerHost:
    """Runs Ray Train's driver in a process of its own: it takes Ctrl-C for itself, and keeps it."""

    def train(self, task: "TorchTask", workers: int, steps: int, folder: str) -> "list[Trained]":
        """What each of `workers` fresh processes noted, by rank. folder: for Ray Train's files."""
        from ray.train import RunConfig, ScalingConfig  # noqa: PLC0415 - takes a while, and few need it
        from ray.train.torch import TorchConfig, TorchTrainer  # noqa: PLC0415 - as above

        result = TorchTrainer(
            _work,
            train_loop_config={"task": task, "steps": steps, "folder": folder},
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(name="trainer", storage_path=folder),
        ).fit()
        if result.error is not None:
            raise AgentError(f"Ray Train's TorchTrainer failed: {result.error}")
        return [pickle.loads(_file(folder, rank).read_bytes()) for rank in range(workers)]


def _work(config: dict[str, Any]) -> None:
    """Runs in every worker."""
    from ray.train import get_context  # noqa: PLC0415 - as above
    from ray.train.torch import prepare_model  # noqa: PLC0415 - as above

    from benchmarks.torch_loops import HandWrittenLoop  # noqa: PLC0415 - imports torch

    context = get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    trained = HandWrittenLoop(config["task"], rank, size, prepare_model).train(config["steps"])
    _file(config["folder"], rank).write_bytes(pickle.dumps(trained))


def _file(folder: str, rank: int) -> Path:
    return Path(folder) / f"{rank}.pickle"
