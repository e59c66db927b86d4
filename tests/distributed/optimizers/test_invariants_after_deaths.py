"""Every rule names what it conserves, and conserves it when an agent has died in the midst of a step"""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.agent.training_agent import TrainingAgent
from d5ray.distributed.optimizers.exchange import INVARIANTS, ONE_MODEL
from d5ray.distributed.topologies.survivors import survivors
from d5ray.errors import ConfigurationError
from tests.distributed.every_optimizer import EVERY, SERVERED
from tests.distributed.mortal import DIGITS, Weighted, gradient, weighted
from tests.together import together

AGENTS, ETA, SEED = 4, 0.2, 5
PLAIN = d5.optimizers.SGD(ETA)
LISTED = [getattr(d5.optimizers, name) for name in dir(d5.optimizers)]
Array = np.ndarray[Any, Any]


def rules() -> list[type[d5.DistributedOptimizer]]:
    """All that the namespace has, but those that others derive from."""
    found = [each for each in LISTED if inspect.isclass(each) and issubclass(each, d5.DistributedOptimizer)]
    return [each for each in found if not inspect.isabstract(each)]


def test_every_rule_names_its_invariant_and_is_shown_to_keep_it() -> None:
    """One of those defined, as the guide lists them; here, or with one model in tests of equality."""
    page = (Path(__file__).parents[3] / "docs" / "guide" / "distributed.md").read_text()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in page.splitlines()]
    assert len(rules()) >= 30
    assert {rule.invariant for rule in rules()} == set(INVARIANTS)
    assert all(rule.one_model == (rule.invariant == ONE_MODEL) for rule in rules())
    for name, meaning in INVARIANTS.items():
        own = ", ".join(sorted(f"`{rule.__name__}`" for rule in rules() if rule.invariant == name))
        assert (name, meaning, own) in rows
    shown = {type(rule) for rule in (*NEIGHBOURS.values(), *ONE_SIDED.values())}
    kept = {type(entry.rule) for entry in (*EVERY.values(), *SERVERED.values())} | set(rules())
    missing = {rule for rule in kept - shown if rule.invariant not in (ONE_MODEL, "none")}
    assert missing <= LIKE_OTHERS


def test_an_invariant_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Own has invariant = 'mass ', .* did you mean 'mass'\?"):

        class Own(d5.DistributedOptimizer):
            invariant = "mass "

            def step(self, batch: d5.Batch) -> None:
                pass


NEIGHBOURS: dict[str, d5.DistributedOptimizer] = {
    "D-PSGD": d5.optimizers.DPSGD(),
    "adapt, then combine": d5.optimizers.AdaptThenCombine(),
    "gradient tracking": d5.optimizers.GradientTracking(),
    "exact diffusion": d5.optimizers.ExactDiffusion(),
    "stochastic gradient push": d5.optimizers.StochasticGradientPush(),
    "CHOCO-SGD": d5.optimizers.ChocoSGD(d5.compression.TopK(0.2), gamma=0.4),
}


class Watch(d5.Event):
    """Keeps x and the gradient there, at every step, as float64 by the formula."""

    def __init__(self) -> None:
        self.seen: list[tuple[Array, Array]] = []

    def before_step(self, moment: d5.events.Moment) -> None:
        executor, batch = moment.executor, moment.batch
        assert isinstance(executor, Weighted) and batch is not None
        x = executor.numpy_parameters()
        mean = batch.inputs.reshape(len(batch.inputs), -1).mean(axis=0, dtype=np.float64)
        self.seen.append((x, batch.weight * gradient(executor.weights, x, mean)))


class Struck(Exception):
    """The death of an agent, which leaves its group then."""


def strike(agent: TrainingAgent, exchanges: int) -> None:
    """Let an agent die at one of its exchanges, counted from now on: neither is it done nor are others'."""
    communication, left = agent.connections.communication, iter(range(exchanges))

    def or_die(name: str) -> None:
        own = getattr(communication, name)

        def exchange(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise Struck
            return own(*arguments, **options)

        setattr(communication, name, exchange)

    or_die("_combine")
    or_die("_exchange")


def of(agents: list[TrainingAgent], name: str) -> Array:
    """An attribute of all agents' rules, as (agents, …) in float64."""
    return np.array([np.array(getattr(agent.connections.optimizer, name)) for agent in agents], np.float64)


def models(agents: list[TrainingAgent]) -> Array:
    return of(agents, "x")


def numerators(agents: list[TrainingAgent]) -> Array:
    """u = w z of push-sum."""
    return of(agents, "w") * models(agents)


def check_state(rule: str, agents: list[TrainingAgent]) -> None:
    """What the agents have beside x adds up, or is equal where it must be."""
    if rule == "gradient tracking":
        np.testing.assert_allclose(
            of(agents, "y").sum(0), of(agents, "before").sum(0), rtol=1e-12, atol=1e-12
        )
    elif rule == "exact diffusion":
        np.testing.assert_allclose(of(agents, "x").sum(0), of(agents, "psi").sum(0), rtol=1e-12, atol=1e-12)
    elif rule == "stochastic gradient push":
        assert of(agents, "w").sum() == pytest.approx(len(agents), rel=1e-14)
    elif rule == "CHOCO-SGD":
        for agent in agents:
            for rank, replica in agent.connections.optimizer.replicas.items():  # type: ignore[attr-defined]
                other = agents[rank].connections.optimizer.replicas[rank]
                assert np.array_equal(replica, other)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("on_failure", ["continue", "restart"])
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_what_is_conserved_adds_up_after_a_death(
    name: str, on_failure: str, seed: int, regrouped: Any
) -> None:
    """At once, and after every step from then on, whose updates are all that moves the mean."""
    rng = np.random.default_rng([seed, list(NEIGHBOURS).index(name)])
    dead, directed = int(rng.integers(AGENTS)), name == "stochastic gradient push"
    topology = d5.topologies.DirectedRing(AGENTS) if directed else d5.topologies.Ring(AGENTS)
    wanted = d5.Experiment(
        model=weighted, model_kwargs={"elements": 60}, executor=weighted, dataset=DIGITS, optimizer=PLAIN,
        distributed=NEIGHBOURS[name], topology=topology, agents=AGENTS, batch_size=8, seed=SEED,
        evaluate=False, faults=d5.faults.FaultPolicy(on_failure), communicator="socket", timeout_seconds=30.0,
        events=Watch(),
    )  # fmt: skip
    group = regrouped(wanted)
    group.train(2)
    strike(group.agents[dead], int(rng.integers(1, 12)))
    outcomes = together(lambda rank: group.agents[rank].train(50), AGENTS)
    assert {rank for rank, each in enumerate(outcomes) if each.status == "failed"} == {dead}
    assert {each.status for rank, each in enumerate(outcomes) if rank != dead} == {"peer_lost"}
    agents = list(group.agents)
    if on_failure == "restart":
        group.agents[dead] = agents[dead] = group.made(dead)
    else:
        del agents[dead]
    group.rejoin(agents, survivors(topology, {dead} if on_failure == "continue" else ()))
    check_state(name, agents)
    held = numerators if directed else models
    for _ in range(4):
        before = held(agents)
        assert all(each.completed for each in together(lambda at: agents[at].train(1), len(agents)))
        moved = np.array([agent.events._events[0].seen[-1][1] for agent in agents])
        expected = before.mean(0) - ETA * moved.mean(0)
        np.testing.assert_allclose(held(agents).mean(0), expected, rtol=1e-12, atol=1e-13)
        check_state(name, agents)


ONE_SIDED: dict[str, d5.DistributedOptimizer] = {
    "AD-PSGD": d5.optimizers.ADPSGD(),
    "push-sum": d5.optimizers.AsynchronousGradientPush(),
    "overlap SGP": d5.optimizers.OverlapSGP(1),
    "random walk": d5.optimizers.RandomWalkGossip(),
    "Hogwild": d5.optimizers.Hogwild(),
    "ASGD": d5.optimizers.ASGD(),
    "EASGD": d5.optimizers.EASGD(0.2, 2),
}
LIKE_OTHERS = {  # their servers book pushes as ASGD's do: see test_server_optimizers.py
    d5.optimizers.AsynchronousLocalSGD, d5.optimizers.AsynchronousDiLoCo, d5.optimizers.Downpour,
    d5.optimizers.ParameterServerSGD, d5.optimizers.StaleSynchronousSGD, d5.optimizers.StalenessAwareSGD,
    d5.optimizers.DelayCompensatedASGD, d5.optimizers.SynchronousEASGD,
}  # fmt: skip
RUNNING: dict[int, TrainingAgent] = {}


class Books(d5.Event):
    """Σ g over this agent's steps, and Σ w g where the rule has a w: of x, of u."""

    def __init__(self) -> None:
        self.sum: Any = 0.0
        self.steps = 0

    def before_step(self, moment: d5.events.Moment) -> None:
        w = getattr(RUNNING[moment.rank].connections.optimizer, "w", None)
        self.w = 1.0 if w is None else float(w[0])

    def after_step(self, moment: d5.events.Moment) -> None:
        self.sum = self.sum + self.w * np.array(moment.executor.gradients)
        self.steps += 1


def conserved(name: str, agents: list[TrainingAgent]) -> Array:
    """What only the updates of these agents change, from their own state."""
    found: Array
    if name in ("push-sum", "overlap SGP"):
        found = numerators(agents).sum(0)
    elif name in ("ASGD", "Hogwild"):
        found = of(agents, "x")[0]
    elif name == "EASGD":  # after an evaluation x is the centre
        found = of(agents, "explored").sum(0) + of(agents, "x")[0]
    else:
        found = of(agents, "x").sum(0)
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ONE_SIDED)
def test_what_is_conserved_without_waiting_is_so_after_a_death(name: str, seed: int) -> None:
    """From a death at a drawn instant on, Σ changes by −η times the gradients of those left."""
    rng = np.random.default_rng([seed, list(ONE_SIDED).index(name)])
    rule = ONE_SIDED[name]
    wanted = d5.Experiment(
        model=weighted, model_kwargs={"elements": 60}, executor=weighted, dataset=DIGITS, optimizer=PLAIN,
        distributed=rule, topology=d5.topologies.Complete(AGENTS), agents=AGENTS, batch_size=8, seed=SEED,
        evaluate=False, faults=d5.faults.FaultPolicy("continue"), events=Books(),
        slow=d5.faults.Slowdown(agent=int(rng.integers(AGENTS)), factor=3),
    )  # fmt: skip
    death = d5.faults.Failure(int(rng.integers(AGENTS)), float(rng.uniform(0.002, 0.009)))
    with d5.simulate(wanted, compute=d5.simulation.ConstantTime(1e-3), failures=[death]) as group:
        RUNNING.update(enumerate(group.agents))
        assert group.train(10, progress=False).completed
        left = [group.agents[rank] for rank in group.left]
        assert len(left) == AGENTS - 1
        books: list[Any] = [agent.events._events[0] for agent in left]
        before, moved = conserved(name, left), sum(each.sum for each in books)
        mass = of(left, "w").sum() if hasattr(rule, "mix") else 0.0
        assert group.train(10, progress=False).completed
        moved = sum(each.sum for each in books) - moved
        assert {each.steps for each in books} == {20}
        if name == "random walk":
            ages = of(left, "age")
            assert ages.min() >= 21 and ages.max() <= 1 + 20 * AGENTS
            return
        np.testing.assert_allclose(conserved(name, left), before - ETA * moved, rtol=1e-12, atol=1e-12)
        if hasattr(rule, "mix"):
            assert 0 < mass < AGENTS and of(left, "w").sum() == pytest.approx(mass, rel=1e-14)
        if name == "Hogwild":
            assert len({agent.flat_parameters().tobytes() for agent in left}) == 1
