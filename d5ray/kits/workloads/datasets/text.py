"""Text as a sequence of bytes: from files, from WikiText's, or from what every Python carries"""

import glob
import hashlib
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number, check_path
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.published_files import by_hand, find

BYTES = tuple(repr(bytes([byte])) for byte in range(256))  # the names of the classes
Paths = str | Path | Sequence[str | Path]
WIKITEXT = ("wikitext", "wikitext-2-raw", "wikitext-2", "wikitext-103-raw", "wikitext-103", "")  # folders
SPLITS = tuple((f"wiki.{split}.raw", f"wiki.{split}.tokens") for split in ("train", "test"))


def load_text(*, paths: Paths = (), length: int = 128, test_fraction: float = 0.1) -> Dataset:
    """Windows of text, to learn what byte follows: inputs (N, length), labels (N, length), int64 in 0..255.

    The text is the files' bytes one after the other, nothing between them, nothing decoded. Its last
    round(test_fraction · bytes) are the test split. Each split is cut into windows of `length` bytes that
    follow one another without overlap, so that an epoch predicts every byte once; window i has the bytes
    [i · length, (i + 1) · length) as inputs, and those one further on as labels. Up to `length` bytes at the
    end that fill no window are left out. In memory a byte of text takes 16.

    Args:
        paths: a file, a folder (all files in and below it, by name; none that begins with a dot) or a
            pattern such as "books/*.txt", or several of them in this order; a file that is named twice counts
            once. Without any: the language reference that Python's `help()` shows, every paragraph once.
            It is not the same in all versions of Python: 0.38 MB in 3.11.
        length: of a window, at least 1.
        test_fraction: above 0 and below 1.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: a path leads to no file, a file cannot be read, or there is too little text.
    """
    check_count("length", length, 1)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    text, where = text_at(paths)
    return _divided("text", text, where, length, test_fraction)


def load_stdlib(
    *,
    length: int = 128,
    test_fraction: float = 0.1,
    most_bytes: int = 400_000,
    folder: str | Path | None = None,
) -> Dataset:
    """Windows of Python's own standard library, as `load_text` makes them: to learn what byte follows.

    The text is the modules `*.py` that lie in the library's folder itself, in the order of the SHA-256 of
    their names, so that neighbours have nothing to do with each other: as many whole ones as fit into
    `most_bytes`, none of them larger than a tenth of that. It is not the same in all versions of Python.

    Args:
        length, test_fraction: as in `load_text`.
        most_bytes: that are taken.
        folder: where the modules lie, if not where this Python has them.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: there are no modules, a file cannot be read, or there is too little text.
    """
    check_count("length", length, 1)
    check_count("most_bytes", most_bytes, 1)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    text, where = text_of_stdlib(most_bytes, folder)
    return _divided("stdlib", text, where, length, test_fraction)


def text_at(paths: Paths) -> tuple[bytes, str]:
    """The bytes of files, or of Python's language reference without any, and where they are, in words."""
    files = _files(paths)
    return b"".join(map(_read, files)) if files else _reference(), _where(files)


def text_of_stdlib(most_bytes: int, folder: str | Path | None = None) -> tuple[bytes, str]:
    """The bytes of modules of Python's standard library, see `load_stdlib`, and where they are, in words."""
    place = check_path("folder", sysconfig.get_path("stdlib") if folder is None else folder)
    modules = sorted(place.glob("*.py"), key=lambda file: hashlib.sha256(file.name.encode()).digest())
    taken, left = [], most_bytes
    for module in modules:
        source = _read(module)
        if len(source) <= min(left, most_bytes // 10):
            taken.append(source)
            left -= len(source)
    if not taken:
        raise DataError(
            f"data set 'stdlib': found no module of at most {most_bytes // 10} bytes in {place}, expected "
            "Python's own: set the folder where they lie, or more most_bytes"
        )
    return b"".join(taken), f"{len(taken)} modules of {place}"


def load_wikitext(root: Path, download: bool, *, length: int = 128) -> Dataset:
    """Windows of WikiText's articles, as `load_text` makes them, from the files as they were published.

    `wiki.train.raw` and `wiki.test.raw`, or, where rare words are <unk>, `….tokens`: of WikiText-2 or -103,
    in `root/wikitext` or in the folder that the archive has. Bytes are learned, not words.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: the files are not there, cannot be read, or hold too little text.

    Source: Merity, Xiong, Bradbury, Socher, Pointer sentinel mixture models, arXiv:1609.07843.
    """
    check_count("length", length, 1)
    folders = [root / name for name in WIKITEXT]
    found = find(folders, SPLITS)
    if found is None:
        needed = "wiki.train.raw and wiki.test.raw (or .tokens)"
        raise by_hand("wikitext", needed, folders, "its authors (arXiv:1609.07843)", download)
    texts = [_read(file) for file in found]
    for file, text in zip(found, texts, strict=True):
        if len(text) <= length:
            raise DataError(
                f"data set 'wikitext': found {len(text)} bytes in {file}, expected at least length + 1 = "
                f"{length + 1}: fetch it again, or choose a smaller length"
            )
    train, test = (windows(_tokens(text), length) for text in texts)
    return Dataset("wikitext", train, test, BYTES)


def _divided(name: str, text: bytes, where: str, length: int, test_fraction: float) -> Dataset:
    """The last bytes test."""
    tested = round(test_fraction * len(text))
    shortest = min(tested, len(text) - tested)
    if shortest <= length:
        raise DataError(
            f"data set {name!r}: found {len(text)} bytes in {where}, {len(text) - tested} to train and "
            f"{tested} to test, expected at least length + 1 = {length + 1} of each: give more text, or "
            "choose a smaller length or another test_fraction"
        )
    tokens = _tokens(text)
    train, test = tokens[: len(tokens) - tested], tokens[len(tokens) - tested :]
    return Dataset(name, windows(train, length), windows(test, length), BYTES)


def _tokens(text: bytes) -> npt.NDArray[np.int64]:
    return np.frombuffer(text, np.uint8).astype(np.int64)


def windows(tokens: npt.NDArray[np.int64], length: int) -> Split:
    """Windows that follow one another, as inputs, and what follows each of their tokens, as labels."""
    count = (len(tokens) - 1) // length
    inputs, labels = (tokens[first : first + count * length].reshape(count, length) for first in (0, 1))
    return Split(inputs.copy(), labels.copy())


def _files(paths: Paths) -> list[Path]:
    """The files that are meant, each once."""
    if isinstance(paths, str | Path):
        paths = (paths,)
    if not isinstance(paths, Sequence) or not all(isinstance(path, str | Path) for path in paths):
        raise ConfigurationError(
            f"paths is {paths!r}: it must be a file, a folder or a pattern such as 'books/*.txt', or a tuple "
            "of them"
        )
    found: dict[Path, None] = {}
    for path in paths:
        meant = list(_meant(check_path("paths", path)))
        if not meant:
            raise DataError(
                f"data set 'text': no file fits {str(path)!r} (seen from {Path.cwd()}): give the path of a "
                "file, of a folder with files in it, or a pattern such as 'books/*.txt'"
            )
        found |= dict.fromkeys(file.resolve() for file in meant)
    return list(found)


def _meant(path: Path) -> Iterator[Path]:
    """The files of one path, by name."""
    if path.is_file():
        yield path
    elif path.is_dir():
        for inner in sorted(path.rglob("*")):
            hidden = any(part.startswith(".") for part in inner.relative_to(path).parts)
            if inner.is_file() and not hidden:
                yield inner
    else:
        fitting = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207 - Path's refuses absolute ones
        yield from (Path(name) for name in fitting if Path(name).is_file())


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error}: check its rights") from error


def _reference() -> bytes:
    """Python's language reference. Its chapters repeat each other, so that every paragraph is taken once."""
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - 0.5 MB, for this data set alone
    except ImportError as error:
        raise DataError(
            "data set 'text': this Python came without pydoc_data, its documentation: give `paths` of a text"
        ) from error
    paragraphs = (text.strip("\n") for name in sorted(topics) for text in topics[name].split("\n\n"))
    return "\n\n".join(dict.fromkeys(text for text in paragraphs if text)).encode()


def _where(files: list[Path]) -> str:
    if not files:
        return "Python's documentation"
    return str(files[0]) if len(files) == 1 else f"{len(files)} files from {files[0]} to {files[-1]}"
