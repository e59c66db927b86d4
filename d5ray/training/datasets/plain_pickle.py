"""Read a pickle of plain values and numeric numpy arrays, and run nothing that the file names."""

import io
import pickle
import re

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


# The stand-ins below are instances without attributes, because a pickle can set the attributes of
# whatever it is handed.
class _MakeDtype:
    __slots__ = ()

    def __call__(self, code: str, *_align_and_copy: object) -> _Dtype:
        return _Dtype(code)


class _MakeArray:
    __slots__ = ()

    def __call__(self, *_kind_shape_and_code: object) -> _Array:
        return _Array()


class _FromBuffer:
    __slots__ = ()

    def __call__(self, data: bytes, dtype: _Dtype, shape: tuple[int, ...], order: str) -> _Array:
        array = _Array()
        array.__setstate__((1, shape, dtype, order == "F", data))
        return array


class _Encode:
    __slots__ = ()

    def __call__(self, text: str, _encoding: str) -> bytes:
        return text.encode("latin1")


class _Nothing:
    __slots__ = ()


STAND_INS: dict[tuple[str, str], object] = {
    ("numpy", "ndarray"): _Nothing(),
    ("numpy", "dtype"): _MakeDtype(),
    ("numpy.core.multiarray", "_reconstruct"): _MakeArray(),  # numpy 1
    ("numpy._core.multiarray", "_reconstruct"): _MakeArray(),  # numpy 2
    ("numpy.core.numeric", "_frombuffer"): _FromBuffer(),  # numpy 1, protocol 5
    ("numpy._core.numeric", "_frombuffer"): _FromBuffer(),  # numpy 2, protocol 5
    ("_codecs", "encode"): _Encode(),  # how Python 3 writes bytes in protocol 2
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        stand_in = STAND_INS.get((module, name))
        if stand_in is None:
            raise pickle.UnpicklingError(f"it wants to use {module}.{name}, which is refused")
        return stand_in
