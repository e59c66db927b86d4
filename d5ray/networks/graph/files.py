"""An ONNX file, and the data files beside it: read within bounds, and nothing else."""

import mmap
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import final

import onnx
from google.protobuf.message import DecodeError, EncodeError

from d5ray.errors import ConfigurationError
from d5ray.networks.graph.available_memory import check_room
from d5ray.networks.graph.protobuf_wire import check_wire

LARGEST = 2**31 - 1  # bytes of a message, which is protobuf's own limit; large values stand in data files


@final
@dataclass(frozen=True)
class Opened:
    """A model, how errors call it, and the folder in which its data files are, None where it has none."""

    model: onnx.ModelProto
    what: str
    folder: Path | None


def open_model(source: str | PathLike[str] | bytes | onnx.ModelProto) -> Opened:
    """The model as it is, without the contents of its data files; it is not the caller's.

    Raises `ConfigurationError` where there is none.
    """
    if isinstance(source, onnx.ModelProto):
        try:
            return Opened(_parsed(source.SerializeToString(), "the model"), "the model", None)
        except (EncodeError, ValueError) as error:
            raise ConfigurationError(f"the model cannot be copied: {error}") from error
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Opened(_parsed(bytes(source), "the model"), "the model", None)
    if not isinstance(source, (str, PathLike)):
        raise ConfigurationError(
            f"a network cannot be read from a {type(source).__name__}: give the path of an ONNX file, its "
            "bytes, or an onnx.ModelProto"
        )
    path = Path(source)
    what = f"the file {str(path)!r}"
    size = _size(path, what)
    if size > LARGEST:
        raise ConfigurationError(
            f"{what} has {size:,} bytes, and an ONNX model at most {LARGEST:,}: keep its values in a data "
            "file beside it (external data)"
        )
    check_room(3 * size, what)
    try:
        with path.open("rb") as file:
            if size:
                with mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
                    check_wire(mapped, onnx.ModelProto.DESCRIPTOR, what)
            return Opened(_message(file.read(size), what), what, path.resolve().parent)
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be read: {error.strerror or error}") from error


def external_data(tensor: onnx.TensorProto, size: int, folder: Path | None, what: str) -> bytes:
    """The bytes of a tensor that stand in a data file. Raises `ConfigurationError` unless all is in order.

    size: how many bytes the tensor's type and shape take. folder: outside of it nothing is read.
    """
    said = {each.key: each.value for each in tensor.external_data}
    path = _data_file(said.get("location", ""), folder, what)
    offset, length = _whole(said, "offset", 0, what), _whole(said, "length", size, what)
    if length != size:
        raise ConfigurationError(
            f"{what} is said to have {length:,} bytes in {path.name!r}, and its type and shape take {size:,}"
        )
    there = _size(path, f"the data file {str(path)!r} of {what}")
    if offset + size > there:
        raise ConfigurationError(
            f"{what} is said to stand at the bytes {offset:,} to {offset + size:,} of {path.name!r}, which "
            f"has {there:,}: the file is truncated, or not the model's"
        )
    check_room(size, what)
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read(size)
    except OSError as error:
        raise ConfigurationError(f"{what} cannot be read from {str(path)!r}: {error.strerror}") from error
    if len(data) != size:
        raise ConfigurationError(f"{what}: {path.name!r} became shorter while it was read")
    return data


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    check_wire(data, onnx.ModelProto.DESCRIPTOR, what)
    return _message(data, what)


def _message(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, ValueError) as error:
        raise ConfigurationError(f"{what} is no ONNX model, or a corrupt one: {error}") from error
    return model


def _size(path: Path, what: str) -> int:
    """The bytes of a file; nothing but an ordinary file is opened."""
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{what} cannot be read: {getattr(error, 'strerror', error)}") from error
    if not stat.S_ISREG(found.st_mode):
        raise ConfigurationError(f"{what} is no ordinary file: give the path of an ONNX file")
    return found.st_size


def _data_file(location: str, folder: Path | None, what: str) -> Path:
    if folder is None:
        raise ConfigurationError(
            f"{what} stands in a data file, {location!r}, and where that is cannot be known: give the path "
            "of the ONNX file, not its contents"
        )
    inside = Path(location)
    plain = bool(location) and not inside.is_absolute() and ".." not in inside.parts
    if plain and "\0" not in location and "\\" not in location:
        resolved = Path(os.path.realpath(folder / inside))
        if resolved.is_relative_to(folder):
            return resolved
    raise ConfigurationError(
        f"{what} is said to stand in {location!r}: data files must be in the model's own folder, {folder}, "
        "and not lead out of it; nothing was read"
    )


def _whole(said: Mapping[str, str], key: str, default: int, what: str) -> int:
    text = said.get(key, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ConfigurationError(f"{what} has {key} {text!r} in its data file: it must be an integer")
    return int(text)
