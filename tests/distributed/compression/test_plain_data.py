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
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.errors import AgentError, ConfigurationError
from d5ray.training.batches.batch import Batch
from tests.distributed.shards import clients, shards

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
    linear = True
    unbiased = False

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


class Own(d5.DistributedOptimizer):
    """A user's own optimizer, with a compressor in its class and one of the instance."""

    exchange = d5.ExchangeVia.SERVERS
    first = FirstOnly(7)

    def __init__(self, second: Compressor) -> None:
        self.second = second

    def step(self, batch: Batch) -> None:
        raise NotImplementedError


def test_servers_get_a_users_own_compressor_with_the_experiment() -> None:
    """Those that are attributes of the distributed optimizer's class or instance; the server decompresses by
    it, and an agent that compresses with another is told what to do."""
    how = d5.Servers()
    resolved = ResolvedServers.of(how, Own(FirstOnly(5)), d5.optimizers.SGD(0.1))
    assert set(resolved.compressors) == {FirstOnly(5), FirstOnly(7)}
    x = np.random.default_rng(3).standard_normal(50)
    g = np.random.default_rng(4).standard_normal(50)
    with shards(resolved, 1) as servers, clients([servers[0].address], 1, x) as (agent,):
        agent.server.compress(FirstOnly(5))
        agent.push(g)
        expected = x.copy()
        expected[:5] -= 0.1 * g[:5]
        np.testing.assert_array_equal(agent.pull(), expected)
        with pytest.raises(AgentError, match="do not know FirstOnly"):
            agent.server.compress(FirstOnly(6))
