"""Work of Ray Train's workers that goes on from a checkpoint after a death; an actor that imports PyTorch"""

import tempfile
from pathlib import Path
from typing import Any, final

MOST_FAILURES = 3
CHECKPOINT_STEPS = 10  # between two checkpoints
STATE = "state.pt"


@final
class ImportsTorch:
    """An actor that is of no use before it has PyTorch."""

    def version(self) -> str:
        """PyTorch's version, when it is imported."""
        import torch  # noqa: PLC0415 - is what is timed

        return str(torch.__version__)


def from_checkpoints(given: dict[str, Any]) -> None:
    """Trains in every worker until the file says so, and goes on from the last checkpoint."""
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
