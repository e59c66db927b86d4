"""Ray Train's TorchTrainer around a loop in plain PyTorch: a peer that d5ray is measured against"""

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, final

from d5ray.errors import AgentError, first_line


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

    def train(
        self, work: Callable[[dict[str, Any]], None], given: dict[str, Any], workers: int, failures: int = 0
    ) -> None:
        """Let `workers` fresh processes do the work; as many failures start all of them again.

        given: what each is told, with the "folder" for Ray Train's files.
        """
        from ray.train import FailureConfig, RunConfig, ScalingConfig  # noqa: PLC0415 - takes a while
        from ray.train.torch import TorchConfig, TorchTrainer  # noqa: PLC0415 - as above

        result = TorchTrainer(
            work,
            train_loop_config=given,
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(
                name="trainer",
                storage_path=given["folder"],
                failure_config=FailureConfig(max_failures=failures),
            ),
        ).fit()
        if result.error is not None:
            raise AgentError(f"Ray Train's TorchTrainer failed: {result.error}")


def loop_by_hand(config: dict[str, Any]) -> None:
    """Trains in every worker, and leaves what it noted in a file of the folder."""
    from ray.train import get_context  # noqa: PLC0415 - as above
    from ray.train.torch import prepare_model  # noqa: PLC0415 - as above

    from benchmarks.torch_loops import HandWrittenLoop  # noqa: PLC0415 - imports torch

    context = get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    trained = HandWrittenLoop(config["task"], rank, size, prepare_model).train(config["steps"])
    Path(config["folder"], f"{rank}.pickle").write_bytes(pickle.dumps(trained))
