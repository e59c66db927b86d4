"""The device of TensorFlow that a device of d5ray is, and how many threads it has"""

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device, GPUDevice
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
    """Let operators have so many threads; TensorFlow takes this before its first use, and stays with it."""
    settings = tf.config.threading
    if settings.get_intra_op_parallelism_threads() == threads:
        return
    try:
        settings.set_intra_op_parallelism_threads(threads)
        settings.set_inter_op_parallelism_threads(1)
    except RuntimeError:  # it has been used
        return
