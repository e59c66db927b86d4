"""UCF101: clips of 101 human actions, in its own layout, as videos or as folders of their frames"""

from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_choice, check_count
from d5ray.errors import ConfigurationError, DataError, first_line
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.image_files import decoded, image_shape
from d5ray.training.datasets.image_folder import SUFFIXES
from d5ray.training.datasets.one_by_one import OneByOne
from d5ray.training.datasets.published_files import by_hand, folders_of, unfit, unreadable
from d5ray.training.datasets.sample_form import Read
from d5ray.training.datasets.samples import Array

VIDEOS, LISTS = "UCF-101", "ucfTrainTestlist"
CLASSES: Final = "classInd.txt"
SPLITS: Final = (1, 2, 3)  # that its authors published
MOST_FRAMES: Final = 10_000


@final
class Clips(OneByOne):
    """Frames (3, frames, H, W) of 0..1 of videos, evenly spread over each of them.

    names: of the videos below the folder, `Class/v_Class_g01_c01.avi`. Where a folder `Class/v_Class_g01_c01`
    is there, its images are the frames, in the order of their names; else PyAV reads the video.
    """

    def __init__(
        self, folder: Path, names: list[str], numbers: list[int], classes: int, *, frames: int, size: Any
    ) -> None:
        check_count("frames", frames, high=MOST_FRAMES)
        self.folder, self.names, self.frames = folder, names, frames
        self.numbers = np.array(numbers, np.int64)
        self.image = image_shape(size, 3)
        self._begin("ucf101", classes)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> Array:
        """The number of each video's class, int64 (N,)."""
        return self.numbers

    def _read(self, index: int) -> Read:
        video = self.folder / self.names[index]
        folder = video.with_suffix("")
        found = self._of_folder(folder) if folder.is_dir() else self._of_video(video)
        return np.stack(found, axis=1), self.numbers[index]

    def _of_folder(self, folder: Path) -> list[Array]:
        images = sorted(each for each in folder.iterdir() if each.suffix.lower() in SUFFIXES)
        if not images:
            raise DataError(f"{folder}: found no image, expected the frames of a video: add them")
        return [decoded(images[at], self.image, str(images[at])) for at in self._chosen(len(images))]

    def _of_video(self, video: Path) -> list[Array]:
        if not video.is_file():
            raise DataError(f"{video}: found neither the video nor a folder of its frames: check the files")
        try:
            import av  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigurationError(
                f"{video} is a video, which needs PyAV: pip install 'd5ray[video]'; or give a folder of its "
                f"frames, {video.with_suffix('')}"
            ) from error
        try:
            with av.open(str(video)) as container:
                pictures = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        except (av.error.FFmpegError, IndexError) as error:
            raise DataError(
                f"{video}: found an unreadable video ({first_line(error)}): fetch it again"
            ) from error
        if not pictures:
            raise DataError(f"{video}: found no frame, expected at least one: fetch it again")
        return [_scaled(pictures[at], self.image) for at in self._chosen(len(pictures))]

    def _chosen(self, count: int) -> list[int]:
        """The numbers of the frames that are taken, of that many."""
        return np.linspace(0, count - 1, self.frames).round().astype(int).tolist()  # type: ignore[no-any-return]

    def _told(self) -> str:
        return f"clips {self.frames} {self.image} {self.names}"


def load_ucf101(
    root: Path, download: bool, *, split: int = 1, frames: int = 16, size: int | tuple[int, int] = 112
) -> Dataset:
    """UCF101's 13,320 videos of 101 actions, in UCF-101/ and ucfTrainTestlist/, by one of its three splits.

    Samples are (3, frames, size, size). Videos need PyAV, pip install 'd5ray[video]'; where a video's frames
    lie as images in a folder of its name, these are read.

    Source: Soomro, Zamir, Shah: UCF101, a dataset of 101 human actions classes from videos in the wild,
    arXiv:1212.0402.
    """
    check_choice("split", str(split), [str(each) for each in SPLITS])
    folders = folders_of("ucf101", root)
    for folder in folders:
        if (folder / VIDEOS).is_dir() and (folder / LISTS).is_dir():
            lists = folder / LISTS
            classes = [line.split()[1] for line in _lines(lists / CLASSES, 2)]
            train, test = (
                _clips(folder / VIDEOS, lists / f"{part}list{split:02}.txt", classes, frames, size)
                for part in ("train", "test")
            )
            return Dataset("ucf101", train, test, classes)
    needed = f"{VIDEOS}/ with a folder a class, and {LISTS}/"
    address = "https://www.crcv.ucf.edu/research/data-sets/ucf101/"
    raise by_hand("ucf101", needed, folders, address, download)


def _clips(folder: Path, listed: Path, classes: list[str], frames: int, size: Any) -> Clips:
    names = [line.split()[0] for line in _lines(listed, 1)]
    numbers = []
    for at, name in enumerate(names):
        kind = name.partition("/")[0]
        if kind not in classes or ".." in Path(name).parts or Path(name).is_absolute():
            raise unfit(listed, f"{name!r} in line {at + 1}", f"a video of a class of {CLASSES}")
        numbers.append(classes.index(kind))
    return Clips(folder, names, numbers, len(classes), frames=frames, size=size)


def _lines(path: Path, words: int) -> list[str]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
    for at, line in enumerate(lines):
        if len(line.split()) < words:
            raise unfit(path, f"{line!r} in line {at + 1}", f"at least {words} words")
    return lines


def _scaled(pixels: Array, shape: tuple[int, ...]) -> Array:
    """A picture (H, W, 3) of bytes as (3, height, width) of 0..1, scaled and cut as images of files are."""
    import io  # noqa: PLC0415

    from PIL import Image  # noqa: PLC0415 - loaded when asked for

    kept = io.BytesIO()
    Image.fromarray(pixels).save(kept, "PPM")
    return decoded(kept.getvalue(), shape, "a frame")
