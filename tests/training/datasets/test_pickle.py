"""Claims about the restricted unpickler: plain values and numeric arrays come out, nothing runs."""

import builtins
import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from d5ray.errors import DataError
from d5ray.training.datasets.plain_pickle import STAND_INS, read_plain_pickle


class Calls:
    """Pickles as a call of a function with arguments."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.function = function
        self.arguments = arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(256, dtype=np.uint8).reshape(2, 128),
        np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4)),
        np.arange(6, dtype=">i4").reshape(1, 2, 3),
        np.linspace(0, 1, 5, dtype=np.float32),
    ],
    ids=["uint8", "fortran", "big-endian", "float32"],
)
def test_arrays_come_out_as_pickle_would_return_them(array: np.ndarray, protocol: int) -> None:
    """For every protocol the values, shape and type are those that pickle itself returns."""
    value = {"data": array, "labels": [1, 2], "name": "a batch", "nested": {"pair": (1.5, None)}}
    data = pickle.dumps(value, protocol)
    read, expected = read_plain_pickle(data, "file"), pickle.loads(data)
    found = read.pop("data")
    assert isinstance(found, np.ndarray)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, expected.pop("data"))
    assert read == expected


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        (os.mkdir, "{}"),
        (os.system, "touch {}"),
        (builtins.eval, "__import__('os').mkdir('{}')"),
    ],
)
def test_a_hostile_pickle_is_refused_and_does_not_run(
    function: Callable[..., object], argument: str, tmp_path: Path
) -> None:
    """What pickle itself would run is a DataError here, and has not happened."""
    victim = tmp_path / "touched"
    data = pickle.dumps({"data": Calls(function, argument.format(victim))})
    with pytest.raises(DataError, match="which is refused"):
        read_plain_pickle(data, "file")
    assert not victim.exists()
    pickle.loads(data)
    assert victim.exists()


@pytest.mark.parametrize("function", [getattr, np.load, np.fromfile, np.array, list, Calls])
def test_every_other_name_is_refused(function: Callable[..., object]) -> None:
    """Not even harmless functions and classes are admitted; the error names what was asked for."""
    with pytest.raises(DataError, match=rf"it wants to use .*{function.__name__}, which is refused"):
        read_plain_pickle(pickle.dumps({"data": function}), "file")


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"data": np.array([{}, []], dtype=object)}),
        pickle.dumps({"data": np.zeros(2, dtype="S5")}),
        pickle.dumps({"data": np.zeros(2, dtype=[("a", "u1")])}),
    ],
    ids=["object", "text", "record"],
)
def test_arrays_of_other_than_numbers_are_refused(data: bytes) -> None:
    """An array of objects could hold anything; only integers and floats are admitted."""
    with pytest.raises(DataError, match="it holds an array of type"):
        read_plain_pickle(data, "file")


def global_name(module: str, name: str) -> bytes:
    return pickle.GLOBAL + f"{module}\n{name}\n".encode()


SET_ATTRIBUTE = b"N}U\x01xK\x01s\x86b"  # BUILD with the state (None, {"x": 1}): sets the attribute x


@pytest.mark.parametrize(("module", "name"), sorted(STAND_INS))
def test_a_pickle_cannot_change_the_stand_ins(module: str, name: str) -> None:
    """A pickle that tries to set an attribute of what stands in for numpy's names is refused."""
    with pytest.raises(DataError, match="AttributeError"):
        read_plain_pickle(global_name(module, name) + SET_ATTRIBUTE + b".", "file")
    assert not hasattr(STAND_INS[module, name], "x")


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (b"(K\x01K\x05\x85cnumpy\ndtype\nU\x02u1\x85R\x89U\x03abctb", "cannot reshape"),
        (b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02O8\x85R\x89U\x03abctb", "array of type 'O8'"),
        (
            b"(K\x01K\x03\x85cnumpy\ndtype\nU\x02u1\x85R(K\x03U\x03|S5tb\x89U\x03abctb",
            r"array of type '\|S5u1'",
        ),
        (b"K\x07b", "cannot unpack"),
    ],
    ids=["length", "object type", "smuggled type", "no state"],
)
def test_a_hand_made_array_state_is_checked(state: bytes, message: str) -> None:
    """An array whose bytes do not fill its shape, or whose type is smuggled in, is refused."""
    make = global_name("numpy.core.multiarray", "_reconstruct") + b")R"
    with pytest.raises(DataError, match=message):
        read_plain_pickle(b"\x80\x02}U\x04data" + make + state + b"s.", "file")


@pytest.mark.parametrize("data", [b"", b"hello", pickle.dumps({"a": 1})[:-3], b"\x80\xff."])
def test_a_damaged_pickle_is_refused(data: bytes) -> None:
    """What is no whole pickle is a DataError that names the file."""
    with pytest.raises(DataError, match=r"^file: found .*, expected a pickle of plain values and arrays"):
        read_plain_pickle(data, "file")


def test_a_pickle_of_no_dictionary_is_refused() -> None:
    """A batch is a dictionary; a pickled list is not one."""
    with pytest.raises(DataError, match="found a pickled list, expected a pickled dictionary"):
        read_plain_pickle(pickle.dumps([1]), "file")
