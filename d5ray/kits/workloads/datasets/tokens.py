"""Text as a sequence of byte pairs' tokens: the vocabulary is made from the text itself"""

import ast
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError, DataError
from d5ray.kits.workloads.datasets.text import Paths, text_at, text_of_stdlib, windows
from d5ray.training.datasets.dataset import Dataset

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BYTES: Final = 256
LARGEST_VOCABULARY: Final = 1_000_000


def load_tokens(
    *,
    text: Paths = (),
    vocabulary: int = 1024,
    length: int = 128,
    test_fraction: float = 0.1,
    most_bytes: int = 400_000,
) -> Dataset:
    """Windows of text in tokens, to learn which follows: inputs and labels (N, length), int64.

    The tokens are the 256 bytes and the pairs that come up most often in the training text, merged one after
    the other (byte-pair encoding: Sennrich et al., arXiv:1508.07909; over bytes, as GPT-2's); where the text
    has fewer pairs than are asked for, the last tokens come up nowhere. The last characters of the text,
    round(test_fraction · characters), are the test split. Windows follow one another as in `load_text`. The
    names of the classes are the tokens' bytes, see `token_bytes`. Needs `pip install 'd5ray[text]'`.

    Args:
        text: files in UTF-8, a folder or a pattern, as `load_text` takes them. Without any: modules of
            Python's standard library, as `load_stdlib` takes them, `most_bytes` of them.
        vocabulary: the number of tokens, 256 or more.
        length: of a window, in tokens.
        test_fraction: above 0 and below 1.

    Raises:
        ConfigurationError: an option's value makes no sense, or the library `tokenizers` is not installed.
        DataError: a path leads to no file, a file is no text, or there is too little of it.
    """
    check_count("vocabulary", vocabulary, BYTES, LARGEST_VOCABULARY)
    check_count("length", length, 1)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    check_count("most_bytes", most_bytes, 1)
    found, where = text_of_stdlib(most_bytes) if not text else text_at(text)
    whole = decoded(found, where)
    tested = round(test_fraction * len(whole))
    parts = whole[: len(whole) - tested], whole[len(whole) - tested :]
    tokenizer = byte_pairs([parts[0]], vocabulary)
    train, test = (np.array(tokenizer.encode(part).ids, np.int64) for part in parts)
    for name, tokens in (("train", train), ("test", test)):
        if len(tokens) <= length:
            raise DataError(
                f"data set 'tokens': found {len(tokens)} tokens to {name} in {where}, expected at least "
                f"length + 1 = {length + 1}: give more text, or choose a smaller length"
            )
    return Dataset("tokens", windows(train, length), windows(test, length), names_of(tokenizer, vocabulary))


def byte_pairs(texts: Iterable[str], vocabulary: int, special: Sequence[str] = ()) -> "Tokenizer":
    """A tokenizer of that many tokens at most: special ones first, then bytes, then merged pairs."""
    try:
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: PLC0415
    except ImportError as error:
        raise ConfigurationError(
            "tokens are made by the library tokenizers, which is not installed: pip install 'd5ray[text]'"
        ) from error
    tokenizer: Any = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=sorted(_bytes_by_character()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def names_of(tokenizer: "Tokenizer", vocabulary: int) -> tuple[str, ...]:
    """The names of that many classes: the bytes of the tokens, as Python writes them.

    Special tokens are themselves, those that no text has are "unused N".
    """
    known, special = _bytes_by_character(), tokenizer.get_added_tokens_decoder()
    names = []
    for number in range(vocabulary):
        token = tokenizer.id_to_token(number)
        if token is None:
            names.append(f"unused {number}")
        elif number in special:
            names.append(token)
        else:
            names.append(repr(bytes(known[character] for character in token)))
    return tuple(names)


def token_bytes(classes: Sequence[str]) -> list[bytes]:
    """The bytes of each class of a data set of text, of bytes or tokens; empty for special and unused ones.

    >>> token_bytes(["b'the '", "<end>"])
    [b'the ', b'']
    """
    return [ast.literal_eval(name) if name[:2] in ("b'", 'b"') else b"" for name in classes]


def lengths_of(classes: Sequence[str]) -> npt.NDArray[np.int64]:
    """The number of bytes of each class, (classes,)."""
    return np.array(list(map(len, token_bytes(classes))), np.int64)


def decoded(found: bytes, where: str) -> str:
    """The text of these bytes, which are UTF-8; raises `DataError`."""
    try:
        return found.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: found the byte {found[error.start]:#04x} at {error.start}, expected text in UTF-8: "
            "convert it, or take the data set 'text', which learns bytes"
        ) from error


def _bytes_by_character() -> dict[str, int]:
    """GPT-2's characters for the bytes: printable ones of Latin-1 are themselves, others follow from 256."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(BYTES + place): byte for place, byte in enumerate(others)
    }
