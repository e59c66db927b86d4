"""Artifacts of a run beside its tables: its experiment, the parameters it reached, its events' files"""

import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.files import replacing, storing
from d5ray.metrics.record.schema import TABLES

EXPERIMENT = "experiment.json"  # a form that is no code
ARRAYS = "experiment.npz"  # which it refers to
PICKLED = "experiment.pickle"  # code: where the experiment has the user's own
MODEL = "model.safetensors"  # the trained model
PARAMETERS = "parameters.npz"  # at the end: an array (n,) for each agent, by rank
ENDINGS = ("parquet", "arrows")
MOST_BYTES = 2**28  # of parameters that are kept; beyond that, those of the first agents


def keep(folder: Path, files: Mapping[str, bytes]) -> None:
    """Keep files of d5ray's own; raises `StorageError`."""
    for name, data in files.items():
        with storing(folder / name):
            (folder / name).write_bytes(data)


def keep_parameters(folder: Path, by_rank: Mapping[int, np.ndarray[Any, Any]]) -> None:
    """Keep the agents' flat parameters; raises `StorageError`."""
    kept: dict[str, np.ndarray[Any, Any]] = {}
    for rank, flat in by_rank.items():
        if kept and (len(kept) + 1) * flat.nbytes > MOST_BYTES:
            break
        kept[str(rank)] = flat
    with storing(folder):
        np.savez(folder / PARAMETERS, allow_pickle=False, **kept)


def kept_parameters(folder: Path) -> dict[int, np.ndarray[Any, Any]]:
    """The flat parameters (n,) that agents reached, by rank; nothing where none were kept.

    Raises `StorageError` for a file that is something else.
    """
    file = folder / PARAMETERS
    try:
        packed = file.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        return {int(name): array for name, array in arrays_in(packed, 2 * MOST_BYTES).items()}
    except Exception as error:  # NumPy and zipfile raise nearly everything for made-up files
        raise StorageError(f"{file} does not hold the parameters of agents: {error}") from error


def arrays_in(packed: bytes, most_bytes: int) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an .npz file, by name, of numbers alone; raises whatever a wrong file makes NumPy raise.

    most_bytes: what they may take in memory, by what the file says of them.
    """
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > most_bytes:
            raise ValueError(f"its arrays take more than {most_bytes >> 20} MiB")
    with np.load(io.BytesIO(packed), allow_pickle=False) as kept:
        return {name: kept[name] for name in kept.files}


def sha256_of(data: bytes) -> str:
    """The SHA-256 of these bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def keep_file(folder: Path, name: str, data: bytes) -> None:
    """Keep a file of the user's in a run's folder, where it appears as a whole; raises `StorageError`."""
    taken = {EXPERIMENT, ARRAYS, PICKLED, PARAMETERS, MODEL, "checkpoints"}
    taken |= {f"{table}.{ending}" for table in TABLES for ending in ENDINGS}
    if Path(name).name != name or name in taken or name.startswith("."):
        raise ConfigurationError(
            f"a file of a run cannot be called {name!r}: take a name without folders that no table has"
        )
    with replacing(folder / name) as part:
        part.write_bytes(data)
