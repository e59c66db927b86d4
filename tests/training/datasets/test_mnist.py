"""Claims about MNIST's reader, against small files of the published format with known contents."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest

from d5ray.errors import DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.published_files import CHECKSUMS

RNG = np.random.default_rng(3)
IMAGES = {
    "train": RNG.integers(0, 256, (5, 28, 28), np.uint8),
    "t10k": RNG.integers(0, 256, (3, 28, 28), np.uint8),
}
LABELS = {"train": np.array([0, 9, 1, 8, 2], np.uint8), "t10k": np.array([7, 3, 5], np.uint8)}


def idx(array: np.ndarray, code: int = 0x08) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, code, array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, *, packed: bool) -> None:
    """The four files of the published format."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "t10k"):
        for name, array in (
            (f"{part}-images-idx3-ubyte", IMAGES[part]),
            (f"{part}-labels-idx1-ubyte", LABELS[part]),
        ):
            if packed:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
@pytest.mark.parametrize("place", ["own folder", "root"])
@pytest.mark.parametrize("packed", [True, False])
def test_the_reader_returns_what_was_written(name: str, place: str, packed: bool, tmp_path: Path) -> None:
    """Pixels are the stored bytes / 255 and labels the stored numbers: packed or not, in either folder."""
    write_mnist(tmp_path / name if place == "own folder" else tmp_path, packed=packed)
    data = load_dataset(name, root=tmp_path, checksum=False)
    for split, part in ((data.train, "train"), (data.test, "t10k")):
        np.testing.assert_array_equal(split.inputs, (IMAGES[part][:, None] / 255).astype(np.float32))
        np.testing.assert_array_equal(split.labels, LABELS[part])
    assert len(data.classes) == 10


def test_the_folder_of_the_data_set_comes_before_the_root(tmp_path: Path) -> None:
    """With files in both places, those in root/mnist are read: broken ones in root do not matter."""
    write_mnist(tmp_path / "mnist", packed=False)
    write_mnist(tmp_path, packed=False)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"broken")
    assert load_dataset("mnist", root=tmp_path).test.labels.tolist() == [7, 3, 5]


def test_files_of_two_folders_are_not_mixed(tmp_path: Path) -> None:
    """Three files in one folder and the fourth in the other are not a data set; the fourth is named."""
    write_mnist(tmp_path / "mnist", packed=False)
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").rename(tmp_path / "t10k-labels-idx1-ubyte")
    with pytest.raises(DataError, match=r"^data set 'mnist': not found: t10k-labels-idx1-ubyte\(.gz\);"):
        load_dataset("mnist", root=tmp_path)


IMAGES_FILE, LABELS_FILE = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TESTED = "t10k-labels-idx1-ubyte"
IMAGES_IDX = idx(IMAGES["train"])
ENDLESS = struct.pack(">BBBB3I", 0, 0, 8, 3, *[2**32 - 1] * 3)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (IMAGES_FILE, b"", "found an empty file, expected 0x00000803"),
        (IMAGES_FILE, b"\x89PNG", "found the magic number 0x89504e47, expected 0x00000803"),
        (IMAGES_FILE, b"\0\0\x08", "found the magic number 0x000008, expected 0x00000803"),
        (IMAGES_FILE, idx(LABELS["train"]), r"axes: 1\), expected 0x00000803 \(IDX, uint8, axes: 3"),
        (LABELS_FILE, idx(LABELS["train"], 0x0D), "0x00000d01 .IDX, float32, axes: 1., expected"),
        (IMAGES_FILE, IMAGES_IDX[:9], "found 9 bytes, expected a header of 16 bytes"),
        (IMAGES_FILE, IMAGES_IDX[:-1], r"found 3919 bytes after .* 3920 bytes for the shape"),
        (IMAGES_FILE, IMAGES_IDX + b"\0", "found more bytes after the header, expected 3920"),
        (IMAGES_FILE, idx(IMAGES["train"][:, :20]), "found images of 20 x 28 pixels, expected 28 x 28"),
        (IMAGES_FILE, idx(IMAGES["train"][:0]), r"found the shape \(0, 28, 28\), 0 bytes"),
        (IMAGES_FILE, ENDLESS, "in the header, expected 1 to"),
        (LABELS_FILE, idx(LABELS["t10k"]), "found 3 labels, expected 5"),
        (TESTED, idx(np.array([7, 10, 11], np.uint8)), "found label 10 at sample 1, expected 0 to 9"),
    ],
)
def test_a_file_of_another_format_is_refused(file: str, content: bytes, message: str, tmp_path: Path) -> None:
    """The error names the file, what it holds, what it should hold, and what to do."""
    write_mnist(tmp_path, packed=False)
    (tmp_path / file).write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load_dataset("mnist", root=tmp_path)
    assert str(error.value).startswith(f"{tmp_path / file}: ")
    assert str(error.value).endswith("delete the file and fetch it again")


@pytest.mark.parametrize("damage", ["truncated", "not gzip", "bit flip"])
def test_a_damaged_gzip_file_is_refused(damage: str, tmp_path: Path) -> None:
    """A packed file that ends early, is no gzip file, or fails gzip's own checksum is unreadable."""
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    flipped = whole[:-8] + bytes([whole[-8] ^ 1]) + whole[-7:]  # the last 8 bytes are CRC and length
    path.write_bytes(
        {"truncated": whole[: len(whole) // 2], "not gzip": b"hello", "bit flip": flipped}[damage]
    )
    with pytest.raises(DataError, match=f"^{path}: found an unreadable file"):
        load_dataset("mnist", root=tmp_path, checksum=False)


def test_a_file_with_another_checksum_is_refused(tmp_path: Path) -> None:
    """By default a packed file must have the published MD5; the error gives both sums and the remedy."""
    write_mnist(tmp_path, packed=True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    with pytest.raises(DataError) as error:
        load_dataset("mnist", root=tmp_path)
    found = hashlib.md5(path.read_bytes()).hexdigest()
    assert str(error.value) == (
        f"{path}: found MD5 {found}, expected f68b3c2dcbeaaa9fbdd348bbdeb94873, "
        "the published file of 'mnist': "
        "delete the file and fetch it again, or pass checksum=False to read it as it is"
    )


def test_files_of_another_data_set_are_recognised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of Fashion-MNIST in MNIST's place are named as such: deleting them would be the wrong advice."""
    write_mnist(tmp_path, packed=True)
    sums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in tmp_path.iterdir()}
    monkeypatch.setitem(CHECKSUMS, "fashion_mnist", sums)
    assert len(load_dataset("fashion_mnist", root=tmp_path).train) == 5
    with pytest.raises(DataError, match="it is a file of 'fashion_mnist': move it into a folder named"):
        load_dataset("mnist", root=tmp_path)
