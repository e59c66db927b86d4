"""Claims about images in folders: names sorted, pixels Pillow's own, and every file that is wrong named"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from d5ray.errors import DataError
from d5ray.training.datasets import ImageFolder, load_dataset


def write(
    path: Path, size: tuple[int, int] = (12, 8), seed: int = 0, mode: str = "RGB"
) -> np.ndarray[Any, Any]:
    """An image of width × height random pixels; its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    shape = (height, width) if mode == "L" else (height, width, len(mode))
    pixels = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels, mode=None).save(path)
    return pixels


@pytest.fixture
def animals(tmp_path: Path) -> Path:
    """Two classes of two and three images, written out of order, with things that are no images between."""
    for number, name in enumerate(["dog/b.png", "cat/z.png", "dog/a.png", "cat/y/x.PNG", "dog/c.bmp"]):
        write(tmp_path / "animals" / name, (8, 8), seed=number)
    (tmp_path / "animals" / "cat" / "notes.txt").write_text("none")
    (tmp_path / "animals" / ".cache").mkdir()
    (tmp_path / "animals" / "cat" / "._z.png").write_bytes(b"none")
    return tmp_path / "animals"


def test_classes_and_names_are_sorted_and_nothing_else_counts(animals: Path) -> None:
    """cat before dog, a before b, also below further folders; texts and hidden files are no samples."""
    found = ImageFolder(animals, size=8)
    names = [str(found.file(index).relative_to(animals)) for index in range(len(found))]
    assert names == ["cat/y/x.PNG", "cat/z.png", "dog/a.png", "dog/b.png", "dog/c.bmp"]
    assert found.classes == ("cat", "dog") and found.labels.tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_an_image_of_the_right_size_is_its_pixels(tmp_path: Path, mode: str) -> None:
    """(C, H, W) of pixels / 255, taken in any order and repeated."""
    pixels = [write(tmp_path / "only" / f"{n}.png", (9, 6), seed=n, mode=mode) for n in range(3)]
    channels = len(mode)
    found = ImageFolder(tmp_path, size=(6, 9), channels=channels)
    inputs, labels = found.take(np.array([2, 0, 2]))
    assert inputs.shape == (3, channels, 6, 9) and inputs.dtype == np.float32 and labels.tolist() == [0, 0, 0]
    for image, number in zip(inputs, [2, 0, 2], strict=True):
        expected = pixels[number].reshape(6, 9, channels).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(image, expected, atol=1e-7)


def test_other_sizes_are_covered_and_cut_at_the_centre(tmp_path: Path) -> None:
    """Of 40 × 20 pixels to 10 × 10: the middle 20 × 20, by Pillow's bilinear filter over the image."""
    pixels = write(tmp_path / "only" / "wide.png", (40, 20))
    inputs, _ = ImageFolder(tmp_path, size=10).take(np.array([0]))
    image = Image.fromarray(pixels)
    middle = image.resize((10, 10), Image.Resampling.BILINEAR, box=(10, 0, 30, 20))
    expected = np.asarray(middle, dtype=np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(inputs[0], expected, atol=1e-7)


def test_folders_to_train_and_to_test_on_are_two_splits(tmp_path: Path) -> None:
    """train/ and val/; a class may lack in val/ and keeps its number; one that only val/ has is an error."""
    for name in ("train/a/1.png", "train/b/2.png", "train/b/3.png", "val/b/4.png"):
        write(tmp_path / name, (8, 8))
    data = load_dataset("image_folder", path=tmp_path, size=8)
    assert data.classes == ("a", "b") and data.sample_shape == (3, 8, 8)
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([0, 1, 1], [1])
    write(tmp_path / "val" / "c" / "5.png", (8, 8))
    with pytest.raises(DataError, match=r"val: found the classes c, expected those of .*train"):
        load_dataset("image_folder", path=tmp_path, size=8)


def test_without_such_folders_a_share_of_the_images_tests(tmp_path: Path) -> None:
    """40 images: 10 test and 30 train, each once, by the seed, with the labels of their folders."""
    for number in range(40):
        write(tmp_path / f"class{number % 2}" / f"{number:02}.png", (4, 4), seed=number)
    data = load_dataset("image_folder", path=tmp_path, size=4, test_fraction=0.25)
    again = load_dataset("image_folder", path=tmp_path, size=4, test_fraction=0.25)
    other = load_dataset("image_folder", path=tmp_path, size=4, test_fraction=0.25, split_seed=7)
    assert (len(data.train), len(data.test)) == (30, 10)
    assert data.fingerprint == again.fingerprint != other.fingerprint
    both = np.concatenate([data.train.inputs, data.test.inputs]).reshape(40, -1)
    whole = ImageFolder(tmp_path, size=4)
    assert len(np.unique(both, axis=0)) == 40
    for inputs, label in zip(both, np.concatenate([data.train.labels, data.test.labels]), strict=True):
        assert whole.labels[(whole.inputs.reshape(40, -1) == inputs).all(axis=1)] == label


@pytest.mark.parametrize("damage", ["truncated", "text", "empty", "gone"])
def test_a_file_that_cannot_be_read_is_named(animals: Path, damage: str) -> None:
    """Cut off, no image, empty, or removed since: DataError with the path, only when it is taken."""
    file = animals / "dog" / "a.png"
    if damage == "gone":
        found = ImageFolder(animals, size=8)
        file.unlink()
    else:
        whole = file.read_bytes()
        file.write_bytes({"truncated": whole[: len(whole) // 2], "text": b"hello", "empty": b""}[damage])
        found = ImageFolder(animals, size=8)
    found.take(np.array([0, 1, 3]))
    with pytest.raises(DataError, match=rf"{file}: found an unreadable image \(.+\), expected a whole one"):
        found.take(np.array([0, 2]))
