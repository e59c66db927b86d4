"""Claims about CIFAR's reader, against small files of the published formats with known contents."""

import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d5ray.errors import DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.cifar_records import CIFAR100_COARSE
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.published_files import CHECKSUMS

RNG = np.random.default_rng(10)
COUNTS = {
    "cifar10": [2, 3, 1, 2, 4, 3],
    "cifar100": [5, 4],
}  # samples per file; the last one is the test file
FILES = {
    "cifar10": [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"],
    "cifar100": ["train", "test"],
}
PIXELS = {
    name: [RNG.integers(0, 256, (n, 3072), np.uint8) for n in counts] for name, counts in COUNTS.items()
}
FINE = {
    "cifar10": [RNG.integers(0, 10, n).astype(np.uint8) for n in COUNTS["cifar10"]],
    "cifar100": [RNG.integers(0, 100, n).astype(np.uint8) for n in COUNTS["cifar100"]],
}
COARSE = [RNG.integers(0, 20, n).astype(np.uint8) for n in COUNTS["cifar100"]]
FOLDERS = {
    ("cifar10", "binary"): "cifar-10-batches-bin",
    ("cifar10", "python"): "cifar-10-batches-py",
    ("cifar100", "binary"): "cifar-100-binary",
    ("cifar100", "python"): "cifar-100-python",
}
ARCHIVES = {
    (name, edition): f"{name.replace('cifar', 'cifar-')}-{edition}.tar.gz" for name, edition in FOLDERS
}


def binary_files(name: str) -> dict[str, bytes]:
    """Records of one label (CIFAR-10) or a coarse and a fine one (CIFAR-100), then 3,072 bytes."""
    files = {}
    for number, file in enumerate(FILES[name]):
        columns = [FINE[name][number][:, None], PIXELS[name][number]]
        if name == "cifar100":
            columns.insert(0, COARSE[number][:, None])
        files[f"{file}.bin"] = np.concatenate(columns, axis=1).tobytes()
    return files


def python_2_pickle(labels: dict[str, np.ndarray], pixels: np.ndarray) -> bytes:
    """The opcodes that Python 2's cPickle wrote for such a dictionary, protocol 2: text is bytes there."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def integers(values: np.ndarray) -> bytes:
        return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01J" + struct.pack("<i", len(pixels)) + b"M" + struct.pack("<H", 3072) + b"\x86" + dtype
    array += b"\x89T" + struct.pack("<i", pixels.size) + pixels.tobytes() + b"tb"
    items = text(b"batch_label") + text(b"training batch 1 of 5")
    for key, values in labels.items():
        items += text(key.encode()) + integers(values)
    return b"\x80\x02}(" + items + text(b"data") + array + b"u."


def python_files(name: str, write: Callable[[dict[str, np.ndarray], np.ndarray], bytes]) -> dict[str, bytes]:
    files = {}
    for number, file in enumerate(FILES[name]):
        labels = {"labels": FINE[name][number]}
        if name == "cifar100":
            labels = {"fine_labels": FINE[name][number], "coarse_labels": COARSE[number]}
        files[file] = write(labels, PIXELS[name][number])
    return files


def python_3_pickle(labels: dict[str, np.ndarray], pixels: np.ndarray) -> bytes:
    return pickle.dumps({"data": pixels} | {key: values.tolist() for key, values in labels.items()})


def editions(name: str) -> dict[str, tuple[str, dict[str, bytes]]]:
    return {
        "binary": ("binary", binary_files(name)),
        "python 2": ("python", python_files(name, python_2_pickle)),
        "python 3": ("python", python_files(name, python_3_pickle)),
    }


def write(name: str, edition: str, files: dict[str, bytes], root: Path, place: str) -> None:
    """Write the files where the place says."""
    own = root / name
    own.mkdir(parents=True, exist_ok=True)
    if place in ("archive", "archive in root"):
        path = (own if place == "archive" else root) / ARCHIVES[name, edition]
        with tarfile.open(path, "w:gz") as packed:
            for file, content in files.items():
                info = tarfile.TarInfo(f"{FOLDERS[name, edition]}/{file}")
                info.size = len(content)
                packed.addfile(info, io.BytesIO(content))
        return
    folder = {"own": own, "root": root, "unpacked": own / FOLDERS[name, edition]}[place]
    folder.mkdir(exist_ok=True)
    for file, content in files.items():
        (folder / file).write_bytes(content)


def assert_contents(data: Dataset, name: str, labels: list[np.ndarray]) -> None:
    """The data set holds the known pixels / 255 and labels, in the order of the files."""
    for split, pixels, numbers in (
        (data.train, PIXELS[name][:-1], labels[:-1]),
        (data.test, PIXELS[name][-1:], labels[-1:]),
    ):
        expected = (np.concatenate(pixels).reshape(-1, 3, 32, 32) / 255).astype(np.float32)
        np.testing.assert_array_equal(split.inputs, expected)
        np.testing.assert_array_equal(split.labels, np.concatenate(numbers))


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
@pytest.mark.parametrize("edition", ["binary", "python 2", "python 3"])
@pytest.mark.parametrize("place", ["own", "root", "unpacked", "archive", "archive in root"])
def test_the_reader_returns_what_was_written(name: str, edition: str, place: str, tmp_path: Path) -> None:
    """Every edition, packed or unpacked, in any of the folders, gives the bytes / 255 and the labels."""
    write(name, *editions(name)[edition], tmp_path, place)
    data = load_dataset(name, root=tmp_path, checksum=False)
    assert_contents(data, name, FINE[name])
    assert len(set(data.classes)) == {"cifar10": 10, "cifar100": 100}[name]
    assert tuple(sorted(data.classes)) == data.classes


@pytest.mark.parametrize("edition", ["binary", "python 2"])
def test_coarse_labels_are_the_coarse_ones(edition: str, tmp_path: Path) -> None:
    """CIFAR-100 with labels="coarse" has the coarse labels and 20 classes, the same pixels."""
    write("cifar100", *editions("cifar100")[edition], tmp_path, "archive")
    data = load_dataset("cifar100", root=tmp_path, checksum=False, labels="coarse")
    assert_contents(data, "cifar100", COARSE)
    assert data.classes == CIFAR100_COARSE
    assert len(set(CIFAR100_COARSE)) == 20


def test_the_editions_have_one_fingerprint(tmp_path: Path) -> None:
    """It does not matter which edition was read: equal data, equal fingerprint."""
    prints = set()
    for number, (edition, files) in enumerate(editions("cifar10").values()):
        write("cifar10", edition, files, tmp_path / str(number), "own")
        prints.add(load_dataset("cifar10", root=tmp_path / str(number)).fingerprint)
    assert len(prints) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("cifar10", b"", "found 0 bytes, expected one or more whole records of 3073 bytes"),
        ("cifar10", bytes(3072), "found 3072 bytes, expected one or more whole records of 3073"),
        ("cifar10", bytes(3074), "found 3074 bytes"),
        ("cifar10", bytes(3073) + b"\x0a" + bytes(3072), "found label 10 at sample 1, expected 0 to 9"),
        ("cifar100", bytes(3073), "found 3073 bytes, expected one or more whole records of 3074 bytes"),
        ("cifar100", b"\0\x64" + bytes(3072), "found label 100 at sample 0, expected 0 to 99"),
    ],
)
def test_a_binary_file_of_another_length_or_label_is_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    """The error names folder and file, what was found, what was expected, and what to do."""
    file = f"{FILES[name][-1]}.bin"
    write(name, "binary", binary_files(name) | {file: content}, tmp_path, "own")
    with pytest.raises(DataError, match=message) as error:
        load_dataset(name, root=tmp_path)
    assert str(error.value).startswith(f"{tmp_path / name}: {file}: found ")
    assert str(error.value).endswith("delete the file and fetch it again")


ZEROS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"labels": [1, 2]}, "data: nothing, expected an array"),
        ({"labels": [1, 2], "data": ZEROS[:, :-1]}, r"data: an array \(2, 3071\) of uint8, expected"),
        ({"labels": [1, 2], "data": ZEROS.astype(np.float32)}, r"data: an array \(2, 3072\) of float32"),
        ({"data": ZEROS}, "labels: nothing, expected one integer for each of 2"),
        ({"labels": [1, 2, 3], "data": ZEROS}, "labels: a list, expected one integer for each of 2"),
        ({"labels": [1, "2"], "data": ZEROS}, "labels: a list, expected one integer"),
        ({"labels": [1, 2**70], "data": ZEROS}, "labels: a list, expected one integer"),
        ({"labels": np.zeros(0, np.int64), "data": ZEROS[:0]}, "expected one integer for each of 0"),
        ({"labels": [1, 10], "data": ZEROS}, "found label 10 at sample 1, expected 0 to 9"),
        ({"labels": [-1, 1], "data": ZEROS}, "found label -1 at sample 0, expected 0 to 9"),
    ],
)
def test_a_pickled_batch_with_other_contents_is_refused(
    batch: dict[str, object], message: str, tmp_path: Path
) -> None:
    """A batch without the expected array and labels is an error that says what it has instead."""
    files = python_files("cifar10", python_2_pickle) | {"data_batch_3": pickle.dumps(batch)}
    write("cifar10", "python", files, tmp_path, "own")
    with pytest.raises(DataError, match=f"data_batch_3: found {message}" if ":" in message else message):
        load_dataset("cifar10", root=tmp_path)


def test_a_hostile_batch_is_refused_and_does_not_run(tmp_path: Path) -> None:
    """A batch that would run a command when unpickled is refused; the command has not run."""
    victim = tmp_path / "touched"
    hostile = b"cos\nsystem\nU" + bytes([len(f"touch {victim}")]) + f"touch {victim}".encode() + b"\x85R."
    for place in ("own", "archive"):
        root = tmp_path / place
        write(
            "cifar10",
            "python",
            python_files("cifar10", python_2_pickle) | {"test_batch": hostile},
            root,
            place,
        )
        with pytest.raises(DataError, match=r"test_batch: found .* os\.system, which is refused"):
            load_dataset("cifar10", root=root, checksum=False)
    assert not victim.exists()


@pytest.mark.parametrize(("name", "edition"), sorted(FOLDERS))
def test_an_archive_must_have_the_published_checksum(
    name: str, edition: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive is refused unless its MD5 is the published one; then it is read."""
    files = binary_files(name) if edition == "binary" else python_files(name, python_2_pickle)
    write(name, edition, files, tmp_path, "archive")
    path = tmp_path / name / ARCHIVES[name, edition]
    found = hashlib.md5(path.read_bytes()).hexdigest()
    with pytest.raises(DataError, match=f"^{path}: found MD5 {found}, expected {CHECKSUMS[name][path.name]}"):
        load_dataset(name, root=tmp_path)
    monkeypatch.setitem(CHECKSUMS[name], path.name, found)
    assert_contents(load_dataset(name, root=tmp_path), name, FINE[name])


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    """With one of six files gone, the error names that file and its folder beside the archive."""
    files = binary_files("cifar10")
    del files["data_batch_3.bin"]
    write("cifar10", "binary", files, tmp_path, "unpacked")
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    with pytest.raises(DataError) as error:
        load_dataset("cifar10", root=tmp_path)
    assert f"cifar-10-binary.tar.gz or the rest of {folder} (data_batch_3.bin);" in str(error.value)
