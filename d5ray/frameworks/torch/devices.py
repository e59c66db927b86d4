"""The device of PyTorch that a device of d5ray is"""

import torch

from d5ray.errors import ConfigurationError
from d5ray.networks.device import BestDevice, Device


def chosen(device: Device) -> torch.device:
    """PyTorch's device. Raises `ConfigurationError` for a GPU where PyTorch finds none."""
    if isinstance(device, BestDevice):
        device = device.chosen(torch.cuda.device_count() if torch.cuda.is_available() else 0)
    if str(device).startswith("cuda") and not torch.cuda.is_available():
        raise ConfigurationError(
            f"the device is {device}, but PyTorch finds no GPU here: use CPUDevice(), or install a CUDA "
            "build of torch on a machine with a GPU"
        )
    return torch.device(str(device))
