"""The device of TensorFlow that a device of d5ray is, how many threads it has, and what is allocated on it"""

from functools import cache

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device, GPUDevice
from d5ray.networks.events.allocated_bytes import allocated_bytes
from d5ray.ops.tensorflow.library import tf


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
    """Let operators have that many threads; TensorFlow takes this before its first use, and stays with it."""
    settings = tf.config.threading
    if settings.get_intra_op_parallelism_threads() == threads:
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # it has been used
        return


def allocated(where: str) -> int | None:
    """Bytes of tensors on the device of this name, as TensorFlow counts them; else the process's allocations.

    On CPUs TensorFlow counts where its oneDNN kernels are on, which is the default where the processor has
    AVX-512 VNNI or the like: tensors then come from a pool of its own, whose growth is all that the C
    library sees. Without them each tensor is an allocation of the C library, which counts those.
    """
    if _is_counted(where):
        return int(tf.config.experimental.get_memory_info(where.removeprefix("/"))["current"])
    return allocated_bytes()


@cache
def _is_counted(where: str) -> bool:
    try:
        tf.config.experimental.get_memory_info(where.removeprefix("/"))
    except ValueError:  # "allocator stats not available"
        return False
    return True
