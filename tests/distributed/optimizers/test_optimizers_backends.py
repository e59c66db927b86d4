"""Every distributed optimizer does over real communicators what it does over the reference one"""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from d5ray.distributed.communicators import backends
from d5ray.distributed.communicators.communicator import Communicator
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.rendezvous import Rendezvous
from d5ray.distributed.topologies.topology import Ring, Topology
from d5ray.training.optimizers.gradient_descent import Momentum
from tests.distributed.optimizers.test_optimizers import Rule, every_rule
from tests.distributed.quadratic import batches_of, course, noise, quadratics
from tests.together import together

AGENTS, STEPS = 5, 7
_numbers = itertools.count()


@pytest.fixture(scope="module")
def rendezvous() -> Iterator[Rendezvous]:
    made = Rendezvous()
    yield made
    made.close()


@pytest.mark.parametrize("backend", ["shared_memory", "socket"])
@every_rule
def test_a_rule_over_this_backend(make: Callable[[], Rule], backend: str, rendezvous: Rendezvous) -> None:
    """Five agents with momentum, seven steps: only the order of sums may differ."""

    def form(topology: Topology) -> list[Communicator]:
        name = f"rules-{next(_numbers)}"

        def join(rank: int) -> Communicator:
            group = Group(name, 0, rank, topology.agents, rendezvous.address, timeout_seconds=30.0)
            return backends.join(backend, group, topology)

        return together(join, topology.agents)

    problem, batches = quadratics(AGENTS, same_start=True), batches_of(noise(AGENTS, STEPS))
    base = Momentum(0.05, 0.9)
    got = course(make(), base, Ring(AGENTS), problem, batches, form=form)
    expected = course(make(), base, Ring(AGENTS), problem, batches)
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-13)
