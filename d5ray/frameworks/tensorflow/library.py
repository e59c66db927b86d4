"""TensorFlow as an array library, on one device"""

import os
from functools import cache
from typing import Any, final

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device, GPUDevice
from d5ray.networks.executors.array_library import ArrayLibrary, HostArray, Region, allocated_bytes
from d5ray.ops.tensorflow.library import tf


@final
class TensorFlow(ArrayLibrary):
    """Tensors on the device that TensorFlow calls `where`. None can be written, so none is a flat buffer."""

    name = "tensorflow"

    def __init__(self, device: Device) -> None:
        self.where = chosen(device)

    def put(self, value: HostArray) -> Any:
        with tf.device(self.where):
            return tf.convert_to_tensor(value)

    def get(self, value: Any) -> HostArray:
        return np.array(value)

    def host(self, value: Any) -> HostArray:
        return np.asarray(value)

    def allocated(self) -> int | None:
        """Bytes of tensors on the device, as TensorFlow counts them; else the process's allocations.

        On CPUs TensorFlow counts where its oneDNN kernels are on, which is the default where the processor
        has AVX-512 VNNI or the like: tensors then come from a pool of its own, whose growth is all that the C
        library sees. Without them each tensor is an allocation of the C library, which counts those.
        """
        if _is_counted(self.where):
            return int(tf.config.experimental.get_memory_info(self.where.removeprefix("/"))["current"])
        return allocated_bytes()

    def synchronize(self) -> None:
        """Nothing to wait for: TensorFlow waits by itself for what is read."""

    def type_of(self, array: Any) -> str:
        if not isinstance(array, tf.Tensor):
            raise TypeError(f"{type(array).__name__} is no tensor of TensorFlow")
        return str(array.dtype.name)

    def region_of(self, array: Any) -> Region:
        if array.dtype == tf.variant:
            return Region(id(array), 0, 0, 0)
        own = np.asarray(array)
        return Region(own.ctypes.data, own.nbytes, own.ctypes.data, own.nbytes)


def chosen(device: Device) -> str:
    """TensorFlow's name. Raises `ConfigurationError` for a GPU where TensorFlow finds none."""
    gpus = tf.config.list_physical_devices("GPU")
    if isinstance(device, BestDevice):
        device = device.chosen(len(gpus))
    if not isinstance(device, GPUDevice):
        return "/CPU:0"
    if device.index >= len(gpus):
        raise ConfigurationError(
            f"the device is {device}, but TensorFlow finds {len(gpus) or 'no'} GPU{'s' * (len(gpus) > 1)} "
            "here: use CPUDevice(), or install 'tensorflow[and-cuda]' on a machine with a GPU"
        )
    return f"/GPU:{device.index}"


def use_threads(threads: int) -> None:
    """Let operators have that many threads; TensorFlow takes this before its first use, and stays with it.

    One operator runs at a time then, unless the variable TF_NUM_INTEROP_THREADS says how many.
    """
    settings = tf.config.threading
    if settings.get_intra_op_parallelism_threads() == threads:
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        if "TF_NUM_INTEROP_THREADS" not in os.environ:
            settings.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # it has been used
        return


@cache
def _is_counted(where: str) -> bool:
    try:
        tf.config.experimental.get_memory_info(where.removeprefix("/"))
    except ValueError:  # "allocator stats not available"
        return False
    return True
