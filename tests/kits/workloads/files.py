"""Writers of the files that tests read: TFRecord and WebDataset's tar"""

import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from d5ray.kits.workloads.datasets import tfrecord


def write_records(path: Path, samples: Sequence[Mapping[str, Sequence[Any]]]) -> None:
    """Examples with these features, whose lists are of bytes, integers or floating numbers."""
    with path.open("wb") as file:
        for sample in samples:
            example = tfrecord._example()()
            for name, values in sample.items():
                kind = {bytes: "bytes_list", int: "int64_list"}.get(type(values[0]), "float_list")
                getattr(example.features.feature[name], kind).value.extend(values)
            data = example.SerializeToString()
            length = struct.pack("<Q", len(data))
            file.write(length + _checksum(length) + data + _checksum(data))


def write_tar(path: Path, samples: Mapping[str, Mapping[str, Any]]) -> None:
    """A member for each ending of each sample: arrays as .npy or images, bytes, and all else as text."""
    with tarfile.open(path, "w") as archive:
        for name, members in samples.items():
            for ending, value in members.items():
                kept = io.BytesIO()
                if isinstance(value, bytes):
                    kept.write(value)
                elif not isinstance(value, np.ndarray):
                    kept.write(str(value).encode())
                elif ending == "npy":
                    np.save(kept, value)
                else:
                    Image.fromarray(value).save(kept, ending)
                member = tarfile.TarInfo(f"{name}.{ending}")
                member.size = kept.tell()
                kept.seek(0)
                archive.addfile(member, kept)


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", tfrecord._masked(tfrecord._crc32c(data)))
