"""Claims about agents that join late: where they go on, with which parameters, and what counts"""

from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.experiment import Experiment
from d5ray.simulated.group import SimulatedGroup

pytestmark = pytest.mark.usefixtures("own_home")

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
COMPUTE = d5.simulation.ConstantTime(4e-3)
NETWORK = d5.simulation.UniformLinks(latency_seconds=1e-9, bytes_per_second=1e15)  # a step is the computation
STEPS = 40
COMES = 0.102  # s, in the middle of the 26th step
RING = d5.topologies.Ring(4)
RULES: dict[str, tuple[d5.DistributedOptimizer, dict[str, Any]]] = {
    "ASGD": (d5.optimizers.ASGD(), {"servers": d5.Servers(shards=2)}),
    "ASGD in groups": (d5.optimizers.ASGD(), {"servers": d5.Servers(groups=2)}),
    "parameter server": (d5.optimizers.ParameterServerSGD(), {}),
    "stale-synchronous": (d5.optimizers.StaleSynchronousSGD(2), {}),
    "EASGD": (d5.optimizers.EASGD(0.1, 3), {}),
    "AD-PSGD": (d5.optimizers.ADPSGD(), {"topology": RING}),
    "asynchronous gradient push": (d5.optimizers.AsynchronousGradientPush(), {"topology": RING}),
    "overlap SGP": (d5.optimizers.OverlapSGP(1), {"topology": RING}),
    "gossip": (d5.optimizers.RandomWalkGossip(), {"topology": RING}),
}


def experiment(rule: d5.DistributedOptimizer, **changes: Any) -> Experiment:
    """LeNet on digits by four agents, of which the last is late."""
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.05), "distributed": rule,
        "agents": 4,
        "batch_size": 16, "seed": 3, "timeout_seconds": 30.0, "evaluate": False, "warmup_steps": 0,
        "late": d5.faults.Late(agent=3, seconds=COMES),
    }  # fmt: skip
    return Experiment.from_values(**(values | changes))


def simulated(wanted: Experiment) -> SimulatedGroup:
    return d5.simulate(wanted, NETWORK, COMPUTE)


def steps_of(group: SimulatedGroup) -> dict[int, list[int]]:
    """The steps that each agent did."""
    rows = group.metrics().to_pandas().query("metric == 'loss'").sort_values("step")
    return {int(rank): own.step.tolist() for rank, own in rows.groupby("rank")}


def of_all(group: SimulatedGroup) -> Array:
    """The parameters of all agents (agents, n)."""
    return np.stack([agent.flat_parameters() for agent in group.agents])


@pytest.mark.parametrize("name", RULES)
def test_a_late_agent_goes_on_where_the_furthest_is(name: str) -> None:
    """The others do all steps; it does those after 102 ms, in which they have done 25, and ends with them."""
    rule, changes = RULES[name]
    with simulated(experiment(rule, **changes)) as group:
        start = group.agents[0].flat_parameters()
        assert group.train(STEPS, progress=False).completed
        found = steps_of(group)
        assert found == {rank: list(range(STEPS)) for rank in range(3)} | {3: list(range(25, STEPS))}
        parameters = of_all(group)
    moved = np.linalg.norm(parameters - start, axis=1)
    apart = np.linalg.norm(parameters - parameters.mean(axis=0), axis=1)
    assert apart.max() < 0.5 * moved.min()


def test_it_begins_with_the_servers_parameters_and_every_gradient_counts_once() -> None:
    """By the ledger: x = x₀ − η Σ of everybody's gradients, those of the late agent are of 15 steps."""
    pushed: list[tuple[int, Array]] = []

    class Noting(d5.DistributedOptimizer):
        exchange = d5.ExchangeVia.SERVERS

        def step(self, batch: d5.Batch) -> None:
            gradient = self.gradient(batch)
            pushed.append((self.communication.rank, np.asarray(gradient).astype(np.float64)))
            self.server.push_pull(gradient, into=self.x)

        def finish(self) -> None:
            self.server.pull(into=self.x)

    with simulated(experiment(Noting())) as group:
        start = group.agents[0].flat_parameters().astype(np.float64)
        group.train(STEPS, progress=False)
        found = of_all(group)
    assert [sum(rank == who for rank, _ in pushed) for who in range(4)] == [STEPS] * 3 + [STEPS - 25]
    expected = start - 0.05 * sum(gradient for _, gradient in pushed)
    for own in found:
        assert np.linalg.norm(own - expected) < 1e-5 * np.linalg.norm(expected)


def test_a_late_agent_makes_the_same_run_to_the_last_bit() -> None:
    """Twice the same parameters and virtual times."""
    found = []
    for _ in range(2):
        with simulated(experiment(d5.optimizers.ADPSGD(), topology=RING)) as group:
            group.train(STEPS, progress=False)
            found.append((of_all(group), group.seconds))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    assert found[0][1] == found[1][1]


def test_who_comes_after_the_end_trains_with_the_others_the_next_time() -> None:
    """Late by 102 ms, when the others train twice for 80 ms: in the second training, from its 6th step on."""
    with simulated(experiment(d5.optimizers.ASGD())) as group:
        group.train(20, progress=False)
        assert set(steps_of(group)) == {0, 1, 2}
        group.train(20, progress=False)
        assert steps_of(group)[3] == list(range(25, 40))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"late": d5.faults.Late(0, 1.0)}, "brings the first parameters: let another one be late"),
    ({"late": d5.faults.Late(2, 1.0), "servers": d5.Servers(groups=2)}, "the first agent of group 1"),
    ({"late": d5.faults.Late(4, 1.0)}, "the experiment's agents are 0 to 3"),
    ({"late": (d5.faults.Late(3, 1.0), d5.faults.Late(3, 2.0))}, "an agent joins once"),
    ({"late": 3}, r"it must be a tuple such as \(Late\(agent=3, seconds=5\),\)"),
    ({"late": (3,)}, r"it must be a Late\(agent=3, seconds=5\)"),
    ({"distributed": d5.optimizers.AllreduceSGD()}, r"take an optimizer such as ASGD\(\) or ADPSGD\(\)"),
    ({"distributed": d5.optimizers.Hogwild()}, r"take an optimizer such as ASGD\(\) or ADPSGD\(\)"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[str(changes) for changes, _ in WRONG])
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    """When the experiment is written."""
    with pytest.raises(ConfigurationError, match=message):
        experiment(d5.optimizers.ASGD(), **({"distributed": d5.optimizers.ASGD()} | changes))


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), "soon", True], ids=repr)
def test_wrong_seconds_are_refused(seconds: Any) -> None:
    """A finite number of at least 0."""
    with pytest.raises(ConfigurationError, match=r"seconds is .*: it must be a .*number"):
        d5.faults.Late(3, seconds)
