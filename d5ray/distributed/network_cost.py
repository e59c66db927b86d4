"""The cost model of a network: a latency for each round of messages and a time for each byte, as measured"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any

import numpy as np

from d5ray.distributed.communicators.communicator import Communicator
from d5ray.errors import StorageError
from d5ray.metrics.record.folders import home, make_folder

SIZES = (1, 64, 1024, 16_384, 131_072, 1_048_576, 8_388_608)  # bytes of one message
SECONDS_PER_SIZE = 0.3
MOST_REPETITIONS = 300


@dataclass(frozen=True)
class LinkCost:
    """T = α · rounds + β · bytes, of one backend between two agents.

    α, `latency_seconds`, is a round of messages; β, `seconds_per_byte`, a byte received (Hockney, doi
    10.1016/S0167-8191(06)80021-9). Agents that send at the same time and share a link or a core take
    longer: the model does not know of them.
    """

    backend: str
    latency_seconds: float
    seconds_per_byte: float
    hosts: tuple[str, ...]
    measured: str  # when, as ISO 8601

    def predict(self, rounds: float, payload_bytes: float) -> float:
        """The seconds of an exchange with this many rounds, and bytes received by one agent."""
        return self.latency_seconds * rounds + self.seconds_per_byte * payload_bytes

    @property
    def bytes_per_second(self) -> float:
        """The bandwidth, 1/β."""
        return 1 / self.seconds_per_byte if self.seconds_per_byte else float("inf")


def fit(payload_bytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """α and β that make the relative errors of α + β · bytes smallest (least squares), neither negative.

    >>> fit([0, 1000, 1000_000], [1e-5, 1.1e-5, 1.01e-3])
    (1e-05, 1e-09)
    """
    size, time = np.asarray(payload_bytes, dtype=float), np.asarray(seconds, dtype=float)
    rows = np.stack([1 / time, size / time], axis=1)  # (points, 2): each divided by what was measured
    scale = rows.max(axis=0)
    solution = np.linalg.lstsq(rows / scale, np.ones(len(time)), rcond=None)[0] / scale
    if solution[0] < 0:
        return 0.0, float((size / time).sum() / ((size / time) ** 2).sum())
    if solution[1] < 0:
        return float((1 / time).sum() / (1 / time**2).sum()), 0.0
    return float(f"{solution[0]:.6g}"), float(f"{solution[1]:.6g}")


def measure(communication: Communicator) -> list[tuple[int, float]]:
    """The median seconds in which two members send each other messages of each of `SIZES` at once."""
    other = 1 - communication.rank
    times: list[tuple[int, float]] = []
    for size in SIZES:
        message = np.zeros(size, dtype=np.uint8)
        once = _exchange(communication, message, other, 3)
        agreed = np.array([min(max(once)[0], 1.0)])
        communication.allreduce(agreed, "max")  # both repeat as often
        repetitions = int(np.clip(SECONDS_PER_SIZE / max(agreed[0], 1e-6), 5, MOST_REPETITIONS))
        taken = _exchange(communication, message, other, repetitions)
        times.append((size, float(np.median([seconds for seconds, _ in taken]))))
    return times


def _exchange(
    communication: Communicator, message: Any, other: int, repetitions: int
) -> list[tuple[float, int]]:
    taken = []
    for turn in range(repetitions):
        communication.barrier()
        begin = perf_counter()
        communication.exchange_messages({other: message}, [other], length=message.size)
        taken.append((perf_counter() - begin, turn))
    return taken


def keep(networks: Iterable[LinkCost]) -> None:
    """Keep what was measured for these hosts, instead of what was known about them."""
    known = _read()
    for network in networks:
        known[_key(network.hosts, network.backend)] = asdict(network)
    path = home() / "network.json"
    try:
        make_folder(path.parent)
        path.write_text(json.dumps(known, indent=1))
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}): name another D5RAY_HOME") from error


def known(hosts: Iterable[str]) -> dict[str, LinkCost]:
    """Latency and bandwidth between these hosts, by backend, as `d5ray doctor --network` measured them."""
    wanted = _key(hosts, "")
    rows = [row for key, row in _read().items() if key.startswith(wanted)]
    return {row["backend"]: LinkCost(**{**row, "hosts": tuple(row["hosts"])}) for row in rows}


def _read() -> dict[str, Any]:
    path = home() / "network.json"
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _key(hosts: Iterable[str], backend: str) -> str:
    return f"{'+'.join(sorted(set(hosts)))} {backend}"
