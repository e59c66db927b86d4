"""Claims about sound as data: log-mel by its formula, made-up words, and Speech Commands' folders"""

import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.signal import get_window
from scipy.signal import stft as scipy_stft

from d5ray.errors import ConfigurationError, DataError
from d5ray.kits.workloads.datasets.keywords import WORDS, spoken
from d5ray.kits.workloads.datasets.log_mel import FLOOR, LogMel
from d5ray.kits.workloads.datasets.speech_commands import read_wav
from d5ray.training.datasets.catalogue import load_dataset


def mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def expected(sound: npt.NDArray[Any], kind: LogMel) -> npt.NDArray[Any]:
    """The same by SciPy's STFT, and triangles as linear interpolation between their corners."""
    window = get_window("hann", kind.window)
    hertz, _, spectrum = scipy_stft(
        sound, kind.rate, window, kind.window, kind.window - kind.hop, boundary=None, padded=False
    )
    power = np.abs(spectrum * window.sum()) ** 2  # SciPy divides by the window's sum
    mels = np.linspace(mel(kind.lowest), mel(kind.rate / 2), kind.bands + 2)
    corners = 700 * (10 ** (mels / 2595) - 1)
    bands = [np.interp(hertz, corners[m : m + 3], [0, 1, 0]) for m in range(kind.bands)]
    found = np.log(np.array(bands) @ power + FLOOR)
    return np.asarray(found)


@pytest.mark.parametrize(
    "kind", [LogMel(), LogMel(8000, 20, 256, 100, 0.0), LogMel(window=400, hop=160, bands=24)]
)
def test_features_are_those_of_another_implementation(kind: LogMel) -> None:
    sounds = np.random.default_rng(1).uniform(-1, 1, (2, kind.rate)).astype(np.float32)
    found = kind(sounds)
    assert found.shape == (2, kind.bands, kind.windows(kind.rate)) and found.dtype == np.float32
    for own, sound in zip(found, sounds, strict=True):
        np.testing.assert_allclose(own, expected(sound, kind), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("hertz", [250.0, 1000.0, 4000.0])
def test_a_tone_is_in_its_band(hertz: float) -> None:
    """The loudest band is the one whose middle is nearest in mel; silence is the floor's logarithm."""
    kind = LogMel()
    tone = np.sin(2 * np.pi * hertz * np.arange(kind.rate) / kind.rate)[None]
    nearest = np.abs(np.linspace(mel(20), mel(8000), 42)[1:-1] - mel(hertz)).argmin()
    assert set(kind(tone)[0].argmax(axis=0)) == {nearest}
    np.testing.assert_allclose(kind(np.zeros((1, kind.rate))), np.log(FLOOR), rtol=1e-6)


def test_the_words_are_made_of_their_seed_evenly_and_unlike_each_other() -> None:
    first, again, other = (
        load_dataset("keywords", samples=40, test_samples=20, seed=seed) for seed in (1, 1, 2)
    )
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.sample_shape == (1, 40, 49) and first.classes == tuple(WORDS)
    assert np.bincount(first.train.labels).tolist() == [4] * 10
    assert len(np.unique(first.train.inputs.reshape(40, -1), axis=0)) == 40
    sound = spoken("stop", 0.3, np.random.default_rng(1))
    assert sound.shape == (16_000,) and np.isfinite(sound).all() and 0.001 < np.abs(sound).max() < 4


def write(path: Path, sound: npt.NDArray[Any], rate: int = 16_000, width: int = 2) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes((sound * 32767).astype("<i2").tobytes() if width == 2 else b"\0" * len(sound))


def write_commands(folder: Path) -> None:
    """Two words of three sounds, as the archive has them; the second sound is short, the third too long."""
    rng = np.random.default_rng(3)
    for word in ("yes", "no"):
        for number, length in enumerate((16_000, 9_000, 20_000)):
            write(folder / f"{word}/{number}abc_nohash_0.wav", rng.uniform(-0.5, 0.5, length))
    write(folder / "_background_noise_" / "rain.wav", np.zeros(40_000))
    for name, listed in (("testing", "1abc"), ("validation", "9xyz")):
        lines = "\n".join(f"{word}/{listed}_nohash_0.wav" for word in ("yes", "no"))
        (folder / f"{name}_list.txt").write_text(lines + "\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which speech_commands/ is."""
    write_commands(tmp_path / "speech_commands")
    return tmp_path


def test_speech_commands_are_read_as_they_were_published(folder: Path) -> None:
    """Words are folders, the testing list is the test split, sounds become pictures of one second."""
    data = load_dataset("speech_commands", root=folder)
    assert data.classes == ("no", "yes") and data.sample_shape == (1, 40, 49)
    assert data.train.labels.tolist() == [0, 0, 1, 1] and data.test.labels.tolist() == [0, 1]
    inputs, labels = data.train.take(np.array([3, 0]))
    assert labels.tolist() == [1, 0]
    sound = read_wav(folder / "speech_commands" / "yes" / "2abc_nohash_0.wav", 16_000)
    np.testing.assert_array_equal(inputs[0, 0], LogMel()(sound[None, :16_000])[0])
    short, _ = data.test.take(np.array([1]))
    np.testing.assert_allclose(short[0, 0, :, -10:], np.log(FLOOR), rtol=1e-6)  # silence behind it
    turned = load_dataset("speech_commands", root=folder, words=("yes",), bands=20)
    assert turned.classes == ("yes",) and turned.sample_shape == (1, 20, 49)


def test_the_validation_list_is_in_neither_split(folder: Path) -> None:
    (folder / "speech_commands" / "validation_list.txt").write_text("yes/0abc_nohash_0.wav\n")
    assert load_dataset("speech_commands", root=folder).train.labels.tolist() == [0, 0, 1]


def test_what_is_wrong_with_sounds_is_said(folder: Path) -> None:
    """A word without a folder, and a sound of another rate, by its file."""
    with pytest.raises(DataError, match="no folder for 'maybe', only for no, yes"):
        load_dataset("speech_commands", root=folder, words=("maybe",))
    write(folder / "speech_commands" / "no" / "0abc_nohash_0.wav", np.zeros(9), rate=8000)
    with pytest.raises(DataError, match=r"no/0abc_nohash_0.wav: found 16 bits at 8000 Hz"):
        load_dataset("speech_commands", root=folder).train.take(np.array([0]))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: LogMel(bands=400, window=256), "bands that no frequency of its windows falls into"),
        (lambda: LogMel(lowest=8000.0), "lowest is 8000.0"),
        (lambda: LogMel().windows(639), "shorter than a window of 640"),
        (lambda: load_dataset("keywords", noise=-1.0), "noise is -1.0"),
    ],
)
def test_features_that_make_no_sense_are_refused(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()
