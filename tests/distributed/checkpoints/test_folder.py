"""A folder of checkpoints: others read its files, a damaged one is refused, a failure costs nothing"""

import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.torch
import torch

from d5ray.distributed.checkpoints.folder import MANIFEST, CheckpointFolder, step_name
from d5ray.errors import ConfigurationError, StorageError
from d5ray.metrics.record.tensor_file import parsed, pieces

RNG = np.random.default_rng(3)
ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "parameters": RNG.standard_normal(1000).astype(np.float32),
    "moments": RNG.standard_normal((20, 5)),
    "counter": np.array(7),
    "random": RNG.integers(0, 256, 101).astype(np.uint8),
    "nothing": np.empty(0, np.float32),
    "half": RNG.standard_normal(3).astype(ml_dtypes.bfloat16),
}


def written(arrays: dict[str, Any] = ARRAYS, text: str = "{}") -> bytes:
    return b"".join(pieces(arrays, text))


def test_we_read_the_files_of_the_safetensors_library() -> None:
    tensors = {name: torch.from_numpy(array) for name, array in ARRAYS.items() if name != "half"}
    data = safetensors.torch.save(tensors, {"state": "the text"})
    found, text = parsed(np.frombuffer(data, np.uint8), "file")
    assert text == "the text"
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in ARRAYS.items() if name != "half"
    }


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"PK\3\4" + b"x" * 100, written()[:40]])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(StorageError, match="x is not a file that a checkpoint wrote"):
        parsed(np.frombuffer(data, np.uint8), "x")


def save(folder: CheckpointFolder, step: int, arrays: dict[str, Any] = ARRAYS, run: str = "run") -> None:
    folder.begin(step)
    folder.write(step, "agent-0.safetensors", pieces(arrays, "{}"))
    folder.complete(step, ["agent-0.safetensors"], {"run_id": run})


@pytest.fixture(params=["local", "file://", "fsspec+memory://"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CheckpointFolder]:
    """On this disk, by its URI, and on a store that knows no renaming of folders."""
    prefix = "" if request.param == "local" else request.param
    yield CheckpointFolder(f"{prefix}{tmp_path}/checkpoints")


def test_what_is_complete_is_listed_and_read(folder: CheckpointFolder) -> None:
    """An unfinished one is none, and is replaced; so is one of the same step when the new one is complete."""
    assert folder.steps() == []
    for step in (20, 100_000_000, 3):
        folder.begin(step)
        folder.write(step, "agent-0.safetensors", pieces(ARRAYS, "{}"))
        assert step not in folder.steps()
        for value in (-1, step):
            save(folder, step, {"x": np.full(3, value)})
    assert folder.steps() == [3, 20, 100_000_000]
    found, _ = parsed(folder.read(20, "agent-0.safetensors"), "file")
    assert found.keys() == {"x"} and found["x"].tolist() == [20, 20, 20]
    assert folder.manifest(3)["run_id"] == "run"
    folder.forget(3)
    assert folder.steps() == [20, 100_000_000]


def test_a_checkpoint_lacks_nothing(folder: CheckpointFolder) -> None:
    """A part that another node has written elsewhere is missed before the manifest is there."""
    folder.begin(5)
    folder.write(5, "agent-0.safetensors", pieces(ARRAYS, "{}"))
    with pytest.raises(StorageError, match=r"agent-1\.safetensors cannot be seen .* all nodes reach"):
        folder.complete(5, ["agent-0.safetensors", "agent-1.safetensors"], {})
    assert folder.steps() == []


def test_a_damaged_file_is_refused_and_others_are_named(tmp_path: Path) -> None:
    """A file that is cut or flipped, a manifest that is none, which is no run's then, or no place at all."""
    folder = CheckpointFolder(str(tmp_path))
    for step, run in ((10, "one"), (20, "other"), (30, "one")):
        save(folder, step, run=run)
    assert folder.steps_of("one") == [10, 30]
    file, manifest = (tmp_path / step_name(30) / name for name in ("agent-0.safetensors", MANIFEST))
    whole = file.read_bytes()
    assert json.loads(manifest.read_text())["files"][file.name]["bytes"] == len(whole)
    assert {path.name for path in file.parent.iterdir()} == {file.name, MANIFEST}
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for data in (whole[:-1], bytes(flipped)):
        file.write_bytes(data)
        with pytest.raises(StorageError, match=r"is damaged: .* there are others, of steps? 10"):
            folder.read(30, "agent-0.safetensors")
    manifest.write_text("{")
    with pytest.raises(StorageError, match=r"checkpoint\.json is damaged"):
        folder.manifest(30)
    assert folder.steps_of("one") == [10]
    with pytest.raises(ConfigurationError, match=r"'nowhere://x' is no place for checkpoints"):
        CheckpointFolder("nowhere://x")


def test_a_full_disk_is_an_error_and_costs_no_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    save(folder, 10)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))  # Python ignores the signal
    try:
        with pytest.raises(StorageError, match=r"(?s)cannot be written.*free some space"):
            save(folder, 20, {"x": np.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert folder.steps() == [10]
    assert parsed(folder.read(10, "agent-0.safetensors"), "file")[0].keys() == ARRAYS.keys()
