"""TFRecord files of `tf.train.Example`s, read without TensorFlow; a record is a sample"""

import itertools
import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.errors import DataError, nearest
from d5ray.kits.workloads.datasets.record_files import RecordFiles
from d5ray.training.datasets.published_files import reading
from d5ray.training.datasets.sample_form import Read
from d5ray.training.datasets.samples import Shape

HEAD: Final = struct.Struct("<QI")  # the length of a record, and its checksum
TAIL: Final = 4  # bytes: the checksum of the record
EXAMPLE: Final = """
name: "d5ray/example.proto" package: "d5ray" syntax: "proto3"
message_type { name: "BytesList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES } }
message_type { name: "FloatList" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT } }
message_type { name: "Int64List" field { name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64 } }
message_type {
  name: "Feature" oneof_decl { name: "kind" }
  field { name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".d5ray.BytesList" oneof_index: 0 }
  field { name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".d5ray.FloatList" oneof_index: 0 }
  field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".d5ray.Int64List" oneof_index: 0 }
}
message_type {
  name: "Features"
  field { name: "feature" number: 1 label: LABEL_REPEATED type_name: ".d5ray.Features.FeatureEntry" }
  nested_type {
    name: "FeatureEntry" options { map_entry: true }
    field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
    field { name: "value" number: 2 label: LABEL_OPTIONAL type: TYPE_MESSAGE type_name: ".d5ray.Feature" }
  }
}
message_type { name: "Example" field { name: "features" number: 1 type_name: ".d5ray.Features" } }
"""


@final
class TFRecord(RecordFiles):
    """The records of a TFRecord file, or of all in a folder in the order of their names.

    Where each begins is looked up once; then any record can be read, in any order. The lengths' checksums
    are compared, those of the contents are not.

    Args:
        path: a file, or a folder of files *.tfrecord or *.tfrecord-00000-of-00010; agents get the path.
        inputs: the feature with numbers, raw bytes or an encoded image; labels: that with the label.
        classes: their number.
        shape: of one sample, where it is raw bytes, which are pixels, or is not flat.
        size: of encoded images, scaled and cut to that: pixels, or (height, width); channels: 3, or 1.

    Raises:
        ConfigurationError: the options make no sense.
        DataError: no such file, no record or feature, or a damaged file; later, a record that cannot be read.
    """

    kind, pattern, known_by = "TFRecord", "*.tfrecord*", "features"

    def __init__(
        self,
        path: str | Path,
        classes: int,
        *,
        inputs: str = "inputs",
        labels: str = "label",
        shape: Shape | None = None,
        size: int | tuple[int, int] | None = None,
        channels: int = 3,
    ) -> None:
        super().__init__(path, classes, (inputs, labels), shape, size, channels)

    def _read(self, index: int) -> Read:
        number, begin, length = self._places[index].tolist()
        with self._files[number].open("rb") as file:
            file.seek(begin)
            data = file.read(length)
        features = _example().FromString(data).features.feature
        called = f"{self.what}: sample {index}"
        inputs, label = (_values(features, name, called) for name in self.names)
        if label and isinstance(label[0], bytes):
            raise DataError(f"{called}: the feature {self.names[1]!r} holds bytes, expected numbers")
        if inputs and isinstance(inputs[0], bytes):
            if len(inputs) != 1:
                raise DataError(
                    f"{called}: the feature {self.names[0]!r} holds {len(inputs)} texts, expected one"
                )
            return self.decoding.bytes(inputs[0], called), np.asarray(label[0] if len(label) == 1 else label)
        return self.decoding.numbers(inputs, called), np.asarray(label[0] if len(label) == 1 else label)

    def _told(self) -> str:
        return f"tfrecord {self.names} {self.decoding} {self._places[:, 2].tolist()}"

    def _places_in(self, file: Path) -> Iterator[tuple[int, int]]:
        """First byte and length of every record."""
        with reading(file), file.open("rb") as opened:
            size, at = file.stat().st_size, 0
            for number in itertools.count():
                if at == size:
                    return
                opened.seek(at)
                head = opened.read(HEAD.size)
                length, checksum = HEAD.unpack(head) if len(head) == HEAD.size else (size, 0)
                if len(head) < HEAD.size or _masked(_crc32c(head[:8])) != checksum:
                    gzipped = head[:2] == b"\x1f\x8b"
                    what = "a compressed file" if gzipped else "a length whose checksum is wrong"
                    raise DataError(
                        f"{file}, record {number}: found {what}, expected a whole TFRecord file: unpack "
                        "it, or write it again"
                    )
                begin, at = at + HEAD.size, at + HEAD.size + length + TAIL
                if at > size:
                    raise DataError(
                        f"{file}, record {number}: found the end of the file in it, expected {length} "
                        "bytes: write it again"
                    )
                yield begin, length


def _values(features: Any, name: str, called: str) -> list[Any]:
    if name not in features:
        raise DataError(f"{called} has no feature {name!r}: {nearest(name, list(features))}")
    feature = features[name]
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


@cache
def _example() -> Any:
    """The message `Example`, as TensorFlow's example.proto and feature.proto have it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format  # noqa: PLC0415

    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(EXAMPLE, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("d5ray.Example"))


@cache
def _table() -> tuple[int, ...]:
    found = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        found.append(byte)
    return tuple(found)


def _crc32c(data: bytes) -> int:
    """The checksum CRC-32C (Castagnoli), by the reflected polynomial 0x82F63B78; RFC 3720, appendix B.4.

    >>> hex(_crc32c(b"123456789"))
    '0xe3069283'
    """
    table, found = _table(), 0xFFFFFFFF
    for byte in data:
        found = (found >> 8) ^ table[(found ^ byte) & 0xFF]
    return found ^ 0xFFFFFFFF


def _masked(checksum: int) -> int:
    """The checksum as TFRecord files have it: rotated right by 15 bits, plus a constant."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
