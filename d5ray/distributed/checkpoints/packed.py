"""The state of an object as it is kept: JSON data, and the arrays that it names"""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from d5ray.metrics.record.tensor_file import Array, parsed, pieces


@dataclass
class Packed:
    """JSON data in which arrays are named, and the arrays (flat, in host memory) by name."""

    data: Any = None
    arrays: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def read(cls, content: Array, what: str) -> "Packed":
        """What `bytes` gave (n,), its arrays as views of it; raises `StorageError` for anything else."""
        arrays, text = parsed(content, what)
        return cls(json.loads(text), arrays)

    @property
    def bytes(self) -> Array:
        """The whole as bytes (n,) uint8."""
        return np.frombuffer(b"".join(pieces(self.arrays, json.dumps(self.data))), np.uint8)
