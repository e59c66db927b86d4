"""Batch: the samples and labels that one agent computes on in one step"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from d5ray.networks.executors.trees import Tree


@dataclass(frozen=True)
class Batch:
    """One agent's samples of one step; see `Draw` for the weight."""

    inputs: Tree  # (batch, ...), or a dictionary or a tuple of such
    labels: np.ndarray[Any, Any]  # (batch, ...), or targets that are no classes
    weight: float
    step: int
    epoch: int
    ends_epoch: bool
