"""Arrays of NumPy as tensors of PyTorch, and back"""

from typing import Any

import numpy as np
import torch

Array = np.ndarray[Any, Any]


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor over the memory of an array, or over a copy of it where it must not be written."""
    if array.dtype.name == "bfloat16":  # which NumPy knows from ml_dtypes: the bits travel as int16
        return plain_tensor_of(array.view(np.int16)).view(torch.bfloat16)
    return plain_tensor_of(array)


def plain_tensor_of(array: Array) -> torch.Tensor:
    """The same for an array of a type that PyTorch shares with NumPy; asking for the type takes longer."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def array_of(tensor: torch.Tensor) -> Array:
    """An array over the memory of a tensor, or over a copy of it where that is on a device."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes  # noqa: PLC0415 - takes a while, and is rarely needed

        return np.asarray(tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())
