"""Speech Commands: spoken words in WAV files, a folder a word; read when they are asked for"""

import hashlib
import os
import wave
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from d5ray.checks import check_count
from d5ray.errors import DataError
from d5ray.kits.workloads.datasets.log_mel import LogMel
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.image_folder import add_sizes
from d5ray.training.datasets.published_files import by_hand, folders_of, reading, unfit
from d5ray.training.datasets.samples import Array, Classified, Labels

ADDRESS = "http://download.tensorflow.org/data/speech_commands_v0.02.tar.gz"
LISTS = ("testing_list.txt", "validation_list.txt")


@final
class SpokenWords(Classified):
    """Sounds of one second as log-mel pictures (1, bands, windows), from WAV files of 16 bits.

    Args:
        folder: the files' names are relative to it; agents get the path, so every node must have it.
        names: (N,) such as "yes/0a7c2a8d_nohash_0.wav"; what stands before the slash is the word.
        words: in the order of their labels.
        features: what pictures are made of sounds. A sound at another rate is an error; one that is shorter
            is filled with silence, of a longer one the beginning is taken.
    """

    def __init__(self, folder: Path, names: list[str], words: tuple[str, ...], features: LogMel) -> None:
        self.folder, self.features, self.words = folder, features, words
        self.sample_shape = (1, features.bands, features.windows(features.rate))
        number = {word: label for label, word in enumerate(words)}
        self._names = np.array([os.fsencode(name) for name in names], dtype=np.bytes_)
        self._labels = np.array([number[name.partition("/")[0]] for name in names], dtype=np.int64)

    def file(self, index: int) -> Path:
        """The file of a sample."""
        return self.folder / os.fsdecode(bytes(self._names[index]))

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        sounds = np.zeros((len(indices), self.features.rate), np.float32)
        for place, index in enumerate(indices):
            sound = read_wav(self.file(index), self.features.rate)[: self.features.rate]
            sounds[place, : len(sound)] = sound
        return self.features(sounds)[:, None], self._labels[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        """Names and bytes' counts of the files, and the pictures' kind; not what the files hold."""
        digest.update(f"{part} words {self.features} {self.words}\n".encode())
        add_sizes(digest, self._names, self.file)


def load_speech_commands(
    root: Path,
    download: bool,
    *,
    words: tuple[str, ...] = (),
    bands: int = 40,
    window: int = 640,
    hop: int = 320,
) -> Dataset:
    """Speech Commands: one second of a word at 16 kHz, as log-mel pictures (1, bands, windows).

    `root/speech_commands` (or `root`) holds what the archive does: a folder a word, testing_list.txt and
    validation_list.txt. The testing list is the test split; the validation list is left out of both.

    Args:
        root: where the folder lies.
        words: to tell apart; all if none are named.
        bands, window, hop: see `LogMel`; 40 pictures' rows, and windows of 40 ms every 20 ms.

    Raises:
        ConfigurationError: an option's value makes no sense.
        DataError: a folder or a list is missing, or later, a file is no such sound.

    Source: P. Warden, arXiv:1804.03209.
    """
    check_count("bands", bands)
    features = LogMel(bands=bands, window=window, hop=hop)
    folders = folders_of("speech_commands", root)
    folder = next((each for each in folders if all((each / name).is_file() for name in LISTS)), None)
    if folder is None:
        needed = f"a folder a word, {' and '.join(LISTS)}"
        raise by_hand("speech_commands", needed, folders, ADDRESS, download)
    there = sorted(each.name for each in folder.iterdir() if each.is_dir() and each.name[0] not in "._")
    chosen = tuple(words) or tuple(there)
    if lacking := [word for word in chosen if word not in there]:
        raise DataError(
            f"{folder}: found no folder for {', '.join(map(repr, lacking))}, only for {', '.join(there)}: "
            "choose words among those"
        )
    tested, validated = (set((folder / name).read_text(encoding="utf-8").split()) for name in LISTS)
    found = [f"{word}/{file.name}" for word in chosen for file in sorted((folder / word).glob("*.wav"))]
    splits = (
        [name for name in found if name not in tested and name not in validated],
        [name for name in found if name in tested],
    )
    for names, what in zip(splits, ("to train on", "of testing_list.txt"), strict=True):
        if not names:
            raise DataError(f"{folder}: found no sound {what} among {len(found)} of {', '.join(chosen)}")
    train, test = (SpokenWords(folder, names, chosen, features) for names in splits)
    return Dataset("speech_commands", train, test, chosen)


def read_wav(path: Path, rate: int) -> npt.NDArray[np.float32]:
    """The first channel (samples,) of a WAV file of 16 bits and this rate, between −1 and 1."""
    with reading(path, EOFError, wave.Error), wave.open(str(path)) as file:
        channels, width, found = file.getnchannels(), file.getsampwidth(), file.getframerate()
        data = file.readframes(file.getnframes())
    if width != 2 or found != rate:
        raise unfit(
            path,
            f"{8 * width} bits at {found} Hz",
            f"16 bits at {rate} Hz",
            "convert it, for instance with sox",
        )
    return np.frombuffer(data, "<i2")[::channels].astype(np.float32) / np.float32(32768)
