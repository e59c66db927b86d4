"""Claims about agents that stop and do not die: they are found, named, and handled as the policy says"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray

import d5ray as d5
from d5ray.actors.group.group import TrainingGroup
from d5ray.actors.group.progress_watch import ProgressWatch
from d5ray.actors.group.train_calls import TrainCalls
from d5ray.agent.outcome import Outcome
from d5ray.errors import AgentError
from d5ray.recipes.engine.checking.agreements import agreements
from d5ray.recipes.engine.checking.folder import Folder
from tests.actors.group.test_failures import CASES, driver_events, experiment, processes
from tests.conftest import wait_until
from tests.patience import patience

STUCK_SECONDS = 6.0


@pytest.fixture(scope="module", autouse=True)
def ray_ends() -> Iterator[None]:
    """One embedded Ray for the module's launches, and none afterwards."""
    yield
    d5.shutdown()


@contextmanager
def stopping(group: TrainingGroup, rank: int, after: float, seconds: float | None = None) -> Iterator[None]:
    """SIGSTOP to an agent when it has trained so long; SIGCONT after these seconds, or never."""
    over = threading.Event()

    def run() -> None:
        pid = group.places[rank].pid
        if over.wait(after):
            return
        os.kill(pid, signal.SIGSTOP)
        if seconds is not None:
            over.wait(seconds)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def noted(group: TrainingGroup, name: str) -> list[dict[str, Any]]:
    """The details of the driver's events of this name, with the rank they tell of."""
    rows = [row for row in d5.Run(group.folder).tables()["events"].to_pylist() if row["name"] == name]
    return [json.loads(row["detail"]) | {"rank": row["rank"]} for row in rows if row["agent"] == "driver"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "on_failure"),
    [("allreduce", "restart"), ("allreduce", "continue"), ("AD-PSGD", "restart"), ("ASGD", "continue")],
)
def test_an_agent_that_is_stopped_for_ever_is_killed_and_the_run_goes_on(name: str, on_failure: str) -> None:
    """It is named, and with it who waited; the others end their training, alone or with another one."""
    wanted = experiment(CASES[name], on_failure, stuck_seconds=STUCK_SECONDS, heartbeat_seconds=2.0)
    with d5.launch(wanted, quiet=True) as group:
        with stopping(group, 2, 0.7):
            outcome = group.train(progress=False)
        assert outcome.completed and outcome.step == wanted.epochs * group.built.steps_per_epoch
    of_it = [event for event in driver_events(d5.Run(group.folder).tables()) if event[1] == 2]
    assert of_it[:3] == [("agent_silent", 2), ("agent_stuck", 2), ("agent_died", 2)]
    (stuck,) = noted(group, "agent_stuck")
    assert "TrainingAgent(rank=2) made no progress for " in stuck["reason"]
    assert " waited for it: it did not answer, at step " in stuck["reason"]
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))
    run = d5.Run(group.folder)
    assert not list(agreements(Folder(run, run.row, run.tables())))


@pytest.mark.full
def test_without_a_policy_an_agent_that_is_stopped_ends_the_run_with_its_name() -> None:
    """on_failure='stop': who was stuck, and who waited."""
    wanted = experiment(CASES["allreduce"], "stop", stuck_seconds=STUCK_SECONDS)
    group = d5.launch(wanted, quiet=True)
    with pytest.raises(AgentError) as caught, group, stopping(group, 2, 0.7):
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
    with d5.launch(wanted, quiet=True) as group, stopping(group, 2, 0.7):
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
def test_who_did_nothing_while_others_were_busy_is_not_stuck_when_it_goes_on() -> None:
    """The time since it is asked to train counts, and not the one in which nothing was asked of it."""
    with d5.launch(small(d5.optimizers.AllreduceSGD(), "continue"), quiet=True) as group:
        watch = ProgressWatch(group._plan, group._members, group.aggregator.note)

        def idle() -> None:
            until = time.monotonic() + patience(8 * STUCK_SECONDS)
            while watch.idle_seconds(0) < STUCK_SECONDS:
                assert time.monotonic() < until
                assert watch.look([]) is None  # nobody trains, as while a survivor is waited for
                time.sleep(0.5)

        idle()
        watch.begin([0])
        assert watch.look([0], [0]) is None
        idle()
        found = watch.look([0], [0])
        assert found is not None and found.who == 0  # of which nobody said that it begins


@pytest.mark.full
def test_who_has_come_back_is_not_stuck_while_nobody_takes_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that is busy takes what came back one after the other: those agents do nothing, and may."""
    with d5.launch(small(d5.optimizers.AllreduceSGD(), "continue"), quiet=True) as group:
        watch, looked = group._progress, []

        def look(training: list[int], wanted: list[int], *, lost: bool) -> None:
            looked.append((training, wanted))

        calls = TrainCalls(group._plan, group._members, 4, watch, group._kill, group.aggregator.note)
        calls.pending = {ray.put(Outcome("completed", 4)): 0, ray.put(Outcome("peer_lost", 3)): 1}
        monkeypatch.setattr(ProgressWatch, "look", lambda self, *given, **named: look(*given, **named))
        calls.end_stuck([0, 1])
        calls.pending[group.agents[1].__ray_call__.remote(lambda agent: time.sleep(patience(1.0)))] = 1
        calls.end_stuck([0, 1])
        assert looked == [([], []), ([1], [1])]


@pytest.mark.full
def test_an_agent_that_is_stopped_for_ten_seconds_is_silent_and_heard_again() -> None:
    """Nothing else happens: the same parameters, to the last bit, as when nobody is stopped."""
    wanted = experiment(CASES["allreduce"], "restart", stuck_seconds=60.0, heartbeat_seconds=3.0, epochs=4)
    hashes = []
    for disturbed in (True, False):
        with d5.launch(wanted, quiet=True) as group:
            if disturbed:
                with stopping(group, 2, 0.7, 10.0):
                    assert group.train(progress=False).completed
            else:
                assert group.train(progress=False).completed
        hashes.append(d5.Run(group.folder).row["parameters_sha256"])
        events = [event for event in driver_events(d5.Run(group.folder).tables()) if event[1] == 2]
        assert events == ([("agent_silent", 2), ("agent_heard", 2)] if disturbed else [])
    assert hashes[0] == hashes[1]


def small(rule: d5.DistributedOptimizer, on_failure: str, **settings: Any) -> d5.Experiment:
    """Two agents with a server where the rule has one, and a short `stuck_seconds`."""
    servers = d5.Servers(shards=1) if isinstance(rule, d5.optimizers.ASGD) else None
    return d5.Experiment(
        "mlp", "digits", d5.optimizers.SGD(0.05), rule, agents=2, servers=servers, batch_size=64, seed=3,
        cpus_per_agent=0.25, on_failure=on_failure, stuck_seconds=STUCK_SECONDS, **settings,
    )  # fmt: skip


CLOSING = d5.Faults().stop(agent=1, during="closing")
NEVER = (
    d5.Faults().kill(agent=0, at_step=99).kill(agent=0, during="evaluation").kill("driver", at_seconds=3600)
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "plan"),
    [
        (d5.optimizers.AllreduceSGD(), CLOSING),
        (d5.optimizers.ASGD(), CLOSING.stop(server=0, during="closing")),
    ],
)
def test_who_stands_for_ever_while_the_run_closes_is_ended_and_the_run_is_complete(
    rule: d5.DistributedOptimizer, plan: d5.Faults
) -> None:
    """Long before the time-outs of calls: an event says who was stuck, another one who died so.

    And for every fault that did not happen one that says why.
    """
    group = d5.launch(small(rule, "continue", evaluate=False), faults=plan + NEVER, quiet=True)
    with group:
        group.train(4, progress=False)
        begun = time.monotonic()
    assert time.monotonic() - begun < patience(4 * STUCK_SECONDS)
    (stuck,), (died,) = noted(group, "agent_stuck"), noted(group, "agent_died_at_end")
    assert stuck["rank"] == died["rank"] == 1 and died["reason"] == stuck["reason"]
    assert "while the run waited for it to tell what it came to: it did not answer" in stuck["reason"]
    ended = [*noted(group, "server_stuck"), *noted(group, "server_died_at_end")]
    assert [each["server"] for each in ended] == ["ParameterServer(shard=0)"] * (2 * len(plan) - 2)
    assert [(each["planned"], each["reason"]) for each in noted(group, "fault_missed")] == [
        ("kill(agent=0, at_step=99)", "agent 0 did not get to it at step 99"),
        ("kill(agent=0, during='evaluation')", "no evaluation of it was seen from step 0 on"),
        ("kill('driver', at_seconds=3600)", "the run was over by then"),
    ]
    row = d5.Run(group.folder).row
    assert (row["status"], row["steps"]) == ("completed", 4)
    wait_until(lambda: not processes(group), 10, lambda: str(processes(group)))


@pytest.mark.slow
def test_without_a_policy_who_stands_while_the_run_closes_fails_it_by_its_name() -> None:
    """on_failure='stop': close() raises, and says what the run waited for."""
    group = d5.launch(small(d5.optimizers.AllreduceSGD(), "stop", evaluate=False), faults=CLOSING, quiet=True)
    with pytest.raises(AgentError, match=r"TrainingAgent\(rank=1\) made no progress for \d+ s"), group:
        group.train(4, progress=False)
    assert d5.Run(group.folder).row["status"] == "failed"


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
