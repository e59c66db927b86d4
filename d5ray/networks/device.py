"""Devices that a network runs on: a processor or a graphics processor, as data."""

from dataclasses import dataclass

from d5ray.checks import check_count, wrong_kind

MOST_DEVICES = 1024  # of a node


@dataclass(frozen=True)
class CPUDevice:
    """The processor of the agent's node."""

    def __str__(self) -> str:
        return "cpu"


@dataclass(frozen=True)
class GPUDevice:
    """The graphics processor with this index among those the agent sees."""

    index: int = 0

    def __post_init__(self) -> None:
        check_count("index", self.index, low=0, high=MOST_DEVICES - 1)

    def __str__(self) -> str:
        return f"cuda:{self.index}"


@dataclass(frozen=True)
class BestDevice:
    """The first graphics processor that the agent sees, or the processor where it sees none."""

    def chosen(self, gpus: int) -> CPUDevice | GPUDevice:
        """The device, on a node with that many graphics processors.

        >>> BestDevice().chosen(gpus=0), BestDevice().chosen(gpus=2)
        (CPUDevice(), GPUDevice(index=0))
        """
        return GPUDevice() if gpus else CPUDevice()


Device = CPUDevice | GPUDevice | BestDevice
NAMED: dict[str, Device] = {"cpu": CPUDevice(), "cuda": GPUDevice(), "gpu": GPUDevice()}


def as_device(given: object) -> Device:
    """A device that is given as it is, or as PyTorch calls it. Raises `ConfigurationError` for another.

    >>> as_device("cuda"), as_device("cuda:1"), as_device(BestDevice())
    (GPUDevice(index=0), GPUDevice(index=1), BestDevice())
    """
    if isinstance(given, Device):
        return given
    kind, _, index = str(given).partition(":")
    if kind in NAMED and not index:
        return NAMED[kind]
    if kind == "cuda" and index.isdecimal():
        return GPUDevice(int(index))
    raise wrong_kind("device", given, "CPUDevice(), GPUDevice(0) or BestDevice(), or 'cpu', 'cuda', 'cuda:1'")
