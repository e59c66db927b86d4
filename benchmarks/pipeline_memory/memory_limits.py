"""Executors of a process that may hold no more memory than a limit, and what it held at most"""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

from d5ray.frameworks import torch
from d5ray.frameworks.torch import native_executor, piece_executor
from d5ray.networks.executors.executor import Executor
from d5ray.networks.microbatch.peak import HostPeak
from d5ray.networks.stages.piece import Piece
from d5ray.networks.stages.piece_executor import PieceExecutor

LOOK_SECONDS = 0.01  # between two looks; the kernel keeps the peak meanwhile
LOADED = (native_executor, piece_executor)  # with all that they import, before what is held is counted


def from_model(
    model: Any, model_kwargs: dict[str, Any], *, limit_bytes: int, note: str, **others: Any
) -> Executor:
    """PyTorch's executor in a process that is killed if it holds `limit_bytes` more than now; 0: no limit.

    note: the path of a file that says so then.
    """
    _WATCH.begin(limit_bytes, note, 0)
    return torch.from_model(model, model_kwargs, **others)


def from_pieces(pieces: Sequence[Piece], *, limit_bytes: int, note: str, **others: Any) -> PieceExecutor:
    """The same of a stage. The parameters of its pieces, which have come already, count too."""
    values = [value for piece in pieces for value in piece.network.parameters.values()]
    _WATCH.begin(limit_bytes, note, sum(value.nbytes for value in values))
    return torch.from_pieces(pieces, **others)


def peak_bytes(agent: Any) -> int:
    """What the process has held at most since; asked on the agent."""
    return _WATCH.peak_bytes()


@final
class Watch:
    """Looks at the memory of its process and ends it beyond a limit, as Linux does with control groups."""

    def __init__(self) -> None:
        self._peak = HostPeak()
        self._held = 0

    def begin(self, limit_bytes: int, note: str, held: int) -> None:
        """From here on. held: bytes that are there already and count."""
        self._held = held
        self._peak.begin()
        if limit_bytes:
            threading.Thread(target=self._look, args=(limit_bytes, Path(note)), daemon=True).start()

    def peak_bytes(self) -> int:
        return self._peak.bytes() + self._held

    def _look(self, limit_bytes: int, note: Path) -> None:
        waiting = threading.Event()
        while not waiting.wait(LOOK_SECONDS):
            if (found := self.peak_bytes()) > limit_bytes:
                note.write_text(f"{found:,} bytes of {limit_bytes:,}\n")
                os.kill(os.getpid(), signal.SIGKILL)


_WATCH = Watch()  # of this process, which has one agent
