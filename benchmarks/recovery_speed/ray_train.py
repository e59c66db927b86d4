"""Ray Train's TorchTrainer that starts its workers again after a death, and an actor that imports PyTorch"""

import tempfile
from pathlib import Path
from typing import Any, final

from d5ray.errors import AgentError

MOST_FAILURES = 3
CHECKPOINT_STEPS = 10  # between two checkpoints
STATE = "state.pt"


@final
class RecoveringTrainer:
    """Runs Ray Train's driver in a process of its own."""

    def train(self, given: dict[str, Any], workers: int) -> None:
        """Train until the file says so. given: what every process is told."""
        from ray.train import FailureConfig, RunConfig, ScalingConfig  # noqa: PLC0415 - takes a while
        from ray.train.torch import TorchConfig, TorchTrainer  # noqa: PLC0415 - as above

        result = TorchTrainer(
            _work,
            train_loop_config=given,
            scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 1}),
            torch_config=TorchConfig(backend="gloo"),
            run_config=RunConfig(
                name="again",
                storage_path=given["folder"],
                failure_config=FailureConfig(max_failures=MOST_FAILURES),
            ),
        ).fit()
        if result.error is not None:
            raise AgentError(f"Ray Train's TorchTrainer failed: {result.error}")


@final
class ImportsTorch:
    """An actor that is of no use before it has PyTorch."""

    def version(self) -> str:
        """PyTorch's version, when it is imported."""
        import torch  # noqa: PLC0415 - is what is timed

        return str(torch.__version__)


def _work(given: dict[str, Any]) -> None:
    """Runs in every worker."""
    import ray.train  # noqa: PLC0415 - as above
    import torch  # noqa: PLC0415 - as above
    from ray.train.torch import prepare_model  # noqa: PLC0415 - as above

    from benchmarks.recovery_speed.worker import LocalTraining  # noqa: PLC0415 - imports torch

    rank = ray.train.get_context().get_world_rank()
    training, step = LocalTraining(given | {"rank": rank}), 0
    if (checkpoint := ray.train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            state = torch.load(Path(folder) / STATE)
        training.module.load_state_dict(state["module"])
        training.optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    forward = prepare_model(training.module)
    over = False
    while not over:
        training.optimizer.zero_grad()
        training.loss(forward).backward()  # type: ignore[no-untyped-call]
        training.optimizer.step()
        step += 1
        over = training.marks.committed(step)
        if step % CHECKPOINT_STEPS == 0:
            with tempfile.TemporaryDirectory() as folder:
                kept = None
                if rank == 0:
                    state = {"module": training.module.state_dict(), "step": step}
                    torch.save(state | {"optimizer": training.optimizer.state_dict()}, Path(folder) / STATE)
                    kept = ray.train.Checkpoint.from_directory(folder)
                ray.train.report({"step": step}, checkpoint=kept)
    training.end()
