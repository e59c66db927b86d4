"""What a run keeps beside its tables: what a replay needs, and the files of its events"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError
from d5ray.metrics.files import storing
from d5ray.metrics.schema import TABLES

EXPERIMENT = "experiment.pickle"  # as it was sent to the agents
PARAMETERS = "parameters.npz"  # at the end: an array (n,) for each agent, by rank
ENDINGS = ("parquet", "arrows")
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


def keep_file(folder: Path, name: str, data: bytes) -> None:
    """Keep a file of the user's in a run's folder, where it appears as a whole; raises `StorageError`."""
    taken = {EXPERIMENT, PARAMETERS, "checkpoints"} | {f"{table}.{e}" for table in TABLES for e in ENDINGS}
    if Path(name).name != name or name in taken or name.startswith("."):
        raise ConfigurationError(
            f"a file of a run cannot be called {name!r}: take a name without folders that no table has"
        )
    part = folder / f".{name}.part"
    with storing(folder / name):
        part.write_bytes(data)
        part.replace(folder / name)
