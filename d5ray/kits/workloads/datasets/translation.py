"""Pairs of sentences to translate: of a made language, or of two files, as tokens of byte pairs"""

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.errors import ConfigurationError, DataError
from d5ray.kits.workloads.datasets.made_language import sentences
from d5ray.kits.workloads.datasets.text import text_at
from d5ray.kits.workloads.datasets.tokens import BYTES, LARGEST_VOCABULARY, byte_pairs, decoded, names_of
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.samples import IGNORED

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PADDING, BEGIN, END = range(3)
SPECIAL: Final = ("<padding>", "<begin>", "<end>")
SOURCE, TARGET = "source", "target"  # of the inputs
Pairs = list[tuple[str, str]]


def load_translation(
    *,
    source: str | Path | None = None,
    target: str | Path | None = None,
    test_source: str | Path | None = None,
    test_target: str | Path | None = None,
    samples: int = 4000,
    test_samples: int = 200,
    vocabulary: int = 512,
    length: int = 32,
    test_fraction: float = 0.1,
    seed: int = 0,
) -> Dataset:
    """Pairs of sentences: inputs {"source": (N, length), "target": (N, length)}, labels (N, length), int64.

    A source ends with <end>. A target begins with <begin>, and its labels are the same one further on, up to
    <end>; behind them there is <padding>, 0, and labels are −100. Tokens are byte pairs of both languages
    together, made from the pairs to train on, see `load_tokens`.

    Without files the pairs are sentences of a small English grammar and of a made language, which puts the
    verb last, adjectives behind nouns, and says number, article and tense by endings; no test sentence is
    among those to train on.

    Args:
        source, target: two files in UTF-8, a sentence a line, such as WMT's; line n of one is line n of the
            other. Pairs of which one is empty, or longer than `length`, are left out.
        test_source, test_target: the same to test on; without them the last lines, `test_fraction` of all.
        samples, test_samples, seed: of made pairs: how many, and what they are drawn from.
        vocabulary: tokens, with the special ones: 259 or more.
        length: of a sentence, in tokens.

    Raises:
        ConfigurationError: an option's value makes no sense, one of two files is missing from the options, or
            the library `tokenizers` is not installed.
        DataError: there is no such file, the files have not as many lines, or no pair is left.
    """
    check_count("samples", samples, 1)
    check_count("test_samples", test_samples, 1)
    check_count("seed", seed, 0)
    check_count("vocabulary", vocabulary, BYTES + len(SPECIAL), LARGEST_VOCABULARY)
    check_count("length", length, 2)
    check_number("test_fraction", test_fraction, low=0.0, low_included=False, high=1.0)
    given, tests = _both("source", source, target), _both("test_source", test_source, test_target)
    if given is None:
        if tests is not None:
            raise ConfigurationError(
                "test_source is given without source: give all four files, or the first two"
            )
        made = [(each.english, each.translated) for each in islice(sentences(seed), samples + test_samples)]
        parts = made[:samples], made[samples:]
    else:
        pairs = _read(*given)
        cut = len(pairs) - round(test_fraction * len(pairs))
        parts = (pairs[:cut], pairs[cut:]) if tests is None else (pairs, _read(*tests))
    tokenizer = byte_pairs((text for pair in parts[0] for text in pair), vocabulary, SPECIAL)
    train, test = (_split(tokenizer, part, length) for part in parts)
    for name, split in (("train", train), ("test", test)):
        if not len(split):
            raise DataError(
                f"data set 'translation': found no pair to {name} on of at most {length} tokens with "
                "<end>, expected one at least: give longer files, or a larger length"
            )
    return Dataset("translation", train, test, names_of(tokenizer, vocabulary))


def _both(name: str, source: Any, target: Any) -> tuple[str | Path, str | Path] | None:
    """Two files, or none of both."""
    if source is None and target is None:
        return None
    if source is None or target is None:
        other = name.replace(SOURCE, TARGET)
        found, lacking = (name, other) if target is None else (other, name)
        raise ConfigurationError(
            f"{found} is given without {lacking}: a translation has two files, give both"
        )
    return source, target


def _read(source: str | Path, target: str | Path) -> Pairs:
    """The pairs of two files; raises `DataError`."""
    sides = []
    for path in (source, target):
        found, where = text_at(path)
        sides.append(decoded(found, where).splitlines())
    if len(sides[0]) != len(sides[1]):
        raise DataError(
            f"found {len(sides[0])} lines in {source} and {len(sides[1])} in {target}, expected as many: "
            "line n of one is the translation of line n of the other"
        )
    pairs = [(one.strip(), other.strip()) for one, other in zip(*sides, strict=True)]
    return [pair for pair in pairs if all(pair)]


def _split(tokenizer: "Tokenizer", pairs: Pairs, length: int) -> Split:
    """The pairs that are short enough, as tokens."""
    sides = [[each.ids for each in tokenizer.encode_batch(list(side))] for side in zip(*pairs, strict=True)]
    kept = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) < length]
    sources, targets = (np.full((len(kept), length), PADDING, np.int64) for _ in range(2))
    labels = np.full((len(kept), length), IGNORED, np.int64)
    for row, (source, target) in enumerate(kept):
        sources[row, : len(source) + 1] = [*source, END]
        targets[row, : len(target) + 1] = [BEGIN, *target]
        labels[row, : len(target) + 1] = [*target, END]
    return Split({SOURCE: sources, TARGET: targets}, labels)
