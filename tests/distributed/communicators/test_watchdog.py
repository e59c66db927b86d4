"""Claims about what a member of a group tells while its transport waits, as that of GPUs does"""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from d5ray.distributed.communicators.agreement.call_signature import Signature
from d5ray.distributed.communicators.agreement.watchdog import LOOK_SECONDS, Watchdog
from d5ray.distributed.group.group import Group
from d5ray.distributed.group.membership import Membership
from d5ray.errors import ConfigurationError, PeerLost
from tests.distributed.forming import Former
from tests.patience import patience

SUM = Signature("allreduce", "sum", "float32", 4)


@pytest.fixture
def watchdog(groups: Former) -> Iterator[Watchdog]:
    """That of the second of three members, which are the agents 0, 2 and 5 of a run."""
    membership = Membership(Group("three", 0, 1, 3, groups.rendezvous.address, agents=(0, 2, 5)))
    made = Watchdog(membership)
    yield made
    made.close()
    membership.leave()


def test_a_member_says_for_which_agents_it_waits_and_in_what(watchdog: Watchdog) -> None:
    """In a collective for all others, in an exchange for its peers, afterwards for nobody."""
    assert watchdog.waits() == []
    with watchdog.watching(SUM):
        (wait,) = watchdog.waits()
        assert str(wait) == "in allreduce sum of 4 × float32 for ranks 0 and 5"
    with watchdog.exchanging(SUM, [2]):
        assert [each.agents for each in watchdog.waits()] == [(5,)]
    assert watchdog.waits() == []


def test_a_member_that_tells_late_what_it_calls_is_still_compared(groups: Former) -> None:
    """One compares and finds nobody; the other tells of another call afterwards: both get the error."""
    store = groups.rendezvous.address
    first, second = (Membership(Group("two", 0, rank, 2, store)) for rank in (0, 1))
    watchdog = Watchdog(first)
    with watchdog.watching(SUM):
        assert Signature.unpack(second.take("waits in/1/0")) == SUM  # it has told, and compares
        with suppress(PeerLost):
            second.take("nothing", 3 * LOOK_SECONDS)  # by when it has given up to hear of the other
        second.put("waits in/1/1", SUM._replace(dtype="float64").pack())
        with pytest.raises(ConfigurationError, match=r"rank 0: .*float32; rank 1: .*float64"):
            second.take("nothing", patience(10))
    watchdog.close()
    for member in (first, second):
        member.leave()
