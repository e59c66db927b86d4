"""Claims about what a member of a group tells while its transport waits, as that of GPUs does"""

from collections.abc import Iterator

import pytest

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.agreement.watchdog import Watchdog
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.distributed.group.rendezvous import Rendezvous

SUM = Signature("allreduce", "sum", "float32", 4)


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    """That of the second of three members, which are the agents 0, 2 and 5 of a run."""
    rendezvous = Rendezvous()
    membership = Membership(Group("g", 0, 1, 3, rendezvous.address, agents=(0, 2, 5)))
    made = Watchdog(membership, stop=lambda error: None)
    yield made
    made.close()
    membership.leave()
    rendezvous.close()


def test_a_member_says_for_which_agents_it_waits_and_in_what(watchdog: Watchdog) -> None:
    """In a collective for all others, in an exchange for its peers, afterwards for nobody."""
    assert watchdog.waits() == []
    with watchdog.watching(SUM):
        (wait,) = watchdog.waits()
        assert str(wait) == "in allreduce sum of 4 × float32 for ranks 0 and 5" and 0 <= wait.seconds < 10
    with watchdog.exchanging(SUM, [2]):
        assert [each.agents for each in watchdog.waits()] == [(5,)]
    assert watchdog.waits() == []
