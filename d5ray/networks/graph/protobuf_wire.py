"""Protobuf's wire format, walked through before anything is made of it: where it ends, how deep, how many."""

from typing import TYPE_CHECKING, Any, NoReturn

from d5ray.errors import ConfigurationError

if TYPE_CHECKING:
    from mmap import mmap

MOST_MESSAGES = 1_000_000  # a message of two bytes takes some hundred in memory
DEEPEST = 60  # protobuf itself goes down to 100

LONGEST_NAME = 10_000  # bytes; of a tensor, a node, an operator, a size, the folder of a data file
MOST_FIELDS = 10_000_000  # of all messages together; a node of a usual network takes half a dozen

NAME, TEXT = "name", "text"  # in place of a message's type
VALUE = "value"  # of a remark on the whole model, whose length is free
REMARKS = frozenset({"doc_string", "producer_name", "producer_version"})  # which nobody reads
VARINT, EIGHT_BYTES, SIZED, FOUR_BYTES = 0, 1, 2, 5


def check_wire(data: "bytes | mmap", descriptor: Any, what: str) -> None:
    """Raise `ConfigurationError` unless data is a whole message of this type, of bearable depth and number.

    Only tags, lengths and names are read. what: how errors call the data.
    """
    place, messages, pieces = 0, 0, 0
    known: dict[Any, dict[int, Any]] = {descriptor: _fields(descriptor)}
    fields, end = known[descriptor], len(data)
    around: list[tuple[dict[int, Any], int]] = []  # the messages that this one stands in
    while True:
        if place >= end:
            if not around:
                return
            fields, end = around.pop()
            continue
        pieces += 1
        if pieces > MOST_FIELDS:
            raise ConfigurationError(f"{what} has more than {MOST_FIELDS:,} fields: no network needs as many")
        tag = data[place]
        if tag < 128:
            place += 1
        else:
            tag, place = _varint(data, place, end, what)
        number, kind = tag >> 3, tag & 7
        if number == 0:  # which protobuf does not have: zeros, such as a hole in a file
            _refuse(what, f"a field before byte {place:,} has the number 0")
        if kind == SIZED:
            size, place = _varint(data, place, end, what)
            behind = place + size
            if behind > end:
                _refuse(what, f"something of {size:,} bytes begins at byte {place:,} and ends behind {end:,}")
            child = fields.get(number)
            if child is None:
                place = behind
            elif child is NAME or child is TEXT:
                if child is NAME and size > LONGEST_NAME:
                    raise ConfigurationError(
                        f"{what} has a name of {size:,} bytes at byte {place:,}: names have at most "
                        f"{LONGEST_NAME:,}"
                    )
                _check_text(data[place:behind], what)
                place = behind
            else:
                messages += 1
                if messages > MOST_MESSAGES:
                    raise ConfigurationError(
                        f"{what} is made of more than {MOST_MESSAGES:,} pieces: no network that d5ray can "
                        "hold is"
                    )
                if len(around) >= DEEPEST - 1:
                    raise ConfigurationError(
                        f"{what} is nested more than {DEEPEST} deep: networks without control flow are not"
                    )
                around.append((fields, end))
                if child not in known:
                    known[child] = _fields(child)
                fields, end = known[child], behind
            continue
        if kind == VARINT:
            _, place = _varint(data, place, end, what)
        elif kind in (EIGHT_BYTES, FOUR_BYTES):
            place += 8 if kind == EIGHT_BYTES else 4
        else:
            _refuse(what, f"byte {place:,} is not how a field of protobuf begins")
        if place > end:
            _refuse(what, f"it ends in the middle of a number, at byte {end:,}")


def _fields(descriptor: Any) -> dict[int, Any]:
    """The fields of a message that hold messages, names or texts, by their numbers."""
    found: dict[int, Any] = {}
    for field in descriptor.fields:
        if field.message_type is not None:
            found[field.number] = field.message_type
        elif field.type == field.TYPE_STRING and field.name not in REMARKS:
            found[field.number] = TEXT if field.name == VALUE else NAME
    return found


def _check_text(data: bytes, what: str) -> None:
    try:
        data.decode()
    except UnicodeDecodeError:
        _refuse(what, f"the name {data[:40]!r} is no text in UTF-8")


def _varint(data: "bytes | mmap", place: int, end: int, what: str) -> tuple[int, int]:
    """The number that stands here, seven bits in a byte, and the place behind it."""
    if place < end and (first := data[place]) < 128:
        return first, place + 1
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
