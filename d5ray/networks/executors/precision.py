"""Precisions: the types that a network computes in, by name, and which of them an executor has"""

from collections.abc import Collection
from typing import Final

from d5ray.checks import check_choice, shown
from d5ray.errors import ConfigurationError
from d5ray.networks.device import CPUDevice, Device

PRECISIONS: Final = ("float32", "bfloat16", "float16", "tf32", "float64")
FULL: Final = ("float32", "float64")  # in which parameters, gradients and every computation are of one type
SHORT: Final = {
    "fp32": "float32", "single": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16",
    "fp64": "float64", "double": "float64", "64": "float64", "32": "float32", "16": "float16",
}  # fmt: skip


def check_precision(precision: object) -> None:
    """Raise `ConfigurationError` unless it is the name of a precision.

    >>> check_precision("bf16")
    Traceback (most recent call last):
    d5ray.errors.ConfigurationError: precision is 'bf16': it must be one of 'float32', 'bfloat16', \
'float16', 'tf32', 'float64'; did you mean 'bfloat16'?
    """
    text = str(precision).removeprefix("torch.").removesuffix("-mixed")
    meant = text if text in PRECISIONS else SHORT.get(text.lower())
    if meant is None or precision == meant:
        check_choice("precision", precision, PRECISIONS)
        return
    raise ConfigurationError(
        f"precision is {shown(precision)}: it must be one of {', '.join(map(repr, PRECISIONS))}; did you "
        f"mean {meant!r}?"
    )


def check_offered(precision: str, offered: Collection[str], framework: str, device: Device) -> None:
    """Raise `ConfigurationError` where a framework, or the device, does not compute in this precision."""
    check_precision(precision)
    if precision not in offered:
        raise ConfigurationError(
            f"precision is {precision!r}, and {framework} computes in {' and '.join(offered)} here: take one "
            "of them, or executor='torch'"
        )
    if precision == "tf32" and isinstance(device, CPUDevice):
        raise ConfigurationError(
            "precision is 'tf32', a type of NVIDIA's graphics processors, and the device is the processor: "
            "set executor_kwargs={'device': GPUDevice()}, or take 'float32' or 'bfloat16'"
        )
