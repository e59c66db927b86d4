"""PeakMemory: how much more memory a process has held at most than when one began to look"""

import ctypes
import gc
from abc import ABC, abstractmethod
from pathlib import Path
from typing import final

from d5ray.errors import ConfigurationError

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
KILOBYTE = 1024  # as the kernel means it


class PeakMemory(ABC):
    """The peak of this process's memory between `begin` and a later look."""

    @abstractmethod
    def begin(self) -> None:
        """Measure the peak from here on."""

    @abstractmethod
    def bytes(self) -> int:
        """The largest since, over what was held then."""


@final
class HostPeak(PeakMemory):
    """The peak of the process's resident set, as Linux counts it page by page."""

    def __init__(self) -> None:
        self._base = 0

    def begin(self) -> None:
        gc.collect()
        _give_back()
        try:
            RESET.write_text("5")  # the peak is what is held now
        except OSError as error:
            raise ConfigurationError(
                f"the peak memory of this process cannot be measured: {RESET}: {error.strerror}; it takes "
                "Linux's /proc"
            ) from error
        self._base = _status("VmRSS")

    def bytes(self) -> int:
        return max(0, _status("VmHWM") - self._base)


def _give_back() -> None:
    """Let free memory that the allocator keeps go, where it is glibc's: otherwise it would be used unseen."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _status(name: str) -> int:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * KILOBYTE
    raise ConfigurationError(f"{STATUS} has no {name}: the memory of this process cannot be measured")
