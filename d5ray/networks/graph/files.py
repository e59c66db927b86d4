"""An ONNX file, its bytes or a model in memory, and the data files beside it

A model is trusted as a program is: its sizes are believed.
"""

import stat
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import final

import onnx
from google.protobuf.message import DecodeError, Message
from onnx.external_data_helper import load_external_data_for_tensor

from d5ray.errors import ConfigurationError

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
        copy = onnx.ModelProto()
        copy.CopyFrom(source)
        return Opened(copy, "the model", None)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return Opened(_parsed(bytes(source), "the model"), "the model", None)
    if not isinstance(source, (str, PathLike)):
        raise ConfigurationError(
            f"a network cannot be read from a {type(source).__name__}: give the path of an ONNX file, its "
            "bytes, or an onnx.ModelProto"
        )
    path = Path(source)
    what = f"the file {str(path)!r}"
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{what} is no ordinary file: give the path of an ONNX file")
        if found.st_size > LARGEST:
            raise ConfigurationError(
                f"{what} has {found.st_size:,} bytes, and an ONNX model at most {LARGEST:,}: keep its values "
                "in a data file beside it (external data)"
            )
        return Opened(_parsed(path.read_bytes(), what), what, path.resolve().parent)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{what} cannot be read: {getattr(error, 'strerror', error)}") from error


def external_data(tensor: onnx.TensorProto, size: int, folder: Path | None, what: str) -> bytes:
    """The bytes of a tensor that stand in a data file. Raises `ConfigurationError` unless all is in order.

    size: how many bytes the tensor's type and shape take. folder: ONNX reads nothing outside of it.
    """
    if folder is None:
        raise ConfigurationError(
            f"{what} stands in a data file, and where that is cannot be known: give the path of the ONNX "
            "file, not its contents"
        )
    loaded = onnx.TensorProto()
    loaded.CopyFrom(tensor)
    if not any(each.key == "length" for each in loaded.external_data):
        loaded.external_data.add(key="length", value=str(size))
    try:
        load_external_data_for_tensor(loaded, str(folder))
    except Exception as error:  # ONNX's own code raises whatever it comes upon
        raise ConfigurationError(
            f"{what} cannot be read from its data file, which must be in the model's own folder, {folder}: "
            f"{error}"
        ) from error
    data: bytes = loaded.raw_data
    if len(data) != size:
        raise ConfigurationError(
            f"{what} has {len(data):,} bytes in its data file, and its type and shape take {size:,}"
        )
    return data


def _parsed(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
        wrong = next((text for text in _texts(model) if isinstance(text, bytes)), None)
    except (DecodeError, ValueError) as error:
        raise _corrupt(what, error) from error
    if wrong is not None:
        raise _corrupt(what, f"the name {wrong[:40]!r} is no text in UTF-8")
    return model


def _corrupt(what: str, why: object) -> ConfigurationError:
    return ConfigurationError(
        f"{what} is no ONNX model, or a truncated or corrupt one ({why}): get it again, or export it again"
    )


def _texts(message: Message) -> Iterator[str | bytes]:
    """All texts of a message and those in it; protobuf gives bytes for one that is none."""
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for each in [value] if isinstance(value, Message) else value:
                yield from _texts(each)
        elif field.type == field.TYPE_STRING:
            yield from [value] if isinstance(value, (str, bytes)) else value
