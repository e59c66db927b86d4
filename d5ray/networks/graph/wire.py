"""Protobuf's wire format, walked through before anything is made of it: where it ends, how deep, how many."""

from typing import TYPE_CHECKING, Any, NoReturn

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from mmap import mmap

MOST_MESSAGES = 1_000_000  # a message of two bytes takes some hundred in memory
DEEPEST = 60  # protobuf itself goes down to 100

TEXT = "text"  # in place of a message's type
REMARKS = frozenset({"doc_string", "producer_name", "producer_version"})  # which nobody reads
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


def check_wire(data: "bytes | mmap", descriptor: Any, what: str) -> None:
    """Raise `ConfigurationError` unless data is a whole message of this type, of bearable depth and number.

    Only tags, lengths and names are read. what: how errors call the data.
    """
    place, messages = 0, 0
    known: dict[Any, dict[int, Any]] = {descriptor: _fields(descriptor)}
    open_messages: list[tuple[dict[int, Any], int]] = [(known[descriptor], len(data))]
    while open_messages:
        fields, end = open_messages[-1]
        if place >= end:
            open_messages.pop()
            continue
        tag, place = _varint(data, place, end, what)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            _, place = _varint(data, place, end, what)
            continue
        if kind in (EIGHT_BYTES, FOUR_BYTES):
            place += 8 if kind == EIGHT_BYTES else 4
        elif kind == SIZED and number > 0:
            size, place = _varint(data, place, end, what)
            if place + size > end:
                _refuse(what, f"something of {size:,} bytes begins at byte {place:,} and ends behind {end:,}")
            child = fields.get(number)
            if child is TEXT:
                _check_text(data[place : place + size], what)
            if child is None or child is TEXT:
                place += size
                continue
            messages += 1
            if messages > MOST_MESSAGES:
                raise ConfigurationError(
                    f"{what} is made of more than {MOST_MESSAGES:,} pieces: no network that d5ray can hold is"
                )
            if len(open_messages) >= DEEPEST:
                raise ConfigurationError(
                    f"{what} is nested more than {DEEPEST} deep: networks without control flow are not"
                )
            if child not in known:
                known[child] = _fields(child)
            open_messages.append((known[child], place + size))
            continue
        else:
            _refuse(what, f"byte {place:,} is not how a field of protobuf begins")
        if place > end:
            _refuse(what, f"it ends in the middle of a number, at byte {end:,}")


def _fields(descriptor: Any) -> dict[int, Any]:
    """The fields of a message that hold messages, or names, by their numbers."""
    return {
        field.number: field.message_type if field.message_type is not None else TEXT
        for field in descriptor.fields
        if field.message_type is not None or (field.type == field.TYPE_STRING and field.name not in REMARKS)
    }


def _check_text(data: bytes, what: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        _refuse(what, f"the name {data[:40]!r} is no text in UTF-8")


def _varint(data: "bytes | mmap", place: int, end: int, what: str) -> tuple[int, int]:
    """The number that stands here, seven bits in a byte, and the place behind it."""
    value, shift = 0, 0
    while place < end and shift < 70:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    return _refuse(what, f"it ends in the middle of a number, at byte {place:,}")


def _refuse(what: str, why: str) -> NoReturn:
    raise ConfigurationError(
        f"{what} is no ONNX model, or a truncated or corrupt one: {why}; get it again, or export it again"
    )
