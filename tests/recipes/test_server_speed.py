"""Claims about comparing parameter servers: every push counts once, all are timed alike, service is timed."""

import numpy as np
import pytest

import d5ray as d5
from benchmarks.server_speed.job import check_parameters
from benchmarks.server_speed.pushing_agents import (
    FEWEST,
    LEARNING_RATE,
    DocumentedServer,
    DocumentedWorker,
    Pushed,
    Pusher,
)
from benchmarks.server_speed.service import times_of
from d5ray.distributed.parameter_server.resolved_servers import ResolvedServers
from d5ray.distributed.parameter_server.server_rules import Descend
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.distributed.parameter_server.shard_service import ShardServer
from d5ray.distributed.wire.secret import Secret
from d5ray.errors import AgentError
from d5ray.kits.laboratory.comparisons.timing import FEWEST as FEWEST_VALUES
from tests.together import together

# -- whoever pushes ----------------------------------------------------------------------------------------


def test_agents_of_d5rays_server_push_and_pull_as_often_as_they_say() -> None:
    """Two agents in threads, two shards: x = −η (1 n₀ + 2 n₁), pulled by both."""
    resolved = ResolvedServers(
        Servers(shards=2), d5.servers.Asynchronous(), Descend(), d5.optimizers.SGD(LEARNING_RATE)
    )
    secret = Secret.new()
    servers = [
        ShardServer(resolved, range(2), secret=secret, node="here", host="127.0.0.1") for _ in range(2)
    ]
    agents = [Pusher(rank) for rank in range(2)]
    for agent in agents:
        agent.join([server.address for server in servers], "here", secret, 1000)
    done = together(lambda rank: agents[rank].update(0.02), 2)
    expected = -LEARNING_RATE * (done[0].updates + 2 * done[1].updates)
    assert [agent.leave() for agent in agents] == [(expected, expected)] * 2
    assert all(own.updates >= FEWEST and own.seconds >= 0.02 for own in done)
    for server in servers:
        server.close()


def test_the_documented_server_applies_the_sum_of_the_gradients_that_come_together() -> None:
    """−η (g₀ + g₁) of different gradients; a worker takes the weights over and gives its own gradient."""
    server, workers = DocumentedServer(), [DocumentedWorker(rank) for rank in range(2)]
    server.begin(5)
    for worker in workers:
        worker.begin(5)
    gradients = [worker.compute_gradients(np.full(5, 7, np.float32)) for worker in workers]
    assert [worker.weights.tolist() for worker in workers] == [[7.0] * 5] * 2
    weights = server.apply_gradients(*gradients)
    np.testing.assert_array_equal(weights, np.full(5, -LEARNING_RATE * 3, np.float32))
    np.testing.assert_array_equal(server.apply_gradients(gradients[0]), np.full(5, -LEARNING_RATE * 4))
    assert server.get_weights() is weights


@pytest.mark.parametrize("pushes", [(10, 4), (9, 5), (11, 5)])
def test_a_server_that_lost_or_doubled_a_push_is_not_timed(pushes: tuple[int, int]) -> None:
    """10 pushes of rank 0 and 5 of rank 1 make −20 η; any other number is refused."""
    done = [[Pushed(3, 0.1), Pushed(3, 0.1)], [Pushed(7, 1.0), Pushed(2, 1.0)]]
    right = -LEARNING_RATE * 20
    check_parameters("x[2]", [(right, right)], done, LEARNING_RATE)
    wrong = -LEARNING_RATE * (pushes[0] + 2 * pushes[1])
    with pytest.raises(AgentError, match=r"x\[2\] ends with .* instead of -0\.01953.*: nothing is measured"):
        check_parameters("x[2]", [(right, right), (wrong, right)], done, LEARNING_RATE)


# -- the service of one push -------------------------------------------------------------------------------


def test_the_service_of_a_push_takes_about_as_long_as_its_update() -> None:
    """At 4 MB, where arithmetic outweighs what surrounds it: at their best."""
    served, bare = times_of(1_000_000, seconds=0.3).values()
    assert served.loops >= 1 and bare.loops >= 1
    assert len(served.seconds) == len(bare.seconds) >= FEWEST_VALUES
    assert 0.4 < min(served.seconds) / min(bare.seconds) < 4
