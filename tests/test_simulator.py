"""Claims about `d5.simulate`: parameters of real agents, times of closed forms, the tables of a run"""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.agent.outcome import Outcome
from d5ray.agent.records import EVALUATION_METRICS, STEP_METRICS
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.errors import AgentError, ConfigurationError
from d5ray.experiment import Experiment
from d5ray.frameworks.torch import from_model
from d5ray.metrics.queries.sql import sql
from d5ray.metrics.record.reader import Run, list_runs
from d5ray.metrics.record.schema import EVENTS, SAMPLES
from d5ray.networks.executors.delayed import DelayedExecutor, Slowed, Virtual
from d5ray.simulated.group import SimulatedGroup
from tests.agents import agents_in_threads
from tests.conftest import python
from tests.distributed.every_optimizer import EVERY
from tests.distributed.quadratic import SIZE, QuadraticExecutor
from tests.together import together

pytestmark = pytest.mark.usefixtures("own_home")

Array = np.ndarray[Any, Any]
DIGITS = d5.datasets.load_dataset("digits")
STEPS = 8
COMPUTE = d5.simulation.ConstantTime(4e-3)
ALPHA, RATE = 1e-3, 1e8  # s and bytes/s: LeNet's 85 kB take about as long as the computation
NETWORK = d5.simulation.UniformLinks(ALPHA, RATE)
NO_NETWORK = d5.simulation.UniformLinks(latency_seconds=0.0, bytes_per_second=1e30)
NS = 1.5e-9  # times are recorded in whole ns


def experiment(**changes: Any) -> Experiment:
    """LeNet on digits, quickly."""
    values: dict[str, Any] = {
        "model": "lenet", "dataset": DIGITS, "optimizer": d5.optimizers.SGD(0.05), "agents": 4,
        "batch_size": 16,
        "seed": 3, "communicator": "shared_memory", "timeout_seconds": 30.0, "evaluate": False,
        "warmup_steps": 0,
    }  # fmt: skip
    return Experiment.from_values(**(values | changes))


def flat(parameters: dict[str, Array]) -> Array:
    return np.concatenate([array.ravel() for array in parameters.values()])


def of_all(group: SimulatedGroup) -> Array:
    """The parameters of all agents (agents, n)."""
    return np.stack([flat(group.parameters(rank)) for rank in range(len(group.agents))])


def measured(group: SimulatedGroup, metric: str) -> Array:
    """(agents, steps)."""
    table = group.metrics().select(["rank", "step", "metric", "value"]).to_pandas()
    return np.asarray(table[table["metric"] == metric].pivot(index="rank", columns="step", values="value"))


def relative(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def allreduce_seconds(
    agents: int, payload_bytes: float, network: d5.simulation.UniformLinks = NETWORK
) -> float:
    """The closed form of the simulated allreduce."""
    log, byte = math.ceil(math.log2(agents)), payload_bytes / network.bytes_per_second
    doubling = log * (network.latency_seconds + byte)
    return min(doubling, 2 * log * network.latency_seconds + 2 * byte * (agents - 1) / agents)


# -- the parameters are those of real agents ---------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_simulated_agents_reach_the_parameters_of_agents_in_threads(name: str) -> None:
    """Every distributed optimizer, eight steps with different data on every agent: the same bits on each.

    A tolerance would not do: where sums differ in the last bit, a ReLU or a maximum may turn that into 1e-6.
    """
    entry = EVERY[name]
    wanted = experiment(
        optimizer=entry.base, distributed=entry.rule, topology=entry.topology, agents=entry.topology.agents
    )
    with d5.simulate(wanted) as group:
        start = of_all(group)
        assert group.train(STEPS, progress=False) == Outcome("completed", STEPS)
        found = of_all(group)
    with agents_in_threads(wanted, DIGITS) as (agents, _):
        together(lambda rank: agents[rank].train(STEPS), len(agents))
        for rank, agent in enumerate(agents):
            assert np.array_equal(found[rank], flat(agent.parameters()))
            assert relative(found[rank], start[rank]) > 1e-3


def test_one_agent_is_simulated_too() -> None:
    """Alone it trains as a real one alone, and moves no bytes."""
    wanted = experiment(agents=1)
    with d5.simulate(wanted, NETWORK, COMPUTE) as group:
        group.train(STEPS, progress=False)
        found = flat(group.parameters())
        assert measured(group, "bytes_sent").tolist() == [[0.0] * STEPS]
        assert measured(group, "step_time") == pytest.approx(np.full((1, STEPS), 4e-3), abs=NS)
    with agents_in_threads(wanted, DIGITS) as ((agent,), _):
        agent.train(STEPS)
        assert np.array_equal(found, flat(agent.parameters()))


def test_training_in_parts_is_training_at_once() -> None:
    """3 + 5 steps give the parameters, losses and times of 8, also with an optimizer that has a past."""
    wanted = experiment(
        optimizer=d5.optimizers.Momentum(0.05, 0.9),
        distributed=d5.optimizers.DPSGD(),
        topology=d5.topologies.Ring(4),
    )
    courses = []
    for parts in ((8,), (3, 5)):
        with d5.simulate(wanted, NETWORK, COMPUTE) as group:
            assert [group.train(steps, progress=False).step for steps in parts] == list(np.cumsum(parts))
            courses.append((of_all(group), measured(group, "loss"), group.seconds))
    (parameters, losses, seconds), (again, losses_again, seconds_again) = courses
    assert np.array_equal(parameters, again) and np.array_equal(losses, losses_again)
    assert seconds == pytest.approx(seconds_again, rel=1e-12)


def test_evaluations_are_those_of_real_agents_and_take_no_virtual_time() -> None:
    """An epoch of 23 steps: every agent's test loss and accuracy as in threads, and no later than without."""
    wanted = experiment(evaluate=True, epochs=1)
    steps = -(-len(DIGITS.train) // 64)
    with d5.simulate(wanted, NETWORK, COMPUTE) as group:
        assert group.train(progress=False).step == steps
        found = {name: measured(group, name) for name in EVALUATION_METRICS}
        seconds = group.seconds
    with d5.simulate(replace(wanted, evaluate=False), NETWORK, COMPUTE) as group:
        group.train(progress=False)
        assert group.seconds == seconds
    with agents_in_threads(wanted, DIGITS) as (agents, sinks):
        together(lambda rank: agents[rank].train(steps), 4)
        for name in ("test_loss", "test_accuracy"):
            np.testing.assert_allclose(found[name][:, 0], [sink.of(name)[0] for sink in sinks], rtol=1e-5)
    assert found["evaluation_time"].tolist() == [[0.0]] * 4


# -- repeatable --------------------------------------------------------------------------------------------


def outcome_of(wanted: Experiment) -> tuple[Array, dict[str, list[dict[str, Any]]], str]:
    """Parameters, rows of samples and events without the run's name, and its hash of the parameters."""
    with d5.simulate(wanted, NETWORK, d5.simulation.LogNormalTime(1e-3, 0.5)) as group:
        group.train(STEPS, progress=False)
        parameters = of_all(group)
    tables = Run(group.folder).tables()
    rows = {name: tables[name].drop_columns(["run_id"]).to_pylist() for name in ("samples", "events")}
    assert len(rows["samples"]) == 4 * STEPS * len(STEP_METRICS)
    return parameters, rows, tables["runs"]["parameters_sha256"][0].as_py()


@pytest.mark.parametrize(
    "rule",
    [
        d5.optimizers.CompressedSGD(d5.compression.ErrorFeedback(d5.compression.RandomK(0.2))),
        d5.optimizers.DPSGD(),
        d5.optimizers.LocalSGD(3),
    ],
    ids=repr,
)
def test_the_same_seed_gives_the_same_run_to_the_last_bit(rule: d5.DistributedOptimizer) -> None:
    """With random times and stragglers: parameters, samples and events are equal; another seed's differ."""
    wanted = experiment(
        distributed=rule,
        topology=d5.topologies.Ring(4),
        slow=(d5.faults.ExponentialSlowdown(1.0), d5.faults.Slowdown(2, 3)),
    )
    parameters, rows, digest = outcome_of(wanted)
    again, rows_again, digest_again = outcome_of(wanted)
    assert np.array_equal(parameters, again) and digest == digest_again
    assert rows == rows_again
    others, other_rows, other_digest = outcome_of(wanted.with_values(seed=4))
    assert not np.array_equal(parameters, others) and digest != other_digest
    assert rows["samples"] != other_rows["samples"]


def test_computation_times_are_drawn_anew_for_every_agent_step_and_seed() -> None:
    """Log-normal times of two seeds: no two are equal, and the longest of a step is the step's time."""

    def times(seed: int) -> Array:
        with d5.simulate(experiment(seed=seed), NO_NETWORK, d5.simulation.LogNormalTime(1e-3, 0.5)) as group:
            group.train(STEPS, progress=False)
            computed = measured(group, "forward_time") + measured(group, "backward_time")
            longest = np.tile(computed.max(axis=0), (4, 1))
            assert measured(group, "step_time") == pytest.approx(longest, abs=3 * NS)
            return computed

    first, second = times(3), times(4)
    assert len(np.unique([first, second])) == 2 * 4 * STEPS
    assert 0.5e-3 < np.median([first, second]) < 2e-3


# -- virtual times -----------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(
    "network",
    [NETWORK, d5.simulation.UniformLinks(1e-6, 1e10), d5.simulation.UniformLinks(0.5, 1e12)],
    ids=repr,
)
@pytest.mark.parametrize("agents", [2, 3, 8])
def test_a_synchronous_step_is_the_computation_and_the_closed_form_of_its_exchange(
    agents: int, network: d5.simulation.UniformLinks
) -> None:
    """Every step of every agent, to the ns; a third of the computation is the forward pass."""
    with d5.simulate(experiment(agents=agents), network, COMPUTE) as group:
        group.train(3, progress=False)
        exchange = allreduce_seconds(agents, group.built.parameter_bytes, network)
        expected = {
            "forward_time": 4e-3 / 3, "backward_time": 4e-3 * 2 / 3, "exchange_time": exchange,
            "step_time": 4e-3 + exchange, "data_time": 0.0, "update_time": 0.0, "record_time": 0.0,
            "samples_per_second": 16 / (4e-3 + exchange),
        }  # fmt: skip
        for metric, value in expected.items():
            found = measured(group, metric)
            assert found == pytest.approx(np.full((agents, 3), value), abs=NS, rel=1e-5), metric


@pytest.mark.parametrize(
    "topology", [d5.topologies.Ring(5), d5.topologies.DirectedRing(4), d5.topologies.Complete(4)], ids=repr
)
def test_a_step_among_neighbours_is_the_computation_and_one_message_from_each(topology: d5.Topology) -> None:
    """D-PSGD among agents with k neighbours each: computation + α + kβn."""
    degree = len(topology.in_neighbors(0, 0))
    with d5.simulate(
        experiment(distributed=d5.optimizers.DPSGD(), topology=topology, agents=None), NETWORK, COMPUTE
    ) as group:
        group.train(3, progress=False)
        expected = 4e-3 + ALPHA + degree * group.built.parameter_bytes / RATE
        assert measured(group, "step_time") == pytest.approx(np.full((topology.agents, 3), expected), abs=NS)


def test_one_slow_agent_makes_every_synchronous_step_as_long_as_its_computation() -> None:
    """Factor 4: four computations, exactly; the others wait for three of them."""
    with d5.simulate(experiment(slow=d5.faults.Slowdown(agent=3, factor=4)), NO_NETWORK, COMPUTE) as group:
        group.train(5, progress=False)
        assert measured(group, "step_time") == pytest.approx(np.full((4, 5), 16e-3), abs=NS)
        waited = measured(group, "exchange_time")
        computed = measured(group, "forward_time") + measured(group, "backward_time")
    assert waited == pytest.approx(np.outer([12e-3, 12e-3, 12e-3, 0], np.ones(5)), abs=NS)
    assert computed == pytest.approx(np.outer([4e-3, 4e-3, 4e-3, 16e-3], np.ones(5)), abs=NS)


def test_random_stragglers_cost_the_longest_of_each_step_or_of_each_period() -> None:
    """Allreduce waits for the slowest of every step, local SGD for the slowest sum of four steps."""
    slow = (d5.faults.ExponentialSlowdown(1.0), d5.faults.HeavyTailedSlowdown(3.0, agent=1))
    wanted = experiment(slow=slow)
    delays = [wanted.straggler_delay(rank) for rank in range(4)]
    computed = np.array([[4e-3 * delay.factor() for _ in range(8)] for delay in delays])  # (agents, steps)
    spent = {}
    for rule in (d5.optimizers.AllreduceSGD(), d5.optimizers.LocalSGD(period=4)):
        with d5.simulate(wanted.with_values(distributed=rule), NO_NETWORK, COMPUTE) as group:
            begin = group.seconds
            group.train(8, progress=False)
            spent[type(rule)] = group.seconds - begin
            found = measured(group, "forward_time") + measured(group, "backward_time")
            assert found == pytest.approx(computed, abs=2 * NS)
    assert spent[d5.optimizers.AllreduceSGD] == pytest.approx(computed.max(axis=0).sum(), rel=1e-9)
    periods = computed.reshape(4, 2, 4).sum(axis=2)  # (agents, periods)
    assert spent[d5.optimizers.LocalSGD] == pytest.approx(periods.max(axis=0).sum(), rel=1e-9)
    assert spent[d5.optimizers.LocalSGD] < spent[d5.optimizers.AllreduceSGD]


def test_a_slow_link_costs_those_who_need_it() -> None:
    """Two racks of two: averaging within takes the rack's latency; among all, twice that and the far one.

    The first mean of each group also asks who leaves parameters out.
    """
    near, far = d5.simulation.UniformLinks(1e-3, 1e30), d5.simulation.UniformLinks(0.1, 1e30)
    rule = d5.optimizers.HierarchicalAveraging(group_size=2, period=1, global_period=3)
    with d5.simulate(
        experiment(distributed=rule), d5.simulation.GroupedLinks(2, near, far), COMPUTE
    ) as group:
        group.train(6, progress=False)
        expected = np.tile([4e-3 + 1e-3, 4e-3 + 1e-3, 4e-3 + 1e-3 + 0.1 + 1e-3], 2)
        expected[[0, 2]] += 1e-3, 2 * 0.1
        assert measured(group, "step_time") == pytest.approx(np.tile(expected, (4, 1)), abs=2 * NS)


BUCKET = 2**13


def overlapped_seconds(network: d5.simulation.UniformLinks) -> float:
    """A step of overlapped allreduce among four: buckets begin when they are there and the wire is free."""
    executor = from_model(
        "lenet", {}, sample_shape=DIGITS.sample_shape, classes=10, loss=experiment().loss, seed=0, threads=1
    )
    ranges = executor.buckets(BUCKET)
    assert len(ranges) > 3
    over = 0.0
    for number, (begin, end) in enumerate(ranges, start=1):
        there = 4e-3 * (1 / 3 + 2 / 3 * number / len(ranges))
        over = max(over, there) + allreduce_seconds(4, 4 * (end - begin), network)
    return over


@pytest.mark.full
@pytest.mark.parametrize("rate", [1e12, 1e9, 1e8, 1e7])
def test_overlapped_allreduce_hides_its_exchange_behind_the_backward_pass(rate: float) -> None:
    """Its virtual step is the pipeline by hand: longer than the computation, shorter than plain allreduce."""
    network = d5.simulation.UniformLinks(1e-6, rate)
    steps = {}
    for rule in (d5.optimizers.AllreduceSGD(), d5.optimizers.OverlappedAllreduceSGD(BUCKET)):
        with d5.simulate(experiment(distributed=rule), network, COMPUTE) as group:
            group.train(3, progress=False)
            found = measured(group, "step_time")
            assert found == pytest.approx(np.full_like(found, found[0, 0]), abs=2 * NS)
            steps[type(rule)] = found[0, 0]
            exposed = measured(group, "exchange_time")[0, 0]
            assert exposed == pytest.approx(found[0, 0] - 4e-3, abs=2 * NS)
    overlapped, plain = steps[d5.optimizers.OverlappedAllreduceSGD], steps[d5.optimizers.AllreduceSGD]
    assert overlapped == pytest.approx(overlapped_seconds(network), abs=1e-8)
    assert overlapped >= 4e-3
    if rate < 1e10:  # beyond that latencies are all that is left
        assert overlapped < plain


def test_waits_are_bounded_in_virtual_time() -> None:
    """A computation of a minute exceeds the others' time-out of 30 s: they lose it; one of 24 s does not."""
    with (
        pytest.raises(AgentError, match=r"nobody answered allreduce within 30 s"),
        d5.simulate(
            experiment(slow=d5.faults.Slowdown(1, 1000)), NETWORK, d5.simulation.ConstantTime(0.06)
        ) as group,
    ):
        group.train(5, progress=False)
    assert group.outcome.status == "peer_lost"
    with d5.simulate(
        experiment(slow=d5.faults.Slowdown(1, 400)), NETWORK, d5.simulation.ConstantTime(0.06)
    ) as group:
        assert group.train(5, progress=False).completed
        assert group.seconds > 5 * 24.0


def test_an_agent_without_samples_takes_no_time_for_them() -> None:
    """65 samples among four agents: in the second step of an epoch three have none, and compute nothing."""
    train = d5.datasets.Split(DIGITS.train.inputs[:65], DIGITS.train.labels[:65])
    wanted = experiment(dataset=replace(DIGITS, train=train), distributed=d5.optimizers.LocalSGD(period=4))
    with d5.simulate(wanted, NO_NETWORK, COMPUTE) as group:
        group.train(4, progress=False)
        computed = measured(group, "forward_time") + measured(group, "backward_time")
        assert measured(group, "samples").sum(axis=0).tolist() == [64, 1, 64, 1]
    assert computed[:, [0, 2]] == pytest.approx(np.full((4, 2), 4e-3), abs=NS)
    assert sorted(computed[:, 1]) == pytest.approx([0.0, 0.0, 0.0, 4e-3], abs=NS)
    assert group.outcome.completed


# -- executors at another pace -----------------------------------------------------------------------------


def quadratic() -> QuadraticExecutor:
    rng = np.random.default_rng(0)
    curvature, centre, start = rng.standard_normal((SIZE, SIZE)), *rng.standard_normal((2, SIZE))
    return QuadraticExecutor(curvature, centre, start)


def test_a_virtual_executor_announces_buckets_at_equal_intervals_of_its_backward_pass() -> None:
    """2 of 6 s forward, then three buckets at 10/3, 14/3 and 6 s, each complete when it is announced."""
    clock, inner, plain = VirtualClock(), quadratic(), quadratic()
    executor = DelayedExecutor(inner, Virtual(lambda: 6.0, clock.sleep))
    ranges = executor.buckets(1)
    samples = np.random.default_rng(1).standard_normal((3, SIZE))
    labels = np.zeros(3, np.int64)
    expected_loss = plain.inference_and_backprop(samples, labels)
    told: list[tuple[float, int, int]] = []

    def on_ready(begin: int, end: int) -> None:
        told.append((clock.seconds, begin, end))
        assert np.array_equal(inner.gradients[begin:end], plain.gradients[begin:end])
        inner.gradients[begin:end] = 0.0  # from now on the callee's

    def step() -> float:
        return executor.inference_and_backprop(samples, labels, on_ready)

    assert clock.run([clock.start(step, "step")]) == [expected_loss]
    assert [(begin, end) for _, begin, end in told] == list(ranges) == [(5, 6), (2, 5), (0, 2)]
    assert [when for when, _, _ in told] == pytest.approx([10 / 3, 14 / 3, 6.0])
    assert (executor.forward_ns, executor.backward_ns) == pytest.approx((2e9, 4e9), abs=2)
    assert not inner.gradients.any()


@pytest.mark.parametrize("announced", [False, True])
def test_a_slowed_executor_takes_a_multiple_of_its_own_time(announced: bool) -> None:
    """Computations of 2, 3 and 7 s take 8, 12 and 28 s with factor 4; buckets come by the end of it."""
    clock, durations = VirtualClock(), [2.0, 3.0, 7.0]
    inner = DelayedExecutor(quadratic(), Virtual(iter(durations).__next__, clock.sleep))
    executor = DelayedExecutor(inner, Slowed(lambda: 4.0, clock.now, clock.sleep))
    ranges, told = executor.buckets(1), []

    def step() -> tuple[float, int]:
        begin, before = clock.seconds, executor.forward_ns + executor.backward_ns
        on_ready = (lambda *bucket: told.append(bucket)) if announced else None
        executor.inference_and_backprop(np.ones((1, SIZE)), np.zeros(1), on_ready)
        return clock.seconds - begin, executor.forward_ns + executor.backward_ns - before

    def steps() -> list[tuple[float, int]]:
        return [step() for _ in durations]

    (found,) = clock.run([clock.start(steps, "steps")])
    assert [seconds for seconds, _ in found] == pytest.approx([8.0, 12.0, 28.0])
    assert [ns for _, ns in found] == pytest.approx([8e9, 12e9, 28e9], abs=5)
    assert told == list(ranges) * 3 * announced


def test_a_slowdown_of_real_agents_stretches_its_computation_and_leaves_its_result() -> None:
    """In threads, factor 4: the pauses are 3 times what computation took, however late the machine wakes.

    The other agent is as it was, and waits; the parameters are those without a slowdown.
    """
    parameters = []
    pauses: list[tuple[float, float]] = []  # as they were asked for, and as they were
    for slow in ((), (d5.faults.Slowdown(agent=1, factor=4),)):
        with agents_in_threads(experiment(agents=2, batch_size=64, slow=slow), DIGITS) as (agents, sinks):
            fast, slowed = (agent.executor for agent in agents)
            if slow:
                assert isinstance(slowed, DelayedExecutor) and not isinstance(fast, DelayedExecutor)
                stretch = slowed._stretch
                assert isinstance(stretch, Slowed)

                def pause(seconds: float, sleep: Callable[[float], None] = stretch._sleep) -> None:
                    begin = time.perf_counter()
                    sleep(seconds)
                    pauses.append((seconds, time.perf_counter() - begin))

                stretch._sleep = pause
            together(lambda rank: agents[rank].train(12), 2)
            parameters.append(flat(agents[0].parameters()))
            took = [sum(sink.of("forward_time")) + sum(sink.of("backward_time")) for sink in sinks]
            waited = sum(sinks[0].of("exchange_time"))
    asked, paused = map(sum, zip(*pauses, strict=True))
    assert isinstance(slowed, DelayedExecutor)
    framework_seconds = (slowed._inner.forward_ns + slowed._inner.backward_ns) * 1e-9
    assert framework_seconds < took[1] - paused and asked > 3 * framework_seconds
    assert asked == pytest.approx(3 * (took[1] - paused), rel=0.1)
    assert waited > took[1] / 2 - took[0]
    assert np.array_equal(parameters[0], parameters[1])


# -- tables ------------------------------------------------------------------------------------------------


def test_a_simulated_run_has_the_tables_of_a_real_one() -> None:
    """The same columns and metrics, one row a metric, step and agent, numbered without a gap."""
    wanted = experiment(evaluate=True, warmup_steps=2)
    with d5.simulate(wanted, NETWORK, COMPUTE) as group:
        group.train(STEPS, progress=False)
        samples = group.metrics()
    with agents_in_threads(wanted, DIGITS) as (agents, sinks):
        together(lambda rank: agents[rank].train(STEPS), 4)
    real = pa.Table.from_batches([batch for sink in sinks for batch in sink.batches], SAMPLES)
    assert samples.schema == real.schema == SAMPLES

    def described(table: pa.Table) -> list[tuple[Any, ...]]:
        """Everything but the times, the numbers, the name of the run, and what was measured."""
        columns = (
            "rank",
            "agent",
            "attempt",
            "level",
            "metric",
            "unit",
            "scope",
            "phase",
            "step",
            "status",
        )
        return sorted(zip(*(table[name].to_pylist() for name in columns), strict=True), key=repr)

    def numbers(table: pa.Table) -> list[tuple[int, int]]:
        """By agent; which row has which depends on when rows were sent, as on a machine that is busy."""
        return sorted(zip(table["rank"].to_pylist(), table["seq"].to_pylist(), strict=True))

    assert described(samples) == described(real)
    rows = samples.num_rows // 4
    assert numbers(samples) == numbers(real) == [(rank, seq) for rank in range(4) for seq in range(rows)]
    assert samples.num_rows == 4 * (STEPS * len(STEP_METRICS) + len(EVALUATION_METRICS))


def test_times_in_the_tables_are_virtual() -> None:
    """Step k of an agent ends after the group was formed and k + 1 steps; the wall's clock began in 1970."""
    with d5.simulate(experiment(), NETWORK, COMPUTE) as group:
        begin = group.seconds
        group.train(STEPS, progress=False)
        step_seconds = 4e-3 + allreduce_seconds(4, group.built.parameter_bytes)
        for row in group.metrics().select(["step", "t_mono", "t_wall"]).to_pylist():
            assert row["t_mono"] == pytest.approx(1e9 * (begin + (row["step"] + 1) * step_seconds), abs=10)
            assert row["t_wall"].value == row["t_mono"]


def test_a_simulated_run_is_kept_and_found_like_a_real_one(tmp_path: Path) -> None:
    """By its name and as the last one, in its folder; SQL reads it; its row says how it ended."""
    with d5.simulate(experiment(name="simulated_lenet"), root=tmp_path) as group:
        assert Run.find(group.run_id, tmp_path).row["status"] == "running"
        group.train(STEPS, progress=False)
        digest = group.agents[0].parameters_sha256()
    run = Run.find("last", tmp_path)
    assert run.name == group.run_id and run.name.startswith("simulated_lenet-")
    row = run.row
    assert (row["status"], row["agents"], row["steps"], row["seed"]) == ("completed", 4, STEPS, 3)
    assert row["rows"] == 4 * STEPS * len(STEP_METRICS) == run.tables()["samples"].num_rows
    assert row["parameters_sha256"] == digest and row["ended"] >= row["started"]
    counted = sql(
        run, "SELECT rank, count(*) AS n FROM samples WHERE metric = 'loss' GROUP BY rank ORDER BY rank"
    )
    assert counted.to_pylist() == [{"rank": rank, "n": STEPS} for rank in range(4)]
    assert sql(run, "SELECT value FROM environment WHERE key = 'communicator'").to_pylist() == [
        {"value": "simulated"}
    ]
    fingerprint = sql(run, "SELECT value FROM environment WHERE key = 'dataset_sha256'").to_pylist()
    assert fingerprint == [{"value": DIGITS.fingerprint}]
    assert run.tables()["events"] == EVENTS.empty_table()
    group.close()  # a second time does nothing
    assert Run.find("last", tmp_path).row == row
    with pytest.raises(AgentError, match="has ended"):
        group.train(1)


# -- how it ends -------------------------------------------------------------------------------------------


class Failing(d5.DistributedOptimizer):
    """Averages gradients until one agent raises at a step."""

    def __init__(self, error: type[BaseException], rank: int, at_step: int) -> None:
        self.error, self.rank, self.at_step = error, rank, at_step

    def step(self, batch: d5.Batch) -> None:
        if (self.communication.rank, batch.step) == (self.rank, self.at_step):
            raise self.error("a mistake of the user's")
        gradient = self.gradient(batch)
        self.communication.allreduce(gradient, "mean")
        self.apply(gradient)


def test_an_agent_that_fails_is_named_and_what_was_measured_is_kept() -> None:
    """Rank 2 at step 3: an AgentError with the user's line, a run that failed, three steps of every agent."""
    with (
        pytest.raises(AgentError) as raised,
        d5.simulate(experiment(distributed=Failing(ZeroDivisionError, rank=2, at_step=3))) as group,
    ):
        group.train(STEPS, progress=False)
    for words in ("TrainingAgent(rank=2) failed at step 3", "a mistake of the user's", "raise self.error"):
        assert words in str(raised.value)
    tables = Run(group.folder).tables()
    row = Run(group.folder).row
    assert row["status"] == "failed" and "TrainingAgent(rank=2) failed at step 3" in row["stop_reason"]
    assert measured(group, "loss").shape == (4, 3)
    ended = {event["rank"]: event["name"] for event in tables["events"].to_pylist()}
    assert ended == {0: "peer_lost", 1: "peer_lost", 2: "failed", 3: "peer_lost"}
    with pytest.raises(AgentError, match="has ended"):
        group.train(1)


def test_a_loss_that_is_no_number_ends_the_run_as_on_real_agents() -> None:
    """A learning rate of a million: status, step and words of the agents in threads; no error is raised."""
    wanted = experiment(optimizer=d5.optimizers.SGD(1e6), distributed=d5.optimizers.LocalSGD(period=4))
    with d5.simulate(wanted) as group:
        outcome = group.train(STEPS, progress=False)
    with agents_in_threads(wanted, DIGITS) as (agents, _):
        real = [o for o in together(lambda rank: agents[rank].train(STEPS), 4) if o.status == "nan_loss"]
    assert outcome.status == "nan_loss" and outcome in real
    row = Run(group.folder).row
    assert (row["status"], row["stop_reason"]) == ("nan_loss", outcome.reason)


def test_ctrl_c_ends_a_simulation_and_is_written_down() -> None:
    """While an agent computes its fifth step: it is raised, and the run says so, after four steps."""
    with (
        pytest.raises(KeyboardInterrupt),
        d5.simulate(experiment(distributed=Failing(KeyboardInterrupt, rank=0, at_step=4))) as group,
    ):
        group.train(STEPS, progress=False)
    row = Run(group.folder).row
    assert (row["status"], row["steps"]) == ("interrupted", 4)


class BadStart(d5.DistributedOptimizer):
    """Fails before the first step, on one agent."""

    def start(self) -> None:
        if self.communication.rank == 1:
            raise RuntimeError("no buffers")

    def step(self, batch: d5.Batch) -> None: ...


def test_an_agent_that_cannot_start_leaves_no_run(own_home: Path) -> None:
    """An AgentError that names it and what it did, and nothing in the folder of the runs."""
    with pytest.raises(AgentError, match=r"TrainingAgent\(rank=1\) failed while its distributed optimizer"):
        d5.simulate(experiment(distributed=BadStart), root=own_home)
    assert list_runs(own_home) == [] and list(own_home.iterdir()) == []


# -- what is refused, and what is not imported ---------------------------------------------------------------


def simulate(*given: Any, **named: Any) -> object:
    return d5.simulate(experiment(), *given, **named)


WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "network as a class": (lambda: simulate(d5.simulation.UniformLinks), "network is .* Links such as"),
    "network as a word": (lambda: simulate("fast"), "network is 'fast'.*UniformLinks"),
    "network and compute swapped": (lambda: simulate(COMPUTE, NETWORK), "network is ConstantTime"),
    "no network": (lambda: simulate(None), "network is None"),
    "compute as a number": (lambda: simulate(compute=0.1), r"compute is 0\.1: .* ConstantTime"),
    "a slow agent that is not there": (
        lambda: experiment(slow=d5.faults.Slowdown(4, 2)),
        "agents are 0 to 3",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_are_refused_before_anything_is_written(case: str) -> None:
    """With what was found and what it must be."""
    make, words = WRONG[case]
    with pytest.raises(ConfigurationError, match=words):
        make()
    assert list_runs() == []


@pytest.mark.parametrize("steps", [0, -1, 1.5, True, "3"], ids=repr)
def test_wrong_numbers_of_steps_are_refused(steps: Any) -> None:
    """Steps and epochs; the group trains on afterwards."""
    with d5.simulate(experiment(agents=2)) as group:
        for wrong in ({"steps": steps}, {"epochs": steps}):
            with pytest.raises(ConfigurationError, match=r"integer of at least 1"):
                group.train(**wrong)
        assert group.train(1, progress=False).step == 1


@pytest.mark.full
def test_a_simulation_imports_no_ray(tmp_path: Path) -> None:
    """In a fresh process: ten steps of four agents, a run on disk, and no module of Ray."""
    code = f"""
import sys
from pathlib import Path
import d5ray as d5
wanted = d5.Experiment(model="lenet", dataset="digits", optimizer=d5.optimizers.SGD(0.1), agents=4)
with d5.simulate(wanted, root=Path({str(tmp_path)!r})) as group:
    print(group.train(10).step)
print([name for name in sys.modules if name.partition(".")[0] == "ray"], group.folder.name)
"""
    done = python("-c", code)
    (run,) = list_runs(tmp_path)
    assert (done.out, done.err) == (f"10\n[] {run.name}\n", "")
    assert run.row["status"] == "completed"
