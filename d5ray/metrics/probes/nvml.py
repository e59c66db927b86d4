"""NVIDIA's GPUs through NVML: how busy they are, their memory and their energy"""

from importlib import import_module
from pathlib import Path
from typing import Any, final

from d5ray.errors import first_line
from d5ray.metrics.definitions.resources import (
    ABSENT,
    UNAVAILABLE,
    DeviceEnergy,
    DevicePeakMemory,
    DeviceUtilisation,
)
from d5ray.metrics.probes.node_meters import Meter, Reading

METRICS = (DeviceUtilisation.name, DevicePeakMemory.name, DeviceEnergy.name)
MILLI = 1e-3
DRIVER = Path("/proc/driver/nvidia/version")


@final
class Nvml(Meter):
    """The meter of the node's GPUs; their rows' scope is `gpu 0`, `gpu 1`, … in the order of nvidia-smi.

    CUDA counts what a process sees, in an order of its own: an agent's event `device` and the environment's
    `gpu_uuids`, which has NVML's order, tell by UUID which one is whose.

    Energy is the counter of the device (Volta and later); where there is none, its power is integrated from
    sample to sample by the trapezoidal rule, and the rows' source says so. Both are renewed ten times a
    second or so: of a run of less than some seconds they say little.

    library: NVML's Python binding, by default that of nvidia-ml-py.
    """

    def __init__(self, library: Any = None) -> None:
        self._why = ""
        self._devices: list[Any] = []
        self._last: dict[int, tuple[str, float]] = {}  # by device: J of the counter, or W of the power
        try:
            self._nvml = library or import_module("pynvml")  # an extra; few nodes have GPUs
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self._devices = [self._nvml.nvmlDeviceGetHandleByIndex(at) for at in range(count)]
        except ImportError:
            self._why = (
                f"{UNAVAILABLE}: NVML's Python binding is not installed: pip install 'd5ray[cuda]'"
                if DRIVER.exists()
                else f"{ABSENT} NVIDIA driver"
            )
        except Exception as error:  # NVML's own, whose class comes with the library
            self._why = f"{ABSENT} NVIDIA GPU that NVML sees: {first_line(error)}"
        if not self._devices and not self._why:
            self._why = f"{ABSENT} NVIDIA GPU"
        self.counts_energy = bool(self._devices)

    def read(self, seconds: float) -> list[Reading]:
        if self._why:
            why, self._why = self._why, ""
            return [Reading.missing(metric, why) for metric in METRICS]
        return [reading for number in range(len(self._devices)) for reading in self._of(number, seconds)]

    def _of(self, number: int, seconds: float) -> list[Reading]:
        nvml, device, scope = self._nvml, self._devices[number], f"gpu {number}"
        asked = (
            (DeviceUtilisation.name, lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu / 100),
            (DevicePeakMemory.name, lambda: float(nvml.nvmlDeviceGetMemoryInfo(device).used)),
        )
        readings = []
        for metric, ask in asked:
            try:
                # memory is not a maximum but what is used now: the sampled peak
                source = "counter" if metric == DeviceUtilisation.name else "integrated"
                readings.append(Reading(metric, float(ask()), scope, source))
            except Exception as error:
                readings.append(Reading.missing(metric, f"{UNAVAILABLE}: {first_line(error)}", scope))
        return readings + self._energy(number, seconds, scope)

    def _energy(self, number: int, seconds: float, scope: str) -> list[Reading]:
        last = self._last.pop(number, None)
        try:
            source, now = self._counted(number)
        except Exception as error:
            return [Reading.missing(DeviceEnergy.name, f"{UNAVAILABLE}: {first_line(error)}", scope)]
        self._last[number] = (source, now)
        if seconds <= 0:
            return []
        if last is None or last[0] != source or (source == "counter" and now < last[1]):
            why = f"{UNAVAILABLE}: {scope} was not read at the beginning of the interval"
            return [Reading.missing(DeviceEnergy.name, why, scope)]
        joules = now - last[1] if source == "counter" else (now + last[1]) / 2 * seconds
        return [Reading(DeviceEnergy.name, joules, scope, source)]

    def _counted(self, number: int) -> tuple[str, float]:
        device = self._devices[number]
        try:
            return "counter", self._nvml.nvmlDeviceGetTotalEnergyConsumption(device) * MILLI
        except Exception:  # an older device, which only tells its power
            return "integrated", self._nvml.nvmlDeviceGetPowerUsage(device) * MILLI
