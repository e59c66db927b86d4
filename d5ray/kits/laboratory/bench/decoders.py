"""Decoders of images: libraries that make the same array of a file, so that their times can be compared"""

import functools
import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import numpy.typing as npt

from d5ray.errors import ConfigurationError, DataError, first_line, nearest
from d5ray.training.datasets.image_files import decoded
from d5ray.training.datasets.image_folder import ImageFolder
from d5ray.training.datasets.samples import Array, Labels, OnDemand, Samples, Shape, Subset

if TYPE_CHECKING:
    import hashlib

Image = npt.NDArray[np.float32]
Decode = Callable[[bytes, Shape], Image]  # of a file's bytes, to (C, H, W) of 0..1
AS_IT_IS: Final = "d5ray"  # the name of a data set's own way


def pillow(data: bytes, shape: Shape) -> Image:
    """Pillow, as `image_folder` uses it: a large JPEG is decoded at a half, quarter or eighth."""
    return decoded(data, shape, "the image")


def torchvision(data: bytes, shape: Shape) -> Image:
    """torchvision's `decode_image`, then its antialiased resizing."""
    import torch  # noqa: PLC0415 - when it is asked for
    from torchvision.io import ImageReadMode, decode_image  # type: ignore[import-not-found] # noqa: PLC0415
    from torchvision.transforms.v2 import functional  # type: ignore[import-not-found] # noqa: PLC0415

    channels, height, width = shape
    mode = ImageReadMode.RGB if channels == 3 else ImageReadMode.GRAY
    whole = decode_image(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode)
    top, left, rows, columns = _middle(whole.shape[1], whole.shape[2], height, width)
    cut = whole[:, top : top + rows, left : left + columns]
    if cut.shape[1:] != (height, width):
        cut = functional.resize(cut, [height, width], antialias=True)
    found: Image = np.ascontiguousarray(cut.numpy(), np.float32) / np.float32(255)
    return found


def opencv(data: bytes, shape: Shape) -> Image:
    """OpenCV's `imdecode`, then its resizing over areas."""
    import cv2  # type: ignore[import-not-found] # noqa: PLC0415 - when it is asked for

    channels, height, width = shape
    flag = cv2.IMREAD_COLOR if channels == 3 else cv2.IMREAD_GRAYSCALE
    whole = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    if whole is None:
        raise ValueError("OpenCV cannot decode it")
    top, left, rows, columns = _middle(whole.shape[0], whole.shape[1], height, width)
    cut = whole[top : top + rows, left : left + columns]
    if cut.shape[:2] != (height, width):
        cut = cv2.resize(cut, (width, height), interpolation=cv2.INTER_AREA)
    return _planes(cv2.cvtColor(cut, cv2.COLOR_BGR2RGB) if channels == 3 else cut, shape)


def turbojpeg(data: bytes, shape: Shape) -> Image:
    """libjpeg-turbo by PyTurboJPEG, at a half, quarter or eighth of a large JPEG; Pillow resizes."""
    from PIL import Image as Pictures  # noqa: PLC0415 - when it is asked for
    from turbojpeg import TJPF_GRAY, TJPF_RGB  # type: ignore[import-not-found] # noqa: PLC0415

    channels, height, width = shape
    library = _libjpeg_turbo()
    columns, rows, *_ = library.decode_header(data)
    halves = next((n for n in (8, 4, 2) if rows >= 2 * n * height // 2 and columns >= n * width), 1)
    kind = TJPF_RGB if channels == 3 else TJPF_GRAY
    whole = library.decode(data, pixel_format=kind, scaling_factor=(1, halves))
    top, left, tall, wide = _middle(whole.shape[0], whole.shape[1], height, width)
    cut = np.ascontiguousarray(whole[top : top + tall, left : left + wide].squeeze())
    if cut.shape[:2] != (height, width):
        cut = np.asarray(Pictures.fromarray(cut).resize((width, height), Pictures.Resampling.BILINEAR))
    return _planes(cut, shape)


DECODERS: Final[Mapping[str, Decode]] = {
    each.__name__: each for each in (pillow, torchvision, opencv, turbojpeg)
}
PACKAGES: Final = {
    "pillow": ("PIL", "pip install pillow"),
    "torchvision": ("torchvision", "pip install torchvision"),
    "opencv": ("cv2", "pip install opencv-python-headless"),
    "turbojpeg": ("turbojpeg", "pip install PyTurboJPEG, and libturbojpeg (apt-get install libturbojpeg)"),
}


def check_decoder(name: str) -> None:
    """Raise `ConfigurationError` for a decoder that is not known, or not installed."""
    if name not in DECODERS:
        raise ConfigurationError(f"there is no decoder {name!r}: {nearest(name, DECODERS)}")
    package, how = PACKAGES[name]
    if importlib.util.find_spec(package) is None:
        raise ConfigurationError(f"{name} is not installed: {how}, or leave it out of --decoder")


@final
class Decoded(OnDemand):
    """The images of a folder, decoded by a library.

    Raises `ConfigurationError` for samples that are no images in files.
    """

    def __init__(self, samples: Samples, decoder: str) -> None:
        self._file, self._samples, self._decoder = _files(samples), samples, decoder
        self.sample_shape = samples.sample_shape

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def labels(self) -> Labels:
        """The labels of all samples."""
        return self._samples.labels

    @property
    def highest_label(self) -> int:
        return self._samples.highest_label

    def take(self, indices: npt.NDArray[np.int64]) -> tuple[Array, Labels]:
        decode = DECODERS[self._decoder]
        inputs = np.empty((len(indices), *self.sample_shape), np.float32)
        for place, index in enumerate(indices):
            file = self._file(int(index))
            try:
                inputs[place] = decode(file.read_bytes(), self.sample_shape)
            except Exception as error:  # libraries raise of every kind
                raise DataError(
                    f"{file}: {self._decoder} cannot decode it ({first_line(error)}): leave it out of "
                    "--decoder, or replace the image"
                ) from error
        return inputs, self.labels[indices]

    def add_to(self, digest: "hashlib._Hash", part: str) -> None:
        self._samples.add_to(digest, part)


def _files(samples: Samples) -> Callable[[int], Path]:
    if isinstance(samples, ImageFolder):
        return samples.file
    if isinstance(samples, Subset):
        within, chosen = _files(samples.whole), samples.indices
        return lambda index: within(int(chosen[index]))
    raise ConfigurationError(
        f"--decoder is for images in files, and the samples are a {type(samples).__name__}: leave it out, or "
        "take the data set image_folder"
    )


def _middle(rows: int, columns: int, height: int, width: int) -> tuple[int, int, int, int]:
    """The largest part in the middle with the proportions of height × width: top, left, rows, columns.

    >>> _middle(100, 200, 50, 50)
    (0, 50, 100, 100)
    """
    share = min(rows / height, columns / width)
    tall, wide = max(1, round(height * share)), max(1, round(width * share))
    return (rows - tall) // 2, (columns - wide) // 2, tall, wide


def _planes(pixels: Any, shape: Shape) -> Image:
    numbers = np.asarray(pixels, np.float32).reshape(shape[1], shape[2], shape[0])
    return np.ascontiguousarray(numbers.transpose(2, 0, 1)) / np.float32(255)


@functools.cache
def _libjpeg_turbo() -> Any:
    """The library, which is looked for once."""
    from turbojpeg import TurboJPEG  # noqa: PLC0415 - when it is asked for

    return TurboJPEG()
