"""Claims about `accumulate`: a training by pieces is the training by the large batch, with its exchanges"""

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from tests.agents import agents_in_threads
from tests.beside_kits import cases_of
from tests.distributed.in_numpy import flat
from tests.together import together

pytestmark = pytest.mark.usefixtures("own_home")

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
SAMPLES = 203  # three steps of 2 × 32 and a remainder of 11
SOME = d5.Dataset(
    "some digits",
    d5.datasets.Split(DIGITS.train.inputs[:SAMPLES], DIGITS.train.labels[:SAMPLES]),
    d5.datasets.Split(DIGITS.test.inputs[:20], DIGITS.test.labels[:20]),
    DIGITS.classes,
)
RULES: dict[str, tuple[d5.DistributedOptimizer, d5.Topology]] = {
    "allreduce": (d5.optimizers.AllreduceSGD(), d5.topologies.Complete(2)),
    "overlapped": (d5.optimizers.OverlappedAllreduceSGD(bucket_bytes=2**10), d5.topologies.Complete(2)),
    "sharded": (d5.optimizers.ShardedAllreduceSGD(), d5.topologies.Complete(2)),
    "D-PSGD": (d5.optimizers.DPSGD(), d5.topologies.Ring(4)),
    "ASGD": (d5.optimizers.ASGD(), d5.topologies.Complete(3)),
}


def experiment(**changes: Any) -> Experiment:
    """A small network on some digits, two epochs each of which ends with a remainder."""
    values: dict[str, Any] = {
        "model": "mlp", "model_kwargs": {"hidden": (16,)}, "dataset": SOME, "batch_size": 32, "epochs": 2,
        "optimizer": d5.optimizers.Momentum(0.05, 0.9), "seed": 3, "evaluate": False, "warmup_steps": 0,
        "agents": None,
    }  # fmt: skip
    return Experiment.from_values(**(values | changes))


def simulated(wanted: Experiment) -> tuple[Array, int, float]:
    """The parameters of all agents at the end, the steps, and the messages that were sent."""
    with d5.simulate(wanted) as group:
        outcome = group.train(progress=False)
        found = np.stack([flat(group, rank) for rank in range(len(group.agents))])
        table = group.metrics()
        sent = pc.sum(table.filter(pc.equal(table["metric"], "messages_sent"))["value"]).as_py()
    return found, outcome.step, sent


@pytest.mark.parametrize("rule", RULES)
def test_a_training_by_pieces_is_that_by_the_large_batch(rule: str) -> None:
    """The same parameters after two epochs with remainders, by as many exchanges, under every rule."""
    distributed, topology = RULES[rule]
    given = {"distributed": distributed, "topology": topology}
    large, steps, sent = simulated(experiment(**given))
    found, pieces_steps, pieces_sent = simulated(experiment(batch_size=8, accumulate=4, **given))
    assert (pieces_steps, pieces_sent) == (steps, sent)
    np.testing.assert_allclose(found, large, rtol=0, atol=1e-6)
    small, small_steps, _ = simulated(experiment(batch_size=8, **given))
    assert small_steps > steps
    assert np.abs(small - large).max() > 1e-3


@pytest.mark.parametrize("framework", ["numpy", pytest.param("tensorflow", marks=pytest.mark.full)])
def test_it_is_so_under_every_framework(framework: str) -> None:
    """PyTorch stands above."""
    given = {"executor": framework, "agents": 2}
    large, steps, sent = simulated(experiment(**given))
    found, pieces_steps, pieces_sent = simulated(experiment(batch_size=8, accumulate=4, **given))
    assert (pieces_steps, pieces_sent) == (steps, sent)
    np.testing.assert_allclose(found, large, rtol=0, atol=1e-6)


def test_a_batch_size_that_changes_is_multiplied() -> None:
    """By a schedule a step takes that many times what it says then."""
    large, steps, _ = simulated(experiment(agents=2, batch_size=d5.schedules.Piecewise(16, {1: 32})))
    wanted = experiment(agents=2, batch_size=d5.schedules.Piecewise(4, {1: 8}), accumulate=4)
    found, pieces_steps, _ = simulated(wanted)
    assert pieces_steps == steps
    np.testing.assert_allclose(found, large, rtol=0, atol=1e-6)


def test_agents_in_threads_do_what_simulated_ones_do() -> None:
    """The same bits: real agents add up the pieces in the same order."""
    wanted = experiment(agents=2, batch_size=8, accumulate=4, communicator="shared_memory")
    found, steps, _ = simulated(wanted)
    with agents_in_threads(wanted, SOME) as (agents, _):
        together(lambda rank: agents[rank].train(steps), len(agents))
        for rank, agent in enumerate(agents):
            assert np.array_equal(agent.flat_parameters(), found[rank])


@pytest.mark.full
def test_agents_on_ray_reach_the_same() -> None:
    """Two real agents by pieces, and two by the large batch."""
    reached = []
    for changes in ({"batch_size": 32}, {"batch_size": 8, "accumulate": 4}):
        with d5.launch(experiment(agents=2, **changes), quiet=True) as group:
            assert group.train(progress=False).step == 8
            reached.append(np.concatenate([each.ravel() for each in group.parameters(0).values()]))
    np.testing.assert_allclose(reached[1], reached[0], rtol=0, atol=1e-6)


MICRO_BATCHES = "set Mesh.micro_batches=…., whose gradients"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"accumulate": 0}, "accumulate is 0: it must be an integer of at least 1"),
        ({"accumulate": 2.0}, "accumulate is 2.0: it must be an integer of at least 1"),
        ({"accumulate": 7}, "a step takes 224 samples, but an epoch has 203 to train on: take accumulate=6"),
        *cases_of("parallel", lambda: [({"accumulate": 2, "mesh": d5.Mesh(1, stages=2)}, MICRO_BATCHES)]),
    ],
)
def test_what_cannot_be_accumulated_is_refused(changes: dict[str, Any], said: str) -> None:
    """Before anything starts, with what to do."""
    with pytest.raises(ConfigurationError, match=said):
        experiment(**changes)


def test_an_experiment_that_does_not_accumulate_is_what_it_was() -> None:
    """Its hash is that of an experiment from before; one that does has another."""
    plain = experiment()
    assert "accumulate" not in plain.describe()
    assert plain.hash == experiment(accumulate=1, precision="float32", compile=False).hash
    assert plain.hash != experiment(accumulate=2).hash
