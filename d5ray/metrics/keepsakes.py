"""What an asynchronous run keeps beside its tables, so that it can be replayed"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.metrics.files import storing

EXPERIMENT = "experiment.pickle"  # as it was sent to the agents
PARAMETERS = "parameters.npz"  # at the end: an array (n,) for each agent, by rank
MOST_BYTES = 2**28  # of parameters that are kept; beyond that, those of the first agents


def keep_experiment(folder: Path, pickled: bytes) -> None:
    """Keep the experiment; raises `StorageError`."""
    with storing(folder):
        (folder / EXPERIMENT).write_bytes(pickled)


def keep_parameters(folder: Path, by_rank: Mapping[int, np.ndarray[Any, Any]]) -> None:
    """Keep the agents' flat parameters; raises `StorageError`."""
    kept: dict[str, np.ndarray[Any, Any]] = {}
    for rank, flat in by_rank.items():
        if kept and (len(kept) + 1) * flat.nbytes > MOST_BYTES:
            break
        kept[str(rank)] = flat
    with storing(folder):
        np.savez(folder / PARAMETERS, allow_pickle=False, **kept)
