"""Arrays in host memory as NumPy sees them: a flat view that shares memory, whatever the framework"""

from functools import cache
from typing import Any
from uuid import UUID

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.training.arrays import library_of

Flat = np.ndarray[Any, Any]


def host_view(array: Any) -> Flat:
    """A flat NumPy array (n,) over the memory of a contiguous array of NumPy or PyTorch in host memory.

    bfloat16 becomes `ml_dtypes.bfloat16`, which NumPy computes with. Raises `ConfigurationError` for what is
    not contiguous, read-only, on a device, or no array.
    """
    if isinstance(array, np.ndarray):
        if not array.flags.c_contiguous:
            raise _not_contiguous(array.shape, array.strides)
        if not array.flags.writeable:
            raise ConfigurationError(
                "an array is read-only, but arrays are exchanged in place: give a copy of it"
            )
        return array.reshape(-1)
    if not _is_tensor(type(array)):  # type: ignore[arg-type]  # mypy holds that types have no hash
        raise ConfigurationError(
            f"this communicator exchanges arrays of NumPy and PyTorch in host memory, found a "
            f"{type(array).__name__}"
        )
    if not array.is_cpu:
        raise ConfigurationError(
            f"this communicator exchanges arrays in host memory, found a tensor on {array.device}: "
            "choose the communicator 'nccl', or move the tensor with .cpu()"
        )
    if not array.is_contiguous():
        raise _not_contiguous(tuple(array.shape), array.stride())
    # This is called at every exchange, between two steps that leave nothing of it in the caches.
    return _numpy(array if array.ndim == 1 and not array.requires_grad else array.detach().view(-1))


def on_device(array: Any) -> bool:
    """True if this is an array of CuPy or PyTorch outside host memory."""
    if isinstance(array, np.ndarray):
        return False
    if _is_tensor(type(array)):  # type: ignore[arg-type]
        return not array.is_cpu
    return hasattr(array, "__cuda_array_interface__")


def device_name(array: Any) -> str:
    """cpu, or cuda:1 for an array of CuPy or PyTorch on the second GPU that the process sees."""
    device = getattr(array, "device", "cpu")
    return f"cuda:{device.id}" if hasattr(device, "id") else str(device)


def gpu_uuid(array: Any) -> str:
    """The UUID by which NVIDIA's driver and NVML know an array's GPU; empty for one in host memory."""
    if not on_device(array):
        return ""
    if hasattr(array, "data_ptr"):
        import torch  # noqa: PLC0415 - the caller has it

        return f"GPU-{torch.cuda.get_device_properties(array.device).uuid}"
    import cupy  # noqa: PLC0415 - the caller has it

    return f"GPU-{UUID(bytes=cupy.cuda.runtime.getDeviceProperties(array.device.id)['uuid'])}"


def flat_on_device(array: Any) -> Any:
    """The flat array (n,) over the memory of a contiguous array of CuPy or PyTorch on a device."""
    contiguous = array.is_contiguous() if hasattr(array, "is_contiguous") else array.flags.c_contiguous
    if not contiguous:
        raise ConfigurationError(
            f"an array of shape {tuple(array.shape)} is not contiguous: exchange a contiguous copy and write "
            "it back"
        )
    return array.detach().view(-1) if hasattr(array, "detach") else array.reshape(-1)


def host_copy(array: Any) -> Flat:
    """A flat copy (n,) in host memory of an array on a device; waits for what the device computes."""
    if hasattr(array, "get"):  # CuPy
        return np.asarray(array.get()).reshape(-1)
    return host_view(array.detach().cpu().contiguous()).copy()


def native(values: Flat, like: Any) -> Any:
    """A copy of the values (n,), with their type, of the framework and device of another array."""
    if isinstance(like, np.ndarray):
        return values.copy()
    library = library_of(like)
    if values.dtype.name == "bfloat16":
        return library.from_numpy(values.view(np.int16).copy()).view(library.bfloat16).to(like.device)
    if hasattr(library, "from_numpy"):
        return library.from_numpy(values.copy()).to(like.device)
    return library.asarray(values)


@cache
def _is_tensor(kind: type) -> bool:
    """True if the class is PyTorch's tensor; PyTorch need not be imported for that."""
    return any(base.__module__.partition(".")[0] == "torch" for base in kind.__mro__) and hasattr(
        kind, "data_ptr"
    )


@cache
def _is_bfloat16(dtype: Any) -> bool:
    return str(dtype) == "torch.bfloat16"


def _numpy(flat: Any) -> Flat:
    """The NumPy array of a flat tensor; bfloat16, which NumPy lacks, goes by way of its bits."""
    if not _is_bfloat16(flat.dtype):
        plain: Flat = flat.numpy()
        return plain
    import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed
    import torch  # noqa: PLC0415 - the caller has it

    return np.asarray(flat.view(torch.int16).numpy().view(ml_dtypes.bfloat16))


def _not_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> ConfigurationError:
    return ConfigurationError(
        f"an array of shape {shape} and strides {strides} is not contiguous: exchange a contiguous copy and "
        "write it back"
    )
