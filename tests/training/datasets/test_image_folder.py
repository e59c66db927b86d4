"""Claims about images in folders: names sorted, pixels Pillow's own, and every file that is wrong named"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.image_folder import ImageFolder


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


def test_a_large_jpeg_is_close_to_the_image(tmp_path: Path) -> None:
    """Decoded at a fraction and scaled: a smooth picture comes out within 3 grey values on average."""
    rows, columns = np.mgrid[:512, :512] / 511
    smooth = np.stack([rows, columns, 1 - rows], axis=-1)
    (tmp_path / "only").mkdir()
    Image.fromarray((smooth * 255).astype(np.uint8)).save(tmp_path / "only" / "a.jpg", quality=95)
    inputs, _ = ImageFolder(tmp_path, size=32).take(np.array([0]))
    expected = smooth.reshape(32, 16, 32, 16, 3).mean(axis=(1, 3)).transpose(2, 0, 1)
    assert np.abs(inputs[0] - expected).mean() < 3 / 255


def test_grey_images_become_colours_and_colours_grey(tmp_path: Path) -> None:
    """A grey file with channels=3 has three equal ones; a palette or alpha file is read too."""
    write(tmp_path / "only" / "grey.png", (8, 8), mode="L")
    write(tmp_path / "only" / "alpha.png", (8, 8), mode="RGBA")
    inputs, _ = ImageFolder(tmp_path, size=8).take(np.array([1]))
    np.testing.assert_array_equal(inputs[0, 0], inputs[0, 2])
    assert ImageFolder(tmp_path, size=8, channels=1).take(np.array([0, 1]))[0].shape == (2, 1, 8, 8)


def test_agents_get_paths_not_pixels(tmp_path: Path) -> None:
    """Pickled, a folder of 200 images of 3 kB each is below 10 kB, and gives the same samples elsewhere."""
    for number in range(200):
        write(tmp_path / "only" / f"{number:03}.bmp", (32, 32), seed=number)
    found = ImageFolder(tmp_path, size=16)
    sent = pickle.dumps(found)
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).take(np.array([77]))[0], found.take(np.array([77]))[0])


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


def test_the_fingerprint_is_of_names_and_sizes(animals: Path) -> None:
    """Another size of the samples, a file renamed, or one of another length: another fingerprint."""
    prints = {ImageFolder(animals, size=8).fingerprint, ImageFolder(animals, size=4).fingerprint}
    (animals / "dog" / "a.png").rename(animals / "dog" / "d.png")
    prints.add(ImageFolder(animals, size=8).fingerprint)
    write(animals / "dog" / "d.png", (9, 9))
    prints.add(ImageFolder(animals, size=8).fingerprint)
    assert len(prints) == 4
    assert ImageFolder(animals, size=8).fingerprint == ImageFolder(animals, size=8).fingerprint


def test_imagenet_is_looked_for_below_the_root(tmp_path: Path) -> None:
    """root/imagenet/train and val; without them the error names the folder, with download=True the reason."""
    with pytest.raises(DataError, match=f"(?s)'imagenet': not found.*place it in {tmp_path / 'imagenet'}"):
        load_dataset("imagenet", root=tmp_path)
    with pytest.raises(
        ConfigurationError, match="cannot be downloaded from here: fetch it from https://image"
    ):
        load_dataset("imagenet", root=tmp_path, download=True)
    for name in ("train/n01/1.JPEG", "train/n02/2.JPEG", "val/n01/3.JPEG", "val/n02/4.JPEG"):
        write(tmp_path / "imagenet" / name, (40, 30))
    data = load_dataset("imagenet", root=tmp_path)
    assert (data.name, data.classes, data.sample_shape) == ("imagenet", ("n01", "n02"), (3, 224, 224))
    assert data.test.take(np.arange(2))[1].tolist() == [0, 1]


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


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda path: None, "found no folder that can be read"),
        (lambda path: path.mkdir(), "found no folder in it, expected one for each class"),
        (lambda path: (path / "cat").mkdir(parents=True), "cat: found no image, expected at least one"),
        (lambda path: path.write_text("x"), "found no folder that can be read"),
    ],
)
def test_a_folder_without_images_is_refused(tmp_path: Path, prepare: Any, words: str) -> None:
    """No folder, an empty one, a class without images, a file in its place."""
    prepare(tmp_path / "here")
    with pytest.raises(DataError, match=words):
        ImageFolder(tmp_path / "here")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": 0}, "the height of size is 0"),
        ({"size": (8, -1)}, "the width of size is -1"),
        ({"channels": 4}, "channels is 4: it must be 3 for colours, or 1 for greys"),
        ({"test_fraction": 1.0}, "test_fraction is 1.0"),
        ({"split_seed": -1}, "split_seed is -1"),
    ],
)
def test_options_without_sense_are_refused(animals: Path, options: dict[str, Any], words: str) -> None:
    """With the name, what was found, and what is expected."""
    with pytest.raises(ConfigurationError, match=words):
        load_dataset("image_folder", path=animals, **options)
