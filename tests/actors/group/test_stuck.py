"""Claims about agents that stop and do not die, and connections that break alone: who is named, who not"""

import gc
import os
import signal
import threading
import time
from typing import Any

import psutil
import pytest

import d5ray as d5
from d5ray.distributed.group.membership import Membership
from d5ray.errors import AgentError
from tests.actors.group.test_failures import CASES, experiment
from tests.actors.group.test_replacing import Pace
from tests.actors.looks import noted, processes
from tests.checked import assert_agreed
from tests.conftest import wait_until
from tests.patience import patience

STUCK_SECONDS = 6.0


def stop(seconds: float | None = None) -> d5.Faults:
    """SIGSTOP to agent 2 in the midst of its training; SIGCONT after these seconds, or never."""
    return d5.Faults().stop(agent=2, at_step=40, seconds=seconds)


@pytest.mark.full
@pytest.mark.parametrize(("name", "on_failure"), [("allreduce", "restart"), ("ASGD", "continue")])
def test_an_agent_that_is_stopped_for_ever_is_killed_and_the_run_goes_on(name: str, on_failure: str) -> None:
    """It is named, and with it who waited; the others end their training, alone or with another one."""
    wanted = experiment(CASES[name], on_failure, stuck_seconds=STUCK_SECONDS, heartbeat_seconds=2.0)
    with d5.launch(wanted, faults=stop(), quiet=True) as group:
        outcome = group.train(progress=False)
        assert outcome.completed and outcome.step == wanted.epochs * group.built.steps_per_epoch
    of_it = [row["name"] for row in noted(group) if row["rank"] == 2]
    assert of_it[:3] == ["agent_silent", "agent_stuck", "agent_died"]
    (stuck,) = noted(group, "agent_stuck")
    assert "TrainingAgent(rank=2) made no progress for " in stuck["reason"]
    assert " waited for it: it did not answer, at step " in stuck["reason"]
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))
    assert_agreed(d5.Run(group.folder))


@pytest.mark.full
def test_without_a_policy_an_agent_that_is_stopped_ends_the_run_with_its_name() -> None:
    """on_failure='stop': who was stuck, and who waited."""
    wanted = experiment(CASES["allreduce"], "stop", stuck_seconds=STUCK_SECONDS)
    group = d5.launch(wanted, faults=stop(), quiet=True)
    with pytest.raises(AgentError) as caught, group:
        group.train(progress=False)
    assert "TrainingAgent(rank=2) made no progress for 6 s while ranks 0, 1 and 3 waited for it" in str(
        caught.value
    )
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))


@pytest.mark.full
def test_where_the_time_out_is_the_shorter_one_it_ends_the_agent_that_is_stopped() -> None:
    """The others give up after `timeout_seconds`, long before `stuck_seconds`, and go on without it."""
    wanted = experiment(
        CASES["allreduce"], "continue", stuck_seconds=300.0, timeout_seconds=min(60.0, patience(5))
    )
    with d5.launch(wanted, faults=stop(), quiet=True) as group:
        assert group.train(progress=False).completed
    (stuck,) = noted(group, "agent_stuck")
    assert stuck["rank"] == 2 and stuck["seconds"] < 200
    assert [each["rank"] for each in noted(group, "agent_died")] == [2]


class Asleep(d5.Event):
    """Sleeps for ever before a step, as a file system that hangs would have it."""

    def __init__(self, agent: int, at_step: int) -> None:
        self.agent, self.at_step = agent, at_step

    def before_step(self, moment: d5.events.Moment) -> None:
        if moment.rank == self.agent and moment.step == self.at_step:
            self.at_step = -1
            time.sleep(3600)


class Busy(d5.Event):
    """Computes for many seconds before a step, where another agent kills itself meanwhile."""

    def __init__(self, agent: int, dies: int, at_step: int, seconds: float) -> None:
        self.agent, self.dies, self.at_step, self.seconds = agent, dies, at_step, seconds

    def before_step(self, moment: d5.events.Moment) -> None:
        if moment.step == self.at_step and moment.agents == 4:
            at_step, self.at_step = self.at_step, -1
            if moment.rank == self.dies:
                time.sleep(1.0)
                os.kill(os.getpid(), signal.SIGKILL)
            until = time.monotonic() + self.seconds
            while moment.rank == self.agent and time.monotonic() < until and moment.step == at_step:
                sum(range(1000))


@pytest.mark.full
def test_an_agent_that_answers_and_does_nothing_is_stuck() -> None:
    """It sleeps for ever before its 30th step: killed and started again, it goes on from there."""
    wanted = experiment(
        CASES["allreduce"], "continue", stuck_seconds=STUCK_SECONDS, events=Asleep(1, 30), epochs=3
    )
    with d5.launch(wanted, quiet=True) as group:
        assert group.train(progress=False).completed
    (stuck,) = noted(group, "agent_stuck")
    assert stuck["rank"] == 1 and stuck["reason"].endswith("it answered, at step 30, where it trains")
    assert sorted(stuck["waits"]) == ["0", "2", "3"]


@pytest.mark.full
def test_a_survivor_that_computes_for_long_notices_a_death_later_and_is_no_dead_one() -> None:
    """Rank 1 computes for three times `stuck_seconds` while rank 2 dies: one death, and the run goes on."""
    wanted = experiment(
        CASES["allreduce"],
        "continue",
        stuck_seconds=STUCK_SECONDS,
        events=Busy(1, 2, 20, 3 * STUCK_SECONDS),
        epochs=3,
    )
    with d5.launch(wanted, quiet=True) as group:
        assert group.train(progress=False).completed
    assert [(each["rank"]) for each in noted(group, "agent_died")] == [2]
    assert not noted(group, "agent_stuck")


@pytest.mark.full
def test_an_agent_that_is_stopped_for_ten_seconds_is_silent_and_heard_again() -> None:
    """Nothing else happens: the same parameters, to the last bit, as when nobody is stopped."""
    wanted = experiment(CASES["allreduce"], "restart", stuck_seconds=60.0, heartbeat_seconds=3.0, epochs=4)
    with d5.launch(wanted, faults=stop(10.0), quiet=True) as group:
        assert group.train(progress=False).completed
    with d5.simulate(wanted) as calm:
        calm.train(progress=False)
    run = d5.Run(group.folder)
    assert run.row["parameters_sha256"] == d5.Run(calm.folder).row["parameters_sha256"]
    assert [row["name"] for row in noted(group) if row["rank"] == 2] == ["agent_silent", "agent_heard"]


def small(rule: d5.DistributedOptimizer, on_failure: str, **settings: Any) -> d5.Experiment:
    """Two agents with a server where the rule has one, and a short `stuck_seconds`."""
    servers = d5.Servers(shards=1) if isinstance(rule, d5.optimizers.ASGD) else None
    return d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.05), rule, agents=2, servers=servers, batch_size=64, seed=3,
        cpus_per_agent=0.25, faults=d5.faults.FaultPolicy(on_failure, 1, -1, STUCK_SECONDS), **settings,
    )  # fmt: skip


CLOSING = d5.Faults().stop(agent=1, during="closing").stop(server=0, during="closing")
NEVER = (
    d5.Faults().kill(agent=0, at_step=99).kill(agent=0, during="evaluation").kill("driver", at_seconds=3600)
)


@pytest.mark.full
def test_who_stands_for_ever_while_the_run_closes_is_ended_and_the_run_is_complete() -> None:
    """Long before the time-outs of calls: an event says who was stuck, another one who died so.

    And for every fault that did not happen one that says why.
    """
    wanted = small(d5.optimizers.ASGD(), "continue", evaluate=False)
    with d5.launch(wanted, faults=CLOSING + NEVER, quiet=True) as group:
        group.train(4, progress=False)
        begun = time.monotonic()
    assert time.monotonic() - begun < patience(4 * STUCK_SECONDS)
    (stuck,), (died,) = noted(group, "agent_stuck"), noted(group, "agent_died_at_end")
    assert stuck["rank"] == died["rank"] == 1 and died["reason"] == stuck["reason"]
    assert "while the run waited for it to tell what it came to: it did not answer" in stuck["reason"]
    ended = [*noted(group, "server_stuck"), *noted(group, "server_died_at_end")]
    assert [each["server"] for each in ended] == ["ParameterServer(shard=0)"] * 2
    assert [(each["planned"], each["reason"]) for each in noted(group, "fault_missed")] == [
        ("kill(agent=0, at_step=99)", "agent 0 did not get to it at step 99"),
        ("kill(agent=0, during='evaluation')", "no evaluation of it was seen from step 0 on"),
        ("kill('driver', at_seconds=3600)", "the run was over by then"),
    ]
    row = d5.Run(group.folder).row
    assert (row["status"], row["steps"]) == ("completed", 4)
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))


class Slow(d5.Event):
    """Computes in the first evaluation of an agent for so many seconds, by rank."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = list(seconds)

    def before_test(self, moment: d5.events.Moment) -> None:
        until, self.seconds[moment.rank] = time.monotonic() + self.seconds[moment.rank], 0.0
        while time.monotonic() < until:
            sum(range(1000))


@pytest.mark.full
def test_who_stands_in_the_last_evaluation_is_started_again_and_who_is_slow_is_not() -> None:
    """An asynchronous training is over; rank 0 computes for twice `stuck_seconds`, and rank 1 stands."""
    wanted = small(d5.optimizers.ASGD(), "restart", epochs=1, events=Slow(2 * STUCK_SECONDS, 1.0))
    plan = d5.Faults().stop(agent=1, at_step=3, during="evaluation")
    with d5.launch(wanted, faults=plan, quiet=True) as group:
        assert group.train(progress=False).completed
    (stuck,) = noted(group, "agent_stuck")
    assert "while the run waited for it to evaluate: it did not answer" in stuck["reason"]
    died = [each["rank"] for each in noted(group, "agent_died")]
    assert died == [stuck["rank"]] == [1]
    samples = d5.Run(group.folder).tables()["samples"].to_pandas()
    assert set(samples[samples.metric == "test_accuracy"]["rank"]) == {0, 1}


def cut(_agent: Any) -> int:
    """Break every connection of this process to the rendezvous, as a router does that forgets them."""
    found = [each for each in gc.get_objects() if isinstance(each, Membership)]
    for each in found:
        each._wire.shut()
    return len(found)


@pytest.mark.full
def test_a_connection_that_breaks_alone_costs_no_agent() -> None:
    """All form a group again from the step that counts: every step is done, with the bits of a quiet run.

    Who is held for dead then is ended though it lives, another one takes its place, and one handle an actor
    is kept.
    """
    wanted, steps = experiment(CASES["allreduce"], "restart", evaluate=False, events=Pace()), 70
    with d5.launch(wanted, quiet=True) as group:
        before, made = group.places[1].pid, set(group._actors._made)
        call = group.agents[1].__ray_call__.options(concurrency_group="control")
        threading.Timer(1.5, lambda: call.remote(cut)).start()
        assert group.train(steps, progress=False).completed and len(noted(group, "connection_lost")) == 1
        assert not noted(group, "agent_died") and group.places[1].pid == before
        threading.Timer(1.0, group._end_actor, (1,)).start()
        outcome = group.train(steps, progress=False)
        assert outcome.completed and outcome.step == 2 * steps
        assert [each["rank"] for each in noted(group, "agent_died")] == [1]
        assert group.places[1].pid != before and not psutil.pid_exists(before)
        assert set(group._actors._made) == made
    with d5.simulate(wanted) as calm:
        calm.train(2 * steps, progress=False)
    hashes = [d5.Run(each.folder).row["parameters_sha256"] for each in (group, calm)]
    assert hashes[0] == hashes[1]
