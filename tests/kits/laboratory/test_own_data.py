"""Claims about benches of data: what is loaded, by which decoder, alone or ahead; all give one picture"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from d5ray.errors import ConfigurationError, D5Error
from d5ray.kits.laboratory.bench.decoders import DECODERS, PACKAGES, Decoded, check_decoder
from d5ray.kits.laboratory.bench.loaded_data import asked
from d5ray.kits.laboratory.bench.loading import LoadingExecutor
from d5ray.kits.laboratory.bench.own_data import DataBench
from tests.kits.laboratory.comparing import check_rates, measured_rows

CODE = """
import numpy as np

import d5ray as d5
from d5ray.training.datasets.dataset import Split


def made(inputs):
    labels = np.zeros(len(inputs), np.int64)
    return d5.Dataset("mine", Split(inputs, labels), Split(inputs, labels), ("a",))


def mine():
    return made(np.ones((20, 3), np.float32))


dataset = mine()
unwell = made(np.full((20, 3), np.nan, np.float32))
three = 3


def broken():
    raise OSError("the disk is gone")
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "own_data.py"
    path.write_text(CODE)
    return str(path)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Twelve smooth JPEGs of two classes, wider than high."""
    from PIL import Image  # noqa: PLC0415

    y, x = np.mgrid[0:60, 0:90] / 90
    for number in range(12):
        folder = tmp_path / "images" / ("even", "odd")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        planes = np.stack([x, y, (x + y + number / 12) / 3], axis=-1)
        Image.fromarray((255 * planes).astype(np.uint8)).save(folder / f"{number}.jpg", quality=95)
    return tmp_path / "images"


def rows(bench: DataBench, decoder: str, place: int) -> list[dict[str, Any]]:
    """The measured rows of a problem, by an executor as a run has it."""
    return measured_rows(LoadingExecutor(bench.data, decoder, "r", 2, 0, seed=1), bench.problems()[place])


def test_samples_in_memory_have_no_workers(file: str) -> None:
    """A sample by itself and each size of a batch, of a name and of data of one's own."""
    for text in ("digits", f"{file}:dataset", f"{file}:mine"):
        bench = DataBench(data=asked(text, {}), batches=(4, 16))
        assert [each.name for each in bench.problems()] == ["sample", "batch 4", "batch 16"]
        assert bench.frameworks == ("d5ray",)
        found = rows(bench, "d5ray", 2)
        check_rates(found, "loading_time", "samples_per_second", 16)
        assert {(row["scope"], row["level"], row["rep"]) for row in found} == {("d5ray batch 16", 2, 2)}


@pytest.mark.full
def test_samples_in_files_are_loaded_ahead_by_workers(images: Path) -> None:
    """By default none, one and two, with two batches ahead for each; otherwise as it is asked for."""
    data = asked("image_folder", {"path": str(images), "size": 32})
    bench = DataBench(data=data, batches=(4,), decoders=("pillow",))
    names = [each.name for each in bench.problems()]
    assert names == ["sample", "batch 4", "batch 4 by 1 worker, 2 ahead", "batch 4 by 2 workers, 4 ahead"]
    assert bench.problems()[1].moved_bytes == 4 * 3 * 32 * 32 * 4
    for place in range(4):
        assert [row for row in rows(bench, "pillow", place) if row["metric"] == "loading_time"]
    other = DataBench(data=data, batches=(4,), workers=(2,), ahead=(2, 8))
    assert [each.name for each in other.problems()][1:] == [
        "batch 4 by 2 workers, 2 ahead", "batch 4 by 2 workers, 8 ahead"
    ]  # fmt: skip


@pytest.mark.parametrize("decoder", DECODERS)
@pytest.mark.parametrize("size", [(30, 30), (60, 90), (120, 90), (7, 21)])
@pytest.mark.parametrize("channels", [1, 3])
def test_decoders_give_one_picture(decoder: str, size: tuple[int, int], channels: int, images: Path) -> None:
    """That of `image_folder` itself, but for how they round and resize: half a step of 8 in the mean."""
    try:
        check_decoder(decoder)
    except ConfigurationError:
        pytest.skip(f"{decoder} is not installed")
    samples = asked("image_folder", {"path": str(images), "size": size, "channels": channels}).found()
    expected, labels = samples.take(np.arange(3))
    found, own = Decoded(samples, decoder).take(np.arange(3))
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert found.shape == expected.shape
    np.testing.assert_array_equal(own, labels)
    assert np.abs(found - expected).mean() < 4 / 255
    assert np.abs(found - expected).max() < 0.1


def test_an_image_that_is_none_is_named(images: Path) -> None:
    """With the decoder, and what to do."""
    (images / "even" / "0.jpg").write_bytes(b"no picture")
    with pytest.raises(D5Error, match=r"0\.jpg: pillow cannot decode it .*: leave it out of --decoder"):
        Decoded(asked("image_folder", {"path": str(images), "size": 8}).found(), "pillow").take(np.arange(10))


def test_a_decoder_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "opencv", ("no_such_package_here", "pip install opencv-python-headless"))
    with pytest.raises(ConfigurationError, match="opencv is not installed: pip install opencv-python"):
        check_decoder("opencv")


WRONG: list[tuple[str, dict[str, Any], dict[str, Any], list[str]]] = [
    ("digit", {}, {}, ["there is no data set 'digit'", "did you mean 'digits'?"]),
    ("image_folder", {"path": "/nowhere/at/all"}, {}, ["found no folder that can be read"]),
    ("digits", {}, {"decoders": ("pillow",)}, ["--decoder is for images in files"]),
    ("digits", {}, {"workers": (2,)}, ["lie in memory", "leave --workers out"]),
    ("digits", {}, {"batches": (10_000,)}, ["has 1438 samples: give a smaller one"]),
    ("FILE:unwell", {}, {}, ["sample 0 of unwell has numbers that are not finite"]),
    ("FILE:broken", {}, {}, ["broken cannot be loaded: OSError: the disk is gone; the traceback is in"]),
    ("FILE:mine", {"size": 3}, {}, ["--set size is for a data set by name"]),
    ("FILE:min", {}, {}, ["did you mean 'mine'?"]),
]


@pytest.mark.parametrize(("text", "options", "changes", "expected"), WRONG)
def test_what_cannot_be_loaded_is_one_clear_error(
    text: str, options: dict[str, Any], changes: dict[str, Any], expected: list[str], file: str
) -> None:
    """Found, expected, what to do, before any process is started."""
    with pytest.raises(D5Error) as found:
        DataBench(data=asked(text.replace("FILE", file), options), **{"batches": (4,), **changes})
    for words in expected:
        assert words in str(found.value)
