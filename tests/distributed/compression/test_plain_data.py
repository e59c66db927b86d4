"""Claims about compressors as plain data, by which parameter servers know them"""

import json
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pytest

import d5ray as d5
from d5ray.distributed.communicators.communicator import Message
from d5ray.distributed.compression.compressor import Array, Compressor
from d5ray.distributed.compression.plain_data import described, found
from d5ray.errors import ConfigurationError

KINDS = d5.compression
OWN = [
    KINDS.Identity(), KINDS.Float16(), KINDS.BFloat16(), KINDS.QSGD(2, bucket=None), KINDS.TernGrad(7),
    KINDS.ScaledSign(3), KINDS.OneBit(), KINDS.TopK(0.01), KINDS.TopK(16, bucket=512), KINDS.RandomK(5),
    KINDS.UnbiasedRandomK(0.5), KINDS.Threshold(0.25), KINDS.NonZeroRows(4),
    KINDS.Chain(KINDS.TopK(16, bucket=512), KINDS.QSGD(bits=4)),
]  # fmt: skip


@final
@dataclass(frozen=True)
class FirstOnly(Compressor):
    """A user's own compressor: the first entries as they are, which is a contraction for vectors in which
    they are not less than their share."""

    count: int

    def contraction(self, n: int) -> float | None:
        return self.count / n

    def compress(self, vector: Array, rng: np.random.Generator) -> Message:
        return vector[: self.count].copy().view(np.uint8)

    def decompress(self, message: Message, n: int, dtype: Any) -> Array:
        whole = np.zeros(n, dtype)
        whole[: self.count] = message.view(dtype)
        return whole

    def message_bytes(self, n: int, dtype: Any) -> int | None:
        return self.count * int(np.dtype(dtype).itemsize)


def test_every_compressor_of_d5ray_is_made_anew_from_its_description() -> None:
    """Equal to the one described, though it went through JSON text and the reader knew of none."""
    for compressor in OWN:
        assert found(json.loads(json.dumps(described(compressor))), ()) == compressor
        assert "module" in described(compressor)
    kinds: list[type] = [Compressor]
    for kind in kinds:
        kinds += kind.__subclasses__()
    final_ones = {
        each for each in kinds if each.__module__.startswith("d5ray.") and not each.__subclasses__()
    }
    assert {type(compressor) for compressor in OWN} == final_ones


def test_a_users_own_compressor_is_found_among_those_that_are_known() -> None:
    """By its class and its values; another value is another compressor."""
    known = (d5.compression.TopK(1), FirstOnly(2), FirstOnly(3))
    assert found(described(FirstOnly(3)), known) is known[2]
    with pytest.raises(ConfigurationError, match=r"do not know FirstOnly, .*attribute of the distributed"):
        found(described(FirstOnly(4)), known)


@pytest.mark.parametrize(
    "nonsense",
    [
        None, [], {}, "TopK", {"class": "TopK"}, {"module": "os", "class": "system", "fields": {}},
        {"module": "top_k", "class": "Message", "fields": {}},
        {"module": "top_k", "class": "check_bucket", "fields": {"bucket": 1}},
        {"module": "top_k", "class": "Sparsifier", "fields": {}},
        {"module": "top_k", "class": "TopK", "fields": {}},
        {"module": "top_k", "class": "TopK", "fields": {"k": "all"}},
        {"module": "top_k", "class": "TopK", "fields": {"k": 1, "more": 2}},
        {"module": "chain", "class": "Chain", "fields": {"sparsifier": {"class": "x"}, "quantizer": None}},
    ],
    ids=repr,
)  # fmt: skip
def test_what_describes_no_compressor_is_refused(nonsense: Any) -> None:
    """A name from elsewhere is not looked up, a class that is none is not called, values are checked."""
    with pytest.raises(ConfigurationError):
        found(nonsense, ())
