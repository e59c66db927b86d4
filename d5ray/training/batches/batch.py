"""Batch: the samples and labels that one agent computes on in one step"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Batch:
    """One agent's samples of one step; see `Draw` for the weight."""

    inputs: np.ndarray[Any, Any]  # (batch, ...)
    labels: np.ndarray[Any, Any]  # (batch, ...), or targets that are no classes
    weight: float
    step: int
    epoch: int
    ends_epoch: bool
