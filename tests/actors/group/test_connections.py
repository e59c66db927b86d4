"""Claims about connections that break alone: nobody has died, and the run goes on with all"""

import gc
import threading
import time
from typing import Any

import psutil
import pytest

import d5ray as d5
from d5ray.distributed.group.membership import Membership
from tests.actors.group.test_failures import CASES, experiment
from tests.actors.group.test_stuck import noted


class Slowly(d5.Event):
    """Leaves time in a training for what is to happen to it."""

    def before_step(self, moment: d5.events.Moment) -> None:
        time.sleep(0.02)


def cut(_agent: Any) -> int:
    """Break every connection of this process to the rendezvous, as a router does that forgets them."""
    found = [each for each in gc.get_objects() if isinstance(each, Membership)]
    for each in found:
        each._wire.shut()
    return len(found)


@pytest.mark.full
@pytest.mark.parametrize("on_failure", ["restart", "replace"])
def test_a_connection_that_breaks_alone_costs_no_agent(on_failure: str) -> None:
    """All form a group again from the step that counts: every step is done, with the bits of a quiet run."""
    hashes = []
    for disturbed in (True, False):
        with d5.launch(
            experiment(CASES["allreduce"], on_failure, epochs=3, events=Slowly()), quiet=True
        ) as group:
            if disturbed:
                call = group.agents[1].__ray_call__.options(concurrency_group="control")
                threading.Timer(1.5, lambda call=call: call.remote(cut)).start()
            outcome = group.train(progress=False)
            assert outcome.completed and outcome.step == 3 * group.built.steps_per_epoch
        hashes.append(d5.Run(group.folder).row["parameters_sha256"])
        assert len(noted(group, "connection_lost")) == disturbed
        assert not noted(group, "agent_died")
    assert hashes[0] == hashes[1]
    d5.shutdown()


@pytest.mark.full
def test_who_is_held_for_dead_is_ended_and_forgotten() -> None:
    """Its process ends though it lived, another one takes its place, and one handle an actor is kept."""
    wanted = experiment(CASES["allreduce"], "restart", epochs=3, events=Slowly())
    with d5.launch(wanted, quiet=True) as group:
        before, made = group.places[1].pid, set(group._actors._made)
        threading.Timer(1.5, group._end_actor, (1,)).start()
        assert group.train(progress=False).completed
        assert [each["rank"] for each in noted(group, "agent_died")] == [1]
        assert group.places[1].pid != before and not psutil.pid_exists(before)
        assert set(group._actors._made) == made
    d5.shutdown()
