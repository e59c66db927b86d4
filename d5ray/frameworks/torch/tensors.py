"""Arrays of NumPy as tensors of PyTorch, and back"""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch

from d5ray.ops.torch import types
from d5ray.ops.torch.types import array_of as array_of

Array = np.ndarray[Any, Any]


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor over the memory of an array, or over a copy of it where it must not be written."""
    return types.tensor_of(array if array.flags.writeable else array.copy())


def plain_tensor_of(array: Array) -> torch.Tensor:
    """A tensor over an array of a type that PyTorch shares with NumPy; asking for the type takes longer."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def save(tensors: Mapping[str, Array], path: PathLike[str]) -> None:
    """Write arrays as tensors by name, for `torch.load`."""
    try:
        with Path(path).open("wb") as file:
            torch.save({name: tensor_of(np.array(each)) for name, each in tensors.items()}, file)
    except RuntimeError as error:
        raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None
