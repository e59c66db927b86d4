"""Whatever holds numbers, of NumPy, PyTorch, pandas, Arrow or Pillow, as arrays to train on"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from d5ray.checks import shown
from d5ray.errors import DataError, first_line
from d5ray.training.datasets.samples import IGNORED, Array

BROAD: Final[dict[str, np.dtype[Any]]] = {
    "f": np.dtype(np.float32),
    "i": np.dtype(np.int64),
    "u": np.dtype(np.int64),
}
PIXELS: Final[np.dtype[Any]] = np.dtype(np.uint8)
AT_A_TIME: Final = 1 << 22  # numbers that are looked at for those that are not finite


def inputs_of(name: str, given: object) -> Array:
    """Inputs as a C-contiguous array of float32, int64 or uint8; raises `DataError` for what is none.

    Any floating type becomes float32, any type of integers int64; uint8 stays, as pixels.

    >>> inputs_of("x", [[1, 2], [3, 4]]).dtype, inputs_of("x", np.zeros(2, np.float16)).dtype
    (dtype('int64'), dtype('float32'))
    """
    found = as_numpy(name, given)
    return found_as(name, found, PIXELS if found.dtype == PIXELS else broad(name, found))


def labels_of(name: str, given: object) -> Array:
    """Labels as a C-contiguous array of int64 or, of targets that are no classes, float32."""
    found = as_numpy(name, given)
    if found.dtype == bool:
        found = found.view(np.uint8)
    return found_as(name, found, broad(name, found))


def broad(name: str, found: Array) -> np.dtype[Any]:
    """The type that numbers of this type are trained on as; raises `DataError` for what are no numbers."""
    if found.dtype.kind in BROAD:
        return BROAD[found.dtype.kind]
    if found.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):  # of ml_dtypes
        return BROAD["f"]
    example = f", such as {shown(found.flat[0])}" if found.size else ""
    raise DataError(
        f"{name}: found {'truth values' if found.dtype == bool else found.dtype}{example}, expected integers "
        "or floating numbers: convert them, with .astype(np.float32) or by numbering what are names"
    )


def found_as(name: str, found: Array, kind: np.dtype[Any]) -> Array:
    """The numbers as this type, C-contiguous; raises `DataError` for those that it cannot hold, and NaN."""
    if kind == BROAD["i"] and found.dtype.kind == "u" and found.size and int(found.max()) > 2**63 - 1:
        raise DataError(f"{name}{place_of(found, found.argmax())} is {found.max()}, expected less than 2⁶³")
    with np.errstate(over="ignore"):  # told below
        numbers: Array = found.astype(kind, order="C", copy=False)
    if kind.kind == "f" and (at := first_not_finite(numbers)) is not None:
        raise DataError(
            f"{name}{place_of(found, at)} is {found.reshape(-1)[at]}, expected a finite number that float32 "
            "can hold: fill, mend or leave out such samples"
        )
    return numbers


def as_numpy(name: str, given: object) -> Array:
    """The numbers of anything, with the type that they have; at least one axis is not asked for."""
    try:
        if hasattr(given, "detach"):  # a tensor of PyTorch
            tensor: Any = given.detach().cpu()
            if str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8")):  # which NumPy does not know
                tensor = tensor.float()
            found: Array = tensor.numpy()
        elif hasattr(given, "getbands"):  # an image of Pillow
            pixels = np.asarray(given)
            found = pixels[None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)  # (C, H, W)
        elif hasattr(given, "to_numpy"):  # of pandas or Arrow
            found = np.asarray(given.to_numpy())
        elif hasattr(given, "numpy") and callable(given.numpy):  # a tensor of TensorFlow
            found = np.asarray(given.numpy())
        else:
            found = np.asarray(given)
    except DataError:
        raise
    except Exception as error:  # whatever an object of the user's raises when it is converted
        raise DataError(
            f"{name}: found {type(given).__name__} that is no array ({_uneven(given) or first_line(error)}), "
            "expected numbers, in samples of one shape: pad or cut them to one shape"
        ) from error
    if found.dtype == object and found.size and isinstance(found.flat[0], (np.ndarray, list, tuple)):
        rows = list(found)  # a column of pandas, Arrow or Ray has an array or a list in each row
        with suppress(ValueError):  # uneven
            found = np.array(rows)
        if found.dtype == object:
            raise DataError(
                f"{name}: found samples of different shapes ({_uneven(rows) or 'objects'}), expected "
                "numbers, in samples of one shape: pad or cut them to one shape"
            )
    return found


def check_labels(name: str, labels: Array, classes: int, numbers: Sequence[int] | Array) -> None:
    """Raise `DataError` for a label without a class, of these samples.

    Targets that are no classes pass, and labels of several parts, of which nobody knows which are classes.
    """
    if labels.dtype.kind in "fV" or not labels.size:
        return
    wrong = ((labels < 0) & (labels != IGNORED)) | (labels >= classes)
    if wrong.any():
        place = np.unravel_index(int(wrong.argmax()), wrong.shape)
        raise DataError(
            f"{name} sample {numbers[int(place[0])]} has the label {labels[place]}, expected 0 to "
            f"{classes - 1}: say classes={int(labels[place]) + 1} or more, or mend the label"
            if labels[place] >= classes
            else f"{name} sample {numbers[int(place[0])]} has the label {labels[place]}, expected 0 to "
            f"{classes - 1}: number the classes from 0; {IGNORED} is for labels that the loss ignores"
        )


def first_not_finite(numbers: Array) -> int | None:
    """The first number that is NaN or infinite, counted through the array; None without any."""
    flat = numbers.reshape(-1)
    for begin in range(0, flat.size, AT_A_TIME):
        wrong = ~np.isfinite(flat[begin : begin + AT_A_TIME])
        if wrong.any():
            return begin + int(wrong.argmax())
    return None


def place_of(array: Array, flat: Any) -> str:
    """`[3]` or `[3, 5]` for the flat-th number of an array, which has no axis where that is empty."""
    return str([int(at) for at in np.unravel_index(int(flat), array.shape)]) if array.ndim else ""


def _uneven(given: object) -> str:
    """The first sample of a list whose shape is not that of the first one, in words; empty if none is."""
    if not isinstance(given, (list, tuple)) or not given:
        return ""
    try:
        shapes = [np.shape(each) for each in given]
    except ValueError:  # uneven within
        return ""
    other = next((at for at, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is None:
        return ""
    return f"sample {other} has the shape {shapes[other]}, sample 0 {shapes[0]}"
