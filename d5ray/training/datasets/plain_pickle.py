"""Read a pickle of plain values and numeric numpy arrays, and run nothing that the file names."""

import io
import pickle
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from d5ray.training.datasets.published_files import unfit

NUMERIC = re.compile(r"[<>|=]?[uif][1248]")


def read_plain_pickle(data: bytes, origin: str) -> dict[str, object]:
    """The dictionary in a pickle, as Python 2 or 3 wrote it; text as str, arrays as numpy arrays.

    A pickle is a program. This reader admits numbers, text, lists, tuples, dictionaries and numeric
    arrays; each name of numpy in the file is answered by a stand-in of this module without any
    state, so not even numpy's own unpickling code runs, and every other name is refused.

    Args:
        data: the pickle.
        origin: the file, for the error message.

    Raises:
        DataError: the pickle names something else, is damaged, or holds no dictionary.
    """
    try:
        value = _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except Exception as error:  # damaged pickles raise nearly everything, from EOFError to UnicodeDecodeError
        raise unfit(
            origin, f"{type(error).__name__}: {error}", "a pickle of plain values and arrays"
        ) from error
    if not isinstance(value, dict):
        raise unfit(origin, f"a pickled {type(value).__name__}", "a pickled dictionary")
    return {str(key): item.values if isinstance(item, _Array) else item for key, item in value.items()}


class _Array:
    """Stands in for an array: takes the state that numpy's arrays are pickled with."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: npt.NDArray[np.generic] | None = None

    def __setstate__(self, state: tuple[object, tuple[int, ...], "_Dtype", object, bytes | str]) -> None:
        _version, shape, dtype, fortran, data = state
        # Python 2 wrote the bytes as text; latin1 is the encoding that gives them back.
        raw = data.encode("latin1") if isinstance(data, str) else data
        self.values = np.frombuffer(raw, dtype.value).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Stands in for a numeric data type."""

    __slots__ = ("value",)

    def __init__(self, code: str) -> None:
        self.value = _numeric(code)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        _version, byte_order, *_rest = state
        self.value = _numeric(f"{byte_order}{self.value.str[1:]}")


def _numeric(code: str) -> np.dtype[np.generic]:
    if not NUMERIC.fullmatch(code):
        raise pickle.UnpicklingError(f"it holds an array of type {code!r}")
    return np.dtype(code)


def _from_buffer(data: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", data))
    return array


class _StandIn(NamedTuple):
    """Answers a name of numpy. It is a tuple: a pickle can set attributes of whatever it is handed."""

    answer: Callable[..., object] | None = None

    def __call__(self, *arguments: object) -> object:
        if self.answer is None:
            raise pickle.UnpicklingError("it wants to call what is a mere name")
        return self.answer(*arguments)


MAKE_ARRAY, FROM_BUFFER = _StandIn(lambda *_kind_shape_and_code: _Array()), _StandIn(_from_buffer)
STAND_INS: dict[tuple[str, str], _StandIn] = {
    ("numpy", "ndarray"): _StandIn(),
    ("numpy", "dtype"): _StandIn(lambda code, *_align_and_copy: _Dtype(code)),
    ("numpy.core.multiarray", "_reconstruct"): MAKE_ARRAY,  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): MAKE_ARRAY,  # numpy 2
    ("numpy.core.numeric", "_frombuffer"): FROM_BUFFER,  # numpy 1, protocol 5
    ("numpy._core.numeric", "_frombuffer"): FROM_BUFFER,  # numpy 2, protocol 5
    # How Python 3 writes bytes in protocol 2.
    ("_codecs", "encode"): _StandIn(lambda text, _encoding: text.encode("latin1")),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        stand_in = STAND_INS.get((module, name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it wants to use {module}.{name}, which is refused")
        return stand_in
