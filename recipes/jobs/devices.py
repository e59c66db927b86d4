"""Executors with a device of their own, as it were: they compute, and then sleep as if they waited for it"""

import time
from collections.abc import Sequence
from typing import Any, final

from d5ray.frameworks.arrays.piece_executor import ArrayPieceExecutor
from d5ray.frameworks.numpy.library import NumPy
from d5ray.frameworks.torch import from_model as on_processor
from d5ray.networks.executors.delayed import DelayedExecutor, Virtual
from d5ray.networks.executors.executor import Executor
from d5ray.networks.stages.piece import Piece
from d5ray.operators.collectives import Collectives


def from_model(model: Any, model_kwargs: dict[str, Any], *, seconds: float, **others: Any) -> Executor:
    """PyTorch's executor, whose gradients take so long on the device."""
    return DelayedExecutor(on_processor(model, model_kwargs, **others), Virtual(lambda: seconds, time.sleep))


def from_pieces(
    pieces: Sequence[Piece],
    *,
    seconds: float,
    threads: int,
    recompute: bool = False,
    collectives: Collectives | None = None,
) -> ArrayPieceExecutor:
    """NumPy's executor of a stage, whose forward and whose backward passes take so long on the device."""
    return ArrayPieceExecutor(pieces, Device(seconds), recompute=recompute, collectives=collectives)


@final
class Device(NumPy):
    """Arrays in host memory, and a device that takes `seconds` for what is asked of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def synchronize(self) -> None:
        time.sleep(self.seconds)
