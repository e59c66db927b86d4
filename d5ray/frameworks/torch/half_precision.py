"""float16 and bfloat16 arrays in host memory by PyTorch's vector code: sums, minima, maxima, conversion"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

Flat = np.ndarray[Any, Any]

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "sum": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
}


def reduce_halves(operation: str) -> Callable[[Flat, Flat, Flat], None]:
    """A reduction of halves, for `d5ray.distributed.communicators.point_to_point.collectives`."""
    function = _FUNCTIONS[operation]

    def reduce(a: Flat, b: Flat, out: Flat) -> None:
        function(_tensor(a), _tensor(b), out=_tensor(out))

    return reduce


def convert(source: Flat, out: Flat) -> None:
    """out ← source, both (n,), of float16, bfloat16 (of ml_dtypes) or float32.

    NumPy takes up to 20 times as long.
    """
    _tensor(out).copy_(_tensor(source))


def _tensor(flat: Flat) -> Tensor:
    """NumPy knows no bfloat16 of PyTorch's: the bits travel as int16."""
    if flat.dtype.kind == "f":
        return torch.from_numpy(flat)
    return torch.from_numpy(flat.view(np.int16)).view(torch.bfloat16)
