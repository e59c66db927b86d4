"""Claims about exchanges on a slow network: it is slow, what is sent is counted, wrong means are refused."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.compression.compressor import Array
from d5ray.distributed.compression.reductions import RandomSources, Reduced, Reduction
from d5ray.distributed.compression.stochastic import QSGD
from d5ray.errors import AgentError
from d5ray.kits.laboratory.jobs import slow_network as network
from d5ray.kits.laboratory.jobs.averaging import Averaging
from d5ray.kits.laboratory.jobs.gradient_exchanges import Averaged, GradientExchanges
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import State
from tests.distributed.forming import Former
from tests.together import together

LENET_32 = 136_886  # parameters of LeNet for 3 × 32 × 32
DENSE, QUANTIZED = Averaged("dense", 2), Averaged("QSGD", 2, QSGD(bits=4))
JOB = GradientExchanges(comparisons=((DENSE, QUANTIZED),), gradients=("lenet",), megabits=20.0, seconds=0.1)


def namespaces() -> list[str]:
    """Those of this process."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if line.startswith(f"{network.PREFIX}{os.getpid()}-")]


@pytest.fixture
def slow_network() -> None:
    if reason := network.missing():
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.usefixtures("slow_network")
def test_an_exchange_takes_as_long_as_its_bytes_on_the_limited_link(tmp_path: Path) -> None:
    """Two agents send each other 4n bytes, at 20 Mbit/s: 219 ms for LeNet; with QSGD an eighth of it."""
    found: dict[tuple[str, str, int], Any] = {}
    for contender in (DENSE, QUANTIZED):
        folder = tmp_path / contender.word
        folder.mkdir()
        for series in contender.measure(JOB, folder):
            assert series.at == "lenet"
            found[contender.word, series.metric, series.rank] = series.values
    payload = 4 * LENET_32
    wire = payload * 8 / 20e6
    for rank in range(2):
        assert found["dense", "bytes_sent", rank] == [payload]
        assert found["QSGD", "bytes_sent", rank] == [QSGD(bits=4).message_bytes(LENET_32, np.float32)]
        assert wire < min(found["dense", "gradient_exchange_time", rank])
        assert wire / 10 < min(found["QSGD", "gradient_exchange_time", rank]) < wire
    assert namespaces() == []


@pytest.mark.usefixtures("slow_network")
def test_a_network_leaves_nothing_behind_also_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="on purpose"), network.limited(2, 100.0) as hosts:
        assert len(namespaces()) == 3
        for host in hosts:
            shown = subprocess.run([*host.prefix, "ip", "addr"], capture_output=True, text=True, check=True)
            assert host.address in shown.stdout
        raise RuntimeError("on purpose")
    assert namespaces() == []


@pytest.mark.usefixtures("slow_network")
def test_what_a_killed_process_left_is_removed_by_the_next() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    name = f"{network.PREFIX}{ended.pid}-0"
    subprocess.run(["ip", "netns", "add", name], check=True)
    with network.limited(1, 100.0):
        listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert name not in listed


@final
@dataclass(frozen=True)
class Selfish(Reduction):
    """Everyone's own vector: not the mean."""

    @property
    def faithful(self) -> bool:
        return True

    def bounded_residual(self, n: int) -> bool:
        return True

    def check(self, elements: int) -> None: ...

    def mean(self, vector: Array, communication: Communicator, draws: RandomSources, state: State) -> Reduced:
        return Reduced(vector.copy(), vector)


def test_means_that_differ_between_agents_are_not_timed(groups: Former) -> None:
    members = groups.form("reference", 2)
    slots = (Slot("matrix", 0, (3, 4)),)
    work = Averaging(Selfish(), (), Path(), {}, seconds=0.01, seed=0)
    with pytest.raises(AgentError, match="different means"):
        together(lambda rank: work.exchanged(members[rank], slots), 2)


def test_members_average_gradients_of_their_own(groups: Former) -> None:
    """Dense: the mean of what the ranks drew from generators of (seed, rank)."""
    members = groups.form("reference", 2)
    slots = (Slot("matrix", 0, (3, 4)), Slot("bias", 12, (5,)))
    work = Averaging(None, (), Path(), {}, seconds=0.01, seed=7)
    means = together(lambda rank: work.exchange(members[rank], slots)(), 2)
    own = [np.random.default_rng([7, rank]).standard_normal(17, dtype=np.float32) for rank in range(2)]
    assert not np.allclose(own[0], own[1])
    for mean in means:
        np.testing.assert_allclose(mean, (own[0] + own[1]) / 2, rtol=1e-6)
