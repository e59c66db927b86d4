"""Rows of a few numbers that the members of a group tell each other"""

from typing import Any

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.frameworks.host import host_copy, host_view, native, on_device

Array = np.ndarray[Any, Any]


def gathered(row: Array, communication: Communicator, like: Any) -> Array:
    """Every member's row (n,), by rank (members, n); like: an array of the framework and device to use."""
    whole = native(np.zeros(communication.size * len(row), row.dtype), like)
    whole[communication.bounds(len(whole))[communication.rank]] = native(row, like)
    communication.all_gather(whole)
    found = host_copy(whole) if on_device(whole) else host_view(whole)
    return found.reshape(communication.size, len(row))
