"""What a shard's work for one push costs beside the update itself: both in one process, in turn"""

from typing import Any

import numpy as np

from benchmarks.interleaved_timing import interleaved, timer
from benchmarks.sizes import elements_of
from d5ray.distributed.parameter_server.consistency import Asynchronous
from d5ray.distributed.parameter_server.remote_client import RemoteServer
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import Descend
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import Times
from d5ray.kits.laboratory.metrics.rates import BARE, IN_THE_SHARD
from d5ray.training.optimizers.gradient_descent import SGD
from d5ray.training.optimizers.optimizer import BLOCK

LEARNING_RATE = 2.0**-10
WAIT_SECONDS = 60.0
NODE = "here"
Array = np.ndarray[Any, np.dtype[np.float32]]


def service_times(sizes: tuple[str, ...], seconds: float, _: int) -> dict[str, dict[str, Times]]:
    """The work of the one process: pushes and bare updates of each size, for `seconds`."""
    return {size: times_of(elements_of(size), seconds) for size in sizes}


def times_of(elements: int, seconds: float) -> dict[str, Times]:
    """Seconds of one push in the shard and of one bare update, in turn, after a check of the update."""
    resolved = ResolvedServers(Servers(), Asynchronous(), Descend(), SGD(LEARNING_RATE))
    secret = Secret.new()
    server = ShardServer(resolved, range(1), secret=secret, node=NODE, host="127.0.0.1")
    client = RemoteServer(
        [server.address], rank=0, elements=elements, dtype="float32", node=NODE, secret=secret,
        seconds=WAIT_SECONDS,
    )  # fmt: skip
    try:
        gradient = client.allocate(elements, "float32")
        gradient[:] = 1
        client.begin(np.zeros(elements, np.float32))
        x, own = np.zeros(elements, np.float32), np.ones(elements, np.float32)
        pushes = 0

        def push(loops: int) -> float:
            nonlocal pushes
            pushes += loops
            before = server.service_ns
            for _ in range(loops):
                client.push(gradient)
            return (server.service_ns - before) * 1e-9 / loops

        sides = {IN_THE_SHARD: push, BARE: timer(lambda: descend(x, own))}
        times = interleaved(sides, seconds)
        client.pull(into=gradient)
        if not (gradient == -LEARNING_RATE * pushes).all():
            raise AgentError(f"{pushes} pushes made {gradient} of zeros: nothing is measured")
        return times
    finally:
        client.close()
        server.close()


def descend(x: Array, gradient: Array) -> None:
    """x ← x − η g, block by block: g and x come from memory once, and x goes there once."""
    for begin in range(0, len(x), BLOCK):
        block = slice(begin, begin + BLOCK)
        x[block] -= LEARNING_RATE * gradient[block]
