"""A folder of checkpoints: others read its files, a damaged one is refused, a failure costs nothing"""

import json
import subprocess
import sys
import textwrap
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
from tests.patience import patience

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


def test_the_safetensors_library_reads_our_files() -> None:
    found = safetensors.torch.load(written())
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert str(found[name].dtype) == f"torch.{array.dtype.name}"
        assert tuple(found[name].shape) == array.shape
        assert found[name].reshape(-1).view(torch.uint8).numpy().tobytes() == array.tobytes()


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
    assert folder.steps() == []
    for step in (20, 100_000_000, 3):
        save(folder, step, {"x": np.full(3, step)})
    assert folder.steps() == [3, 20, 100_000_000]
    found, _ = parsed(folder.read(20, "agent-0.safetensors"), "file")
    assert found["x"].tolist() == [20, 20, 20]
    assert folder.manifest(3)["run_id"] == "run"


def test_an_unfinished_one_is_no_checkpoint_and_is_replaced(folder: CheckpointFolder) -> None:
    folder.begin(5)
    folder.write(5, "agent-0.safetensors", pieces(ARRAYS, "{}"))
    assert folder.steps() == []
    save(folder, 5, {"x": np.ones(1)})
    assert parsed(folder.read(5, "agent-0.safetensors"), "file")[0].keys() == {"x"}


def test_one_of_the_same_step_is_replaced_when_the_new_one_is_complete(folder: CheckpointFolder) -> None:
    save(folder, 5, {"x": np.ones(1)})
    save(folder, 5, {"x": np.zeros(1)})
    assert parsed(folder.read(5, "agent-0.safetensors"), "file")[0]["x"].tolist() == [0]


def test_a_forgotten_one_is_gone(folder: CheckpointFolder) -> None:
    save(folder, 5)
    save(folder, 6)
    folder.forget(5)
    assert folder.steps() == [6]


def test_checkpoints_of_a_run_are_told_from_others_in_the_same_folder(tmp_path: Path) -> None:
    """Also where the manifest of one of them is damaged, which is then no run's."""
    folder = CheckpointFolder(str(tmp_path))
    for step, run in ((5, "one"), (6, "other"), (7, "one"), (8, "one")):
        save(folder, step, run=run)
    (tmp_path / step_name(7) / "checkpoint.json").write_text("{")
    assert folder.steps_of("one") == [5, 8]


def test_a_checkpoint_lacks_nothing(folder: CheckpointFolder) -> None:
    """A part that another node has written elsewhere is missed before the manifest is there."""
    folder.begin(5)
    folder.write(5, "agent-0.safetensors", pieces(ARRAYS, "{}"))
    with pytest.raises(StorageError, match=r"agent-1\.safetensors cannot be seen .* all nodes reach"):
        folder.complete(5, ["agent-0.safetensors", "agent-1.safetensors"], {})
    assert folder.steps() == []


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_refused_and_others_are_named(damage: str, tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    save(folder, 10)
    save(folder, 20)
    file = tmp_path / step_name(20) / "agent-0.safetensors"
    data = bytearray(file.read_bytes())
    if damage == "cut":
        data = data[:-1]
    else:
        data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.raises(StorageError, match=r"is damaged: .* there are others, of step 10"):
        folder.read(20, "agent-0.safetensors")


def test_a_damaged_manifest_is_refused(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    save(folder, 10)
    (tmp_path / step_name(10) / MANIFEST).write_text("{")
    with pytest.raises(StorageError, match=r"checkpoint\.json is damaged"):
        folder.manifest(10)


def test_a_place_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"'nowhere://x' is no place for checkpoints"):
        CheckpointFolder("nowhere://x")


FULL_DISK = """
import resource, signal, sys
import numpy as np
from d5ray.distributed.checkpoints.folder import CheckpointFolder
from d5ray.metrics.record.tensor_file import pieces
from d5ray.errors import StorageError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = CheckpointFolder(sys.argv[1])

def save(step, elements):
    folder.begin(step)
    folder.write(step, "agent-0.safetensors", pieces({"x": np.full(elements, step)}, "{}"))
    folder.complete(step, ["agent-0.safetensors"], {})

save(10, 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    save(20, 100_000)
except StorageError as error:
    print(error)
"""


def test_a_full_disk_is_an_error_and_costs_no_checkpoint(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FULL_DISK), str(tmp_path)],
        capture_output=True, text=True, timeout=patience(60), check=True,
    )  # fmt: skip
    assert "cannot be written" in done.stdout and "free some space" in done.stdout
    assert CheckpointFolder(str(tmp_path)).steps() == [10]
    found, _ = parsed(CheckpointFolder(str(tmp_path)).read(10, "agent-0.safetensors"), "file")
    assert found["x"].tolist() == [10] * 100


def test_the_manifest_says_what_every_file_must_be(tmp_path: Path) -> None:
    folder = CheckpointFolder(str(tmp_path))
    save(folder, 10)
    manifest = json.loads((tmp_path / step_name(10) / MANIFEST).read_text())
    file = tmp_path / step_name(10) / "agent-0.safetensors"
    assert manifest["files"]["agent-0.safetensors"]["bytes"] == file.stat().st_size
    assert {path.name for path in file.parent.iterdir()} == {file.name, MANIFEST}
