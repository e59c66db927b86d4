"""Sequences of spoken keywords, synthesised: which words they are, in their order, but not when"""

import numpy as np

from d5ray.checks import check_count, check_number
from d5ray.kits.workloads.datasets.keywords import AT_ONCE, RATE, WORDS, Sound, spoken
from d5ray.kits.workloads.datasets.log_mel import LogMel
from d5ray.training.datasets.dataset import Dataset, Split
from d5ray.training.datasets.samples import IGNORED

LONGEST = 60  # seconds


def load_keyword_sequences(
    *,
    samples: int = 1000,
    test_samples: int = 200,
    most: int = 3,
    noise: float = 0.3,
    seed: int = 0,
    bands: int = 40,
    window: int = 640,
    hop: int = 320,
) -> Dataset:
    """One to `most` words in `most` seconds, as log-mel pictures (1, bands, windows); labels (most,).

    Each word is one of those of `load_keywords`, by a voice of its own, somewhere in a second of its own; in
    the other seconds there is noise alone. Labels are the words in their order, and −100 behind them: when a
    word was spoken is not told, which is for a loss such as `CTCLoss` to find out.

    Args:
        samples, test_samples: how many; no voice is in both splits.
        most: words in a sample, and its seconds.
        noise: 0 leaves all words clean.
        seed: of everything.
        bands, window, hop: see `LogMel`.
    """
    check_count("samples", samples, 1)
    check_count("test_samples", test_samples, 0)
    check_count("most", most, 1, LONGEST)
    check_count("seed", seed, 0)
    check_number("noise", noise, low=0.0, low_included=True)
    features = LogMel(RATE, bands, window, hop)
    train, test = (
        _split(count, most, features, noise, np.random.default_rng([seed, 2 + part]))
        for part, count in enumerate((samples, test_samples))
    )
    return Dataset("keyword_sequences", train, test, tuple(WORDS))


def spoken_sequence(words: list[str | None], noise: float, rng: np.random.Generator) -> Sound:
    """A second for each word, (16,000 · words,); None is a second in which nobody speaks."""
    return np.concatenate(
        [
            rng.uniform(0, noise) * 0.1 * rng.standard_normal(RATE)
            if word is None
            else spoken(word, noise, rng)
            for word in words
        ]
    )


def _split(count: int, most: int, features: LogMel, noise: float, rng: np.random.Generator) -> Split:
    names = list(WORDS)
    labels = np.full((count, most), IGNORED, np.int64)
    inputs = np.empty((count, 1, features.bands, features.windows(most * RATE)), np.float32)
    for begin in range(0, count, AT_ONCE):
        sounds = []
        for own in labels[begin : begin + AT_ONCE]:
            said = int(rng.integers(1, most + 1))
            own[:said] = rng.integers(0, len(names), said)
            seconds: list[str | None] = [None] * most
            for place, label in zip(np.sort(rng.permutation(most)[:said]), own[:said], strict=True):
                seconds[place] = names[label]
            sounds.append(spoken_sequence(seconds, noise, rng))
        inputs[begin : begin + AT_ONCE, 0] = features(np.array(sounds))
    return Split(inputs, labels)
