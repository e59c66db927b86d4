"""TFRecord files of `tf.train.Example`s, read without TensorFlow; a record is a sample"""

import struct
from functools import cache
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from d5ray.checks import check_count, check_path
from d5ray.errors import ConfigurationError, DataError, nearest
from d5ray.training.datasets.dataset import Dataset
from d5ray.training.datasets.encoded import Decoding, files_in
from d5ray.training.datasets.one_by_one import OneByOne
from d5ray.training.datasets.published_files import unreadable
from d5ray.training.datasets.sample_form import Read
from d5ray.training.datasets.samples import Shape
from d5ray.training.datasets.splitting import with_test

HEAD: Final = struct.Struct("<QI")  # the length of a record, and its checksum
TAIL: Final = 4  # bytes: the checksum of the record


@final
class TFRecord(OneByOne):
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
        if not isinstance(inputs, str) or not isinstance(labels, str):
            raise ConfigurationError(f"inputs is {inputs!r} and labels is {labels!r}: they must be features")
        self.path, self.names = check_path("path", path).absolute(), (inputs, labels)
        check_count("classes", classes)
        self.decoding = Decoding.of(shape, size, channels)
        self._files = files_in(self.path, "*.tfrecord*", "TFRecord")
        found = [(number, *place) for number, file in enumerate(self._files) for place in _places(file)]
        self._places = np.array(found, np.int64).reshape(-1, 3)  # file, first byte, bytes
        if not found:
            raise DataError(f"{self.path}: found no record, expected at least one sample: add some")
        self._begin(str(self.path), classes)

    def __len__(self) -> int:
        return len(self._places)

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


def load_tfrecord(
    *,
    train: str | Path,
    classes: int,
    test: str | Path | None = None,
    inputs: str = "inputs",
    labels: str = "label",
    shape: Shape | None = None,
    size: int | tuple[int, int] | None = None,
    channels: int = 3,
    test_fraction: float = 0.2,
    split_seed: int = 500,
) -> Dataset:
    """TFRecord files to train on and to test on, see `TFRecord`.

    Without files to test on, a share of the records does, chosen by `split_seed`.
    """
    options: dict[str, Any] = {"inputs": inputs, "labels": labels, "shape": shape, "size": size}
    options["channels"] = channels
    found = TFRecord(train, classes, **options)
    tests = None if test is None else TFRecord(test, classes, **options)
    return with_test("tfrecord", found, tests, classes, test_fraction, split_seed)


def _places(path: Path) -> list[tuple[int, int]]:
    """First byte and length of every record of a file; raises `DataError` for one that is damaged."""
    found: list[tuple[int, int]] = []
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            at = 0
            while at < size:
                file.seek(at)
                head = file.read(HEAD.size)
                length, checksum = HEAD.unpack(head) if len(head) == HEAD.size else (size, 0)
                if len(head) < HEAD.size or _masked(_crc32c(head[:8])) != checksum:
                    what = (
                        "a compressed file" if head[:2] == b"\x1f\x8b" else "a length whose checksum is wrong"
                    )
                    raise DataError(
                        f"{path}, record {len(found)}: found {what}, expected a whole TFRecord file: unpack "
                        "it, or write it again"
                    )
                if at + HEAD.size + length + TAIL > size:
                    raise DataError(
                        f"{path}, record {len(found)}: found the end of the file in it, expected {length} "
                        "bytes: write it again"
                    )
                found.append((at + HEAD.size, length))
                at += HEAD.size + length + TAIL
    except OSError as error:
        raise unreadable(path, error) from error
    return found


def _values(features: Any, name: str, called: str) -> list[Any]:
    if name not in features:
        raise DataError(f"{called} has no feature {name!r}: {nearest(name, list(features))}")
    feature = features[name]
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value) if kind else []


@cache
def _example() -> Any:
    """The message `Example`, field by field as TensorFlow's example.proto and feature.proto number them."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="d5ray/example.proto", package="d5ray", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, str, bool], inside: Any = file.message_type) -> Any:
        made = inside.add(name=name)
        for title, number, kind, of, repeated in fields:
            label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
            one = made.field.add(name=title, number=number, type=kind, label=label)
            if of:
                one.type_name = of
        return made

    lists = (
        ("BytesList", field.TYPE_BYTES),
        ("FloatList", field.TYPE_FLOAT),
        ("Int64List", field.TYPE_INT64),
    )
    for name, kind in lists:
        message(name, ("value", 1, kind, "", True))
    inner = field.TYPE_MESSAGE
    feature = message(
        "Feature", ("bytes_list", 1, inner, ".d5ray.BytesList", False),
        ("float_list", 2, inner, ".d5ray.FloatList", False),
        ("int64_list", 3, inner, ".d5ray.Int64List", False),
    )  # fmt: skip
    feature.oneof_decl.add(name="kind")
    for each in feature.field:
        each.oneof_index = 0
    entry = ".d5ray.Features.FeatureEntry"
    features = message("Features", ("feature", 1, inner, entry, True))
    pair = (("key", 1, field.TYPE_STRING, "", False), ("value", 2, inner, ".d5ray.Feature", False))
    message("FeatureEntry", *pair, inside=features.nested_type).options.map_entry = True
    message("Example", ("features", 1, inner, ".d5ray.Features", False))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
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
