"""Claims about text as data: every byte of the files is predicted once, and what is refused."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.catalogue import load_dataset
from d5ray.training.datasets.samples import Samples


def bytes_of(split: Samples) -> bytes:
    """The text of a split: its first byte, and every label."""
    return bytes(split.inputs[0, :1].tolist() + split.labels.ravel().tolist())


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.binary(min_size=2, max_size=300), st.integers(1, 20), st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_every_byte_is_predicted_once_in_its_order(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, length: int, fraction: float
) -> None:
    """The windows of a split are its bytes; at most `length` at its end are left out."""
    file = tmp_path_factory.mktemp("text") / "a"
    file.write_bytes(text)
    tested = round(fraction * len(text))
    parts = text[: len(text) - tested], text[len(text) - tested :]
    if min(map(len, parts)) <= length:
        with pytest.raises(DataError, match=rf"{len(parts[0])} to train and {tested} to test"):
            load_dataset("text", paths=str(file), length=length, test_fraction=fraction)
        return
    data = load_dataset("text", paths=str(file), length=length, test_fraction=fraction)
    for split, part in zip((data.train, data.test), parts, strict=True):
        found = bytes_of(split)
        assert part.startswith(found) and len(part) - len(found) < length
        assert split.inputs.shape == split.labels.shape == ((len(found) - 1) // length, length)
        assert split.inputs.ravel()[1:].tolist() == split.labels.ravel()[:-1].tolist()
        assert split.inputs.dtype == split.labels.dtype == np.int64
    assert len(data.classes) == 256 and data.classes[97] == "b'a'"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of four files with 40 bytes each, one of them hidden, and one folder in it."""
    (tmp_path / "books" / "old").mkdir(parents=True)
    for name, letter in (("b.txt", "b"), ("a.txt", "a"), ("old/c.md", "c"), (".d.txt", "d")):
        (tmp_path / "books" / name).write_text(40 * letter)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("paths", "letters"),
    [
        ("books", "abc"),
        ("books/*.txt", "ab"),
        ("books/**/*.md", "c"),
        (("books/b.txt", "books/a.txt"), "ba"),
        (["books/b.txt", "books"], "bac"),  # each file once
        (Path("books/old/c.md"), "c"),
    ],
)
def test_files_are_read_in_the_order_in_which_they_are_meant(
    library: Path, paths: object, letters: str
) -> None:
    """A folder by name, hidden files left out; a pattern by name; several paths in their own order."""
    data = load_dataset("text", paths=paths, length=1, test_fraction=0.05)
    whole = bytes_of(data.train) + bytes_of(data.test)
    assert whole == "".join(40 * letter for letter in letters).encode()


@pytest.mark.parametrize("paths", ["missing.txt", "books/*.pdf", ("books/a.txt", "missing"), "books/empty"])
def test_a_path_without_a_file_is_named(library: Path, paths: object) -> None:
    """With the folder that it was looked for from, and what can be given."""
    (library / "books" / "empty").mkdir()
    with pytest.raises(DataError) as error:
        load_dataset("text", paths=paths)
    wrong = paths if isinstance(paths, str) else "missing"
    assert f"no file fits {wrong!r} (seen from {library}): give the path of a file" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"paths": 7}, "paths is 7: it must be a file, a folder or a pattern"),
        ({"length": 0}, "length is 0"),
        ({"test_fraction": 1.0}, "test_fraction is 1.0"),
        ({"path": "a"}, "did you mean 'paths'"),
    ],
)
def test_an_option_without_sense_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        load_dataset("text", **options)  # type: ignore[arg-type]


def test_without_paths_it_is_the_language_reference() -> None:
    """English of at least 100 kB, in which no paragraph of more than a line occurs twice."""
    data = load_dataset("text")
    whole = bytes_of(data.train) + bytes_of(data.test)
    assert len(whole) > 1e5 and b"The assert statement" in whole.replace(b'"', b"")
    paragraphs = [text for text in whole.decode(errors="replace").split("\n\n") if text.count("\n") > 1]
    assert len(set(paragraphs)) == len(paragraphs)
    assert data.fingerprint == load_dataset("text").fingerprint


# -- the standard library, WikiText -----------------------------------------------------------------------


def test_the_standard_library_is_whole_modules_in_a_fixed_order(tmp_path: Path) -> None:
    """As many as fit, the order being that of their names' hashes; too large ones and packages are not."""
    for name in "abcdefghijkl":
        (tmp_path / f"{name}.py").write_text(40 * name)
    (tmp_path / "large.py").write_text(999 * "!")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "inner.py").write_text(40 * "?")
    data = load_dataset("stdlib", folder=tmp_path, most_bytes=400, length=1)
    whole = bytes_of(data.train) + bytes_of(data.test)
    order = sorted("abcdefghijkl", key=lambda name: hashlib.sha256(f"{name}.py".encode()).hexdigest())
    assert whole == "".join(40 * name for name in order[:10]).encode()
    assert len(bytes_of(data.test)) == 40


def test_every_python_has_a_standard_library(tmp_path: Path) -> None:
    data = load_dataset("stdlib", most_bytes=100_000, length=50)
    assert 80_000 < data.train.labels.size + data.test.labels.size < 100_000
    assert b"import " in bytes_of(data.train)
    with pytest.raises(DataError, match=f"found no module of at most 40000 bytes in {tmp_path}"):
        load_dataset("stdlib", folder=tmp_path)


@pytest.mark.parametrize(
    ("inner", "ending"),
    [("wikitext", "raw"), ("wikitext-2", "tokens"), ("wikitext-103-raw", "raw"), ("", "tokens")],
)
def test_wikitext_is_read_as_it_was_published(tmp_path: Path, inner: str, ending: str) -> None:
    """Its own files are the splits, in the archive's folders or beside them; bytes, not words."""
    folder = tmp_path / inner
    folder.mkdir(exist_ok=True)
    texts = {name: f" = {name} = \n \n The <unk> of {name} @-@ it .\n" for name in ("train", "valid", "test")}
    for name, text in texts.items():
        (folder / f"wiki.{name}.{ending}").write_text(text)
    data = load_dataset("wikitext", root=tmp_path, length=1)
    assert bytes_of(data.train) == texts["train"].encode() and bytes_of(data.test) == texts["test"].encode()


def test_a_missing_or_empty_wikitext_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)'wikitext': not found: wiki.train.raw and wiki.test.raw"):
        load_dataset("wikitext", root=tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be downloaded from here"):
        load_dataset("wikitext", root=tmp_path, download=True)
    (tmp_path / "wiki.train.raw").write_text(500 * "word ")
    (tmp_path / "wiki.test.raw").write_text("short")
    with pytest.raises(
        DataError, match=r"found 5 bytes in .*wiki.test.raw, expected at least length \+ 1 = 129"
    ):
        load_dataset("wikitext", root=tmp_path)
