"""Where a network runs: a processor or a graphics processor, as data."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CPUDevice:
    """The processor of the agent's node."""

    def __str__(self) -> str:
        return "cpu"


@dataclass(frozen=True)
class GPUDevice:
    """The graphics processor with this index among those the agent sees."""

    index: int = 0

    def __str__(self) -> str:
        return f"cuda:{self.index}"


Device = CPUDevice | GPUDevice
