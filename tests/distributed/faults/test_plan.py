"""Claims about plans of faults: they are data, say themselves, and refuse what cannot happen"""

import pickle

import pytest

import d5ray as d5
from d5ray.agent.faults import left_after
from d5ray.archive.serialized import deserialized, serialized
from d5ray.errors import ConfigurationError

PLAN = (
    d5.Faults()
    .kill(agent=1, at_step=3)
    .kill("aggregator", at_seconds=1)
    .terminate(server=0, during="recovery")
    .stop(agent=2, at_step=5, seconds=10)
    .stop("driver", at_seconds=0.5, seconds=2)
    .kill(agent=0, during="collective", at_step=7)
    .partition(agents=(0, 1), at_seconds=2, seconds=8)
    .delay(0.1, at_seconds=1, seconds=2)
    .lose(0.05, agents=(1,))
    .fill_disk(at_seconds=1, seconds=1)
    .fill_shared_memory(at_seconds=1)
)


def test_a_plan_is_said_as_it_is_written_and_read_again() -> None:
    """Its text is a program that makes it, and `parse` reads it without running it."""
    assert eval(repr(PLAN), {"Faults": d5.Faults}) == PLAN
    assert d5.Faults.parse(repr(PLAN)) == PLAN
    assert d5.Faults.parse("d5." + repr(PLAN)) == PLAN
    assert d5.Faults.parse(".".join(map(str, PLAN))) == PLAN
    assert d5.Faults.parse("Faults()") == d5.Faults()


def test_a_plan_is_data() -> None:
    """It can be hashed, pickled, and kept without code; a method leaves the plan as it was."""
    before = d5.Faults().kill(agent=1, at_step=3)
    after = before.kill(agent=2, at_step=4)
    assert len(before) == 1 and len(after) == 2 and hash(before) != hash(after)
    assert pickle.loads(pickle.dumps(PLAN)) == PLAN
    assert deserialized(serialized({"faults": PLAN}), "it") == {"faults": PLAN}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kil(agent=1, at_step=3)", "did you mean 'kill'"),
        ("kill(at_step=3)", "happens to one, here to nobody"),
        ("kill(agent=1, server=0, at_seconds=3)", "here to agent=1 and server=0"),
        ("kill('conductor', at_seconds=3)", "victim is 'conductor'"),
        ("kill(agent=1)", "no instant"),
        ("kill(agent=1, at_step=3, at_seconds=2)", "at_step and at_seconds"),
        ("kill(agent=1, at_step=-1)", "at_step is -1"),
        ("kill(agent=True, at_step=1)", "agent is True"),
        ("kill(agent=1, at_seconds=float('nan'))", "cannot be read"),
        ("kill(server=0, at_step=3)", "agents alone have steps"),
        ("kill('aggregator', during='collective')", "a moment of agents"),
        ("kill(agent=1, during='lunch')", "during is 'lunch'"),
        ("stop(agent=1, at_step=3, seconds=0)", "seconds is 0"),
        ("kill(agent=1, at_step=3, seconds=2)", "cannot be read"),
        ("lose(1.5)", "share is 1.5"),
        ("delay(0)", "by_seconds is 0"),
        ("__import__('os').abort()", "there is no fault '__import__'"),
        ("kill(agent=1", "cannot be read"),
    ],
)
def test_a_wrong_fault_is_one_sentence(text: str, said: str) -> None:
    """What was found, and what to write instead."""
    with pytest.raises(ConfigurationError, match="(?s)" + said.replace("(", r"\(")) as caught:
        d5.Faults.parse(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (d5.Faults().kill(agent=4, at_step=1), "names the agent 4"),
        (d5.Faults().kill(server=0, at_seconds=1), "it has no servers"),
        (d5.Faults().partition((0, 1, 2, 3), at_seconds=1), "cuts nothing off"),
        (d5.Faults().partition((5,), at_seconds=1), "names the agent 5"),
        (d5.Faults().kill("aggregator", at_seconds=1), "agents, servers and links alone"),
        (d5.Faults().fill_disk(at_seconds=1), "agents, servers and links alone"),
        (d5.Faults().fill_shared_memory(at_seconds=1), "agents, servers and links alone"),
        (d5.Faults().kill(agent=1, during="collective"), "give at_step or at_seconds"),
        ("kill(agent=1, at_step=3)", "it must be a plan such as"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_before_anything_starts(plan: d5.Faults, said: str) -> None:
    """By the experiment's agents and servers, and by what a simulation has."""
    wanted = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=4)
    with pytest.raises(ConfigurationError, match=said):
        d5.simulate(wanted, faults=plan)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (d5.Faults().kill(agent=4, at_step=1), "names the agent 4"),
        (d5.Faults().partition((0,), at_seconds=1), "join a Ray cluster of several hosts"),
        (d5.Faults().delay(0.1), "tc qdisc add dev eth0 root netem delay 100ms"),
        (d5.Faults().lose(0.05), "tc qdisc add dev eth0 root netem loss 5%"),
        (d5.Faults().fill_disk(at_seconds=1), "mount a small one"),
    ],
)
def test_what_a_real_run_does_not_do_is_refused_before_ray_starts(plan: d5.Faults, said: str) -> None:
    """Above all, no disk is filled that others need."""
    wanted = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=4)
    with pytest.raises(ConfigurationError, match=said):
        d5.launch(wanted, faults=plan)


def test_a_step_beyond_the_training_is_refused() -> None:
    """90 steps: the last one is 89."""
    wanted = d5.Experiment("mlp", "digits", d5.optimizers.SGD(0.1), agents=1, batch_size=16, evaluate=False)
    with (
        d5.simulate(wanted, faults=d5.Faults().stop(agent=0, at_step=90, seconds=1)) as group,
        pytest.raises(ConfigurationError, match="the training has the steps 0 to"),
    ):
        group.train(progress=False)


def test_an_agent_that_is_started_again_does_what_is_left() -> None:
    """A death by plan for every planned one, in the order of the steps; stops before it are over."""
    plan = d5.Faults().kill(agent=1, at_step=9).stop(agent=1, at_step=2, seconds=1).kill(agent=1, at_step=3)
    own = plan.of_agent(1)
    assert left_after(own, 0) == own
    assert [str(fault) for fault in left_after(own, 1)] == ["kill(agent=1, at_step=9)"]
    assert left_after(own, 2) == ()
