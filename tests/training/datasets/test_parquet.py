"""Claims about Parquet: rows are pyarrow's and pandas' own, memory is bounded, and what is wrong is named"""

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.parquet import Parquet
from tests.together import together

Array = np.ndarray[Any, Any]
ROWS = 23


def lists(array: Array, kind: pa.DataType) -> pa.Array:
    """An array (n, ...) as a column of fixed-size lists."""
    column = pa.array(array.reshape(-1), kind)
    for size in reversed(array.shape[1:]):
        column = pa.FixedSizeListArray.from_arrays(column, size)
    return column


def write(path: Path, columns: dict[str, Any], row_group_size: int = 5) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=row_group_size)
    return path


def numbers(shape: tuple[int, ...] = (2, 3), seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((ROWS, *shape), dtype=np.float32)


LABELS = np.arange(ROWS) % 4


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "a.parquet", {"inputs": lists(numbers(), pa.float32()), "label": LABELS})


def test_nested_lists_are_arrays(file: Path) -> None:
    """(2, 3) of each row from fixed-size lists of lists, in any order and repeated, over row groups."""
    found = Parquet(file)
    assert (len(found), found.sample_shape, found.classes) == (ROWS, (2, 3), ("0", "1", "2", "3"))
    indices = np.array([22, 0, 7, 7, 4, 5])
    inputs, labels = found.take(indices)
    np.testing.assert_array_equal(inputs, numbers()[indices])
    np.testing.assert_array_equal(labels, LABELS[indices])
    assert inputs.dtype == np.float32 and labels.dtype == np.int64
    np.testing.assert_array_equal(found.inputs, numbers())
    assert found.take(indices[:0])[0].shape == (0, 2, 3)


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.int16()])
def test_tokens_are_whole_numbers_with_a_label_each(tmp_path: Path, kind: pa.DataType) -> None:
    """Lists of integers of any width: inputs (n, T) and labels (n, T) of int64."""
    tokens = np.arange(ROWS * 4).reshape(ROWS, 4) % 50
    path = write(tmp_path / "t.parquet", {"text": tokens.tolist(), "next": lists((tokens + 1) % 50, kind)})
    inputs, labels = Parquet(path, "text", "next").take(np.array([3, 1]))
    np.testing.assert_array_equal(inputs, tokens[[3, 1]])
    np.testing.assert_array_equal(labels, (tokens[[3, 1]] + 1) % 50)
    assert inputs.dtype == labels.dtype == np.int64


@pytest.mark.parametrize("form", ["flat", "nested", "raw"])
def test_pixels_are_scaled(tmp_path: Path, form: str) -> None:
    """uint8 in flat or nested lists, or raw bytes: (C, H, W) of 0..1."""
    pixels = np.random.default_rng(1).integers(0, 256, (ROWS, 3, 4, 5), dtype=np.uint8)
    column = {
        "flat": lambda: lists(pixels.reshape(ROWS, -1), pa.uint8()),
        "nested": lambda: lists(pixels, pa.uint8()),
        "raw": lambda: pa.array([image.tobytes() for image in pixels]),
    }[form]()
    path = write(tmp_path / "p.parquet", {"image": column, "label": LABELS})
    found = Parquet(path, "image", shape=None if form == "nested" else (3, 4, 5))
    inputs, _ = found.take(np.array([9, 2]))
    assert inputs.dtype == np.float32
    np.testing.assert_allclose(inputs, pixels[[9, 2]] / 255, atol=1e-7)


@pytest.mark.parametrize("nested", [False, True])
def test_encoded_images_are_decoded(tmp_path: Path, nested: bool) -> None:
    """PNG bytes, plain or in a structure with the field `bytes` as data sets of the field have them."""
    pixels = np.random.default_rng(2).integers(0, 256, (ROWS, 6, 6, 3), dtype=np.uint8)

    def encoded(image: Array) -> bytes:
        Image.fromarray(image).save(stream := io.BytesIO(), "png")
        return stream.getvalue()

    column = [encoded(image) for image in pixels]
    values: Any = [{"bytes": value, "path": None} for value in column] if nested else column
    path = write(tmp_path / "i.parquet", {"image": values, "label": LABELS})
    inputs, _ = Parquet(path, "image", size=6).take(np.array([20, 3]))
    np.testing.assert_allclose(inputs, pixels[[20, 3]].transpose(0, 3, 1, 2) / 255, atol=1e-7)


def test_a_table_of_pandas_is_one_sample_a_row(tmp_path: Path) -> None:
    """Columns side by side as pandas wrote them; texts are classes, sorted or in a given order."""
    frame = pd.DataFrame(
        {"a": np.arange(ROWS) / 7, "b": np.arange(ROWS), "kind": list("xyz") * 7 + ["x", "z"]}
    )
    frame.to_parquet(tmp_path / "f.parquet")
    found = Parquet(tmp_path / "f.parquet", ("b", "a"), "kind")
    assert found.classes == ("x", "y", "z")
    np.testing.assert_allclose(found.inputs, frame[["b", "a"]].to_numpy(np.float32))
    assert found.labels.tolist() == [("x", "y", "z").index(kind) for kind in frame["kind"]]
    other = Parquet(tmp_path / "f.parquet", ("b", "a"), "kind", classes=("z", "y", "x", "w"))
    assert other.labels.tolist() == [("z", "y", "x").index(kind) for kind in frame["kind"]]


def test_a_folder_is_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    """b before c/a, though written later; other files do not count."""
    whole, folder = numbers(), tmp_path / "rows"
    for name, rows in (("c/a.parquet", slice(10, 23)), ("b.parquet", slice(0, 10))):
        write(folder / name, {"inputs": lists(whole[rows], pa.float32()), "label": LABELS[rows]})
    (folder / "notes.txt").write_text("none")
    found = Parquet(folder)
    np.testing.assert_array_equal(found.inputs, whole)
    np.testing.assert_array_equal(Parquet(f"file://{folder}").inputs, whole)


def test_memory_is_bounded_and_what_was_used_last_is_kept(tmp_path: Path) -> None:
    """Of 20 row groups of 8 kB no more than three are kept; a group that is kept is not read again."""
    whole = np.random.default_rng(0).standard_normal((400, 100), dtype=np.float32)
    path = write(
        tmp_path / "l.parquet", {"inputs": lists(whole, pa.float32()), "label": np.zeros(400, int)}, 20
    )
    found = Parquet(path, cache_bytes=3 * 8200)
    order = np.random.default_rng(1).permutation(400)
    for start in range(0, 400, 50):
        np.testing.assert_array_equal(
            found.take(order[start : start + 50])[0], whole[order[start : start + 50]]
        )
        assert 0 < found._groups.cached_bytes <= 3 * 8200
    found.take(np.array([0, 25]))
    path.unlink()
    found.take(np.arange(40))
    found._groups._open.clear()
    with pytest.raises(DataError, match=r"l.parquet: found an unreadable file"):
        found.take(np.array([399]))


def test_threads_may_read_at_a_time(file: Path) -> None:
    """Four threads, 50 batches each, a cache of one group: every batch is right."""
    found, whole = Parquet(file, cache_bytes=1), numbers()

    def read(rank: int) -> None:
        rng = np.random.default_rng(rank)
        for _ in range(50):
            indices = rng.integers(0, ROWS, 6)
            np.testing.assert_array_equal(found.take(indices)[0], whole[indices])

    together(read, 4)


def test_agents_get_paths_not_rows(tmp_path: Path) -> None:
    """Pickled after use, 4 MB of rows are below 10 kB, and read from the file elsewhere."""
    whole = np.random.default_rng(0).standard_normal((100, 10_000), dtype=np.float32)
    path = write(
        tmp_path / "l.parquet", {"inputs": lists(whole, pa.float32()), "label": np.zeros(100, int)}, 50
    )
    found = Parquet(path)
    found.take(np.array([0, 99]))
    sent = pickle.dumps(found)
    assert len(sent) < 10_000
    np.testing.assert_array_equal(pickle.loads(sent).take(np.array([5]))[0][0], whole[5])


def test_splits_are_files_or_a_share_of_the_rows(file: Path, tmp_path: Path) -> None:
    """test= other files with the training files' classes, or a fifth of the rows, none in both."""
    other = write(
        tmp_path / "o.parquet", {"inputs": lists(numbers(seed=5), pa.float32()), "label": LABELS * 0}
    )
    data = load_dataset("parquet", train=file, test=other)
    np.testing.assert_array_equal(data.test.inputs, numbers(seed=5))
    assert data.classes == ("0", "1", "2", "3")
    shared = load_dataset("parquet", train=file)
    assert (len(shared.train), len(shared.test)) == (18, 5)
    both = np.concatenate([shared.train.inputs, shared.test.inputs]).reshape(ROWS, -1)
    assert len(np.unique(both, axis=0)) == ROWS
    assert data.fingerprint != shared.fingerprint == load_dataset("parquet", train=file).fingerprint


@pytest.mark.parametrize(
    ("options", "kind", "words"),
    [
        ({"inputs": "input"}, DataError, "found no column 'input': did you mean 'inputs'?"),
        ({"labels": "labels"}, DataError, "found no column 'labels': did you mean 'label'?"),
        ({"labels": "inputs"}, DataError, "column 'inputs': found fixed_size_list.*expected integers"),
        ({"inputs": "raw"}, ConfigurationError, "'raw' holds binary: say size=224 .* or shape="),
        ({"inputs": ("raw", "label")}, ConfigurationError, "'raw' holds binary: several columns together"),
        ({"inputs": "word"}, ConfigurationError, "'word' holds string: inputs must be numbers"),
        ({"size": 8}, ConfigurationError, "size is for encoded images alone"),
        ({"inputs": ()}, ConfigurationError, r"inputs is \(\)"),
        ({"cache_bytes": 0}, ConfigurationError, "cache_bytes is 0"),
        ({"labels": "word", "classes": ("a",)}, DataError, "found the label 'b', expected one of a"),
        ({"labels": "minus"}, DataError, "found the label -1, expected 0 or more"),
        ({"labels": "none"}, DataError, "column 'none': found 1 missing values"),
        ({"classes": ("a", "b")}, DataError, r"train.labels\[\d+\] is 3, expected less than .* classes, 2"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    tmp_path: Path, options: dict[str, Any], kind: type[Exception], words: str
) -> None:
    """When the data set is loaded, with the column and what is in it."""
    columns = {
        "inputs": lists(numbers(), pa.float32()),
        "label": LABELS,
        "raw": [b"abc"] * ROWS,
        "word": list("ab" * 11 + "a"),
        "minus": LABELS - 1,
        "none": [*range(ROWS - 1), None],
    }
    path = write(tmp_path / "a.parquet", columns)
    with pytest.raises(kind, match=words):
        load_dataset("parquet", train=path, **options)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "row 17: found 1 missing values"),
        ([1.0, None], "row 17: found 1 missing values"),
        ([1.0, 2.0, 3.0], r"row 17: found 3 numbers a row, expected 2, \(2,\)"),
    ],
)
def test_a_row_that_cannot_be_read_is_named(tmp_path: Path, value: Any, words: str) -> None:
    """A list that is missing, has a hole, or another length, among good rows of its group and batch."""
    values: list[Any] = [[1.0, 2.0]] * ROWS
    values[17] = value
    found = Parquet(write(tmp_path / "a.parquet", {"inputs": values, "label": LABELS}))
    found.take(np.array([16, 18]))
    with pytest.raises(DataError, match=words):
        found.take(np.array([3, 16, 17, 18]))


def test_bytes_that_are_wrong_are_named_by_their_row(tmp_path: Path) -> None:
    """Too few raw bytes, and bytes that are no image."""
    path = write(tmp_path / "a.parquet", {"inputs": [b"abc"] * 6 + [b"ab"], "label": [0] * 7})
    with pytest.raises(DataError, match=r"row 6: found 2 bytes, expected 3"):
        Parquet(path, shape=(3,)).take(np.arange(7))
    with pytest.raises(DataError, match=r"row 0: the image: found an unreadable image"):
        Parquet(path, size=4).take(np.arange(7))


@pytest.mark.parametrize("damage", ["nothing", "text", "truncated", "no rows", "empty folder"])
def test_files_that_are_none_are_refused(file: Path, tmp_path: Path, damage: str) -> None:
    """Not there, no Parquet, cut off, without rows, a folder without any: an error with the path."""
    path = tmp_path / "b.parquet"
    if damage == "text":
        path.write_text("hello")
    elif damage == "truncated":
        path.write_bytes(file.read_bytes()[:-40])
    elif damage == "no rows":
        write(path, {"inputs": lists(numbers()[:0], pa.float32()), "label": LABELS[:0]})
    elif damage == "empty folder":
        path.mkdir()
    with pytest.raises(DataError, match=r"b.parquet: found (no Parquet file|an unreadable file|no rows)"):
        Parquet(path)


def test_files_of_one_folder_must_agree(tmp_path: Path) -> None:
    """A column of another type in the second file is refused, with both types."""
    write(tmp_path / "d" / "a.parquet", {"inputs": lists(numbers(), pa.float32()), "label": LABELS})
    write(tmp_path / "d" / "b.parquet", {"inputs": lists(numbers(), pa.float64()), "label": LABELS})
    with pytest.raises(DataError, match=r"b.parquet: found fixed_size.*double.*'inputs', expected .*float"):
        Parquet(tmp_path / "d")
