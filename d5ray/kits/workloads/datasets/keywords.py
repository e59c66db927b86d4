"""Spoken keywords, synthesised: ten words by many voices, from formants, as log-mel pictures"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count, check_number
from d5ray.kits.workloads.datasets.log_mel import LogMel
from d5ray.training.datasets.dataset import Dataset, Split

Sound = npt.NDArray[np.float64]
RATE: Final = 16_000
AT_ONCE: Final = 64  # sounds, of which features are made


@dataclass(frozen=True)
class Phone:
    """A sound of speech: resonances in hertz, how loud voice and breath excite them, and how long, in s."""

    formants: tuple[float, float, float]
    voice: float
    breath: float
    seconds: float


# The vowels' formants are those of men in Peterson and Barney, doi 10.1121/1.1906875; others are rounded.
PHONES: Final = {
    "i": Phone((270, 2290, 3010), 1.0, 0.0, 0.16), "e": Phone((530, 1840, 2480), 1.0, 0.0, 0.14),
    "a": Phone((730, 1090, 2440), 1.0, 0.0, 0.18), "o": Phone((570, 840, 2410), 1.0, 0.0, 0.18),
    "u": Phone((300, 870, 2240), 1.0, 0.0, 0.14), "l": Phone((360, 1300, 2700), 0.6, 0.0, 0.08),
    "r": Phone((420, 1300, 1600), 0.6, 0.0, 0.08), "n": Phone((250, 1450, 2300), 0.4, 0.0, 0.10),
    "f": Phone((1500, 5200, 7200), 0.0, 0.25, 0.12), "s": Phone((4200, 5600, 7000), 0.0, 0.5, 0.14),
    "t": Phone((3200, 4500, 6500), 0.0, 0.8, 0.04), "p": Phone((700, 1500, 2500), 0.0, 0.5, 0.04),
    "d": Phone((350, 1700, 2600), 0.4, 0.3, 0.05), "g": Phone((300, 2000, 2400), 0.4, 0.2, 0.05),
    "-": Phone((500, 1500, 2500), 0.0, 0.0, 0.05),  # lips or tongue closed
}  # fmt: skip
WORDS: Final = {
    "yes": "ies", "no": "nou", "up": "a-p", "down": "daun", "left": "lef-t", "right": "rai-t",
    "on": "on", "off": "of", "stop": "s-to-p", "go": "gou",
}  # fmt: skip


def load_keywords(
    *,
    samples: int = 1500,
    test_samples: int = 400,
    noise: float = 0.3,
    seed: int = 0,
    bands: int = 40,
    window: int = 640,
    hop: int = 320,
) -> Dataset:
    """Ten words of one second at 16 kHz, each by a voice of its own, as log-mel pictures (1, bands, windows).

    A pulse train (voice) and white noise (breath) go through resonators, phone after phone (Klatt,
    doi 10.1121/1.383940, in a simple form). What differs between samples: the voice's pitch, 80 to 250 Hz,
    and its fall; the length of the vocal tract (formants × 0.85 to 1.2) and of each phone; loudness; when
    the word begins; and noise up to `noise` of the word's own root mean square. The classes and the pictures'
    shape are those of `speech_commands` with the same ten words.

    Args:
        samples, test_samples: how many, evenly of each word; no voice is in both splits.
        noise: 0 leaves all sounds clean.
        seed: of everything.
        bands, window, hop: see `LogMel`.
    """
    check_count("samples", samples, 1)
    check_count("test_samples", test_samples, 0)
    check_count("seed", seed, 0)
    check_number("noise", noise, low=0.0, low_included=True)
    features = LogMel(RATE, bands, window, hop)
    train, test = (
        _split(count, features, noise, np.random.default_rng([seed, part]))
        for part, count in enumerate((samples, test_samples))
    )
    return Dataset("keywords", train, test, tuple(WORDS))


def spoken(word: str, noise: float, rng: np.random.Generator) -> Sound:
    """One second of a word (16,000,), by a voice that the generator draws."""
    from scipy.signal import lfilter  # noqa: PLC0415 - loaded when asked for

    tract, pitch, fall = rng.uniform(0.85, 1.2), rng.uniform(80, 250), rng.uniform(0.75, 1.05)
    pieces = []
    phase = 0.0
    for phone in (PHONES[letter] for letter in WORDS[word]):
        length = int(RATE * phone.seconds * rng.uniform(0.75, 1.3))
        phases = phase + np.cumsum(np.linspace(pitch, pitch * fall ** (1 / len(WORDS[word])), length)) / RATE
        pitch *= fall ** (1 / len(WORDS[word]))
        pulses = np.diff(np.floor(phases), prepend=np.floor(phase))
        phase = float(phases[-1])
        excited = phone.voice * pulses + 0.1 * phone.breath * rng.standard_normal(length)
        sound = sum(
            lfilter(*_resonator(hertz * tract, 60 + 0.04 * hertz), excited) / (1 + place)
            for place, hertz in enumerate(phone.formants)
        )
        edge = np.minimum(1.0, np.arange(length) / (0.01 * RATE))
        pieces.append(sound * edge * edge[::-1])
    spoken = np.concatenate(pieces)[:RATE]
    spoken = spoken / np.sqrt(np.mean(spoken**2))
    begin = rng.integers(0, RATE - len(spoken) + 1)
    whole = rng.uniform(0, noise) * rng.standard_normal(RATE)
    whole[begin : begin + len(spoken)] += spoken
    loud: Sound = whole * rng.uniform(0.02, 0.2)
    return loud


def _resonator(hertz: float, width: float) -> tuple[list[float], list[float]]:
    """A filter with one resonance of this bandwidth, and gain 1 there about."""
    radius = np.exp(-np.pi * width / RATE)
    angle = 2 * np.pi * min(hertz, 0.48 * RATE) / RATE
    return [1 - radius], [1.0, -2 * radius * np.cos(angle), radius**2]


def _split(count: int, features: LogMel, noise: float, rng: np.random.Generator) -> Split:
    names: list[Any] = list(WORDS)
    labels = rng.permutation(np.arange(count, dtype=np.int64) % len(names))
    inputs = np.empty((count, 1, features.bands, features.windows(RATE)), np.float32)
    for begin in range(0, count, AT_ONCE):
        sounds = [spoken(names[label], noise, rng) for label in labels[begin : begin + AT_ONCE]]
        inputs[begin : begin + AT_ONCE, 0] = features(np.array(sounds))
    return Split(inputs, labels)
