"""`from_pieces` of each framework: the executor of the pieces of a network that one stage holds"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from d5ray.errors import ConfigurationError, nearest
from d5ray.frameworks import FRAMEWORKS
from d5ray.kits.parallel.stages.piece import Piece
from d5ray.kits.parallel.stages.piece_executor import PieceExecutor
from d5ray.networks.device import CPUDevice, Device, GPUDevice
from d5ray.networks.loading import JAX
from d5ray.operators.collectives import Collectives

KINDS: Final = {  # modules beside this one, imported when asked for, and their executors
    "numpy": ("arrays", "ArrayPieceExecutor"),
    "cupy": ("arrays", "ArrayPieceExecutor"),
    "torch": ("torch", "TorchPieceExecutor"),
    "tensorflow": ("tensorflow", "TensorFlowPieceExecutor"),
}


def piece_executor_by_name(name: str) -> Callable[..., PieceExecutor]:
    """The `from_pieces` of this framework, which is imported when it is called.

    Raises `ConfigurationError` with the nearest name if there is no such framework.
    """
    if name not in FRAMEWORKS:
        raise ConfigurationError(f"there is no framework {name!r}: {nearest(name, FRAMEWORKS)}")
    own: Device = GPUDevice() if name == "cupy" else CPUDevice()

    def from_pieces(
        pieces: Sequence[Piece],
        device: Device = own,
        *,
        recompute: bool = False,
        collectives: Collectives | None = None,
        threads: int | None = None,
    ) -> PieceExecutor:
        """The executor of the pieces of a Network that one stage holds; see `PieceExecutor`.

        threads: for operators of this process, on the processor; None leaves them as they are.
        """
        check_pieces(name)
        module, kind = KINDS[name]
        found = import_module(f"{__name__}.{module}")
        made: PieceExecutor = getattr(found, kind)(
            pieces, found.library_of(name, device, threads), recompute, collectives
        )
        return made

    return from_pieces


def check_pieces(framework: str) -> None:
    """Raise `ConfigurationError` where a framework runs no pieces of a Network, as agents of a mesh hold."""
    if framework == JAX:
        raise ConfigurationError(
            "executor is 'jax', which runs models of JAX's libraries as a whole, and the agents of a mesh "
            "hold pieces of a Network: leave mesh out, or set executor='torch' or another framework's, with "
            "a network that it can cut"
        )


in_numpy, in_torch, in_tensorflow, in_cupy, in_jax = map(piece_executor_by_name, FRAMEWORKS)
