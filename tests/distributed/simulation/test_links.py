"""Claims about the simulated costs: links and wires, computation times, and stragglers by plan"""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.distributed.simulation.compute import ComputeTime
from d5ray.distributed.simulation.links import Links, Wires
from d5ray.errors import ConfigurationError
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES
from d5ray.training.stragglers import StragglerDelay, StragglerModel
from tests.agents import Rows

ALPHA, RATE = 0.25, 64.0  # s and bytes/s: sums of such costs are exact in float64
BETA = 1 / RATE
SLOW = d5.simulation.UniformLinks(ALPHA, RATE)
FAST = d5.simulation.UniformLinks(1 / 32, 1024.0)
PLAIN: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1)}
NO_COSTS: list[Any] = [-1.0, math.nan, math.inf, -math.inf, True, "1e-3", None, [1.0]]


# -- links -----------------------------------------------------------------------------------------------


def test_uniform_links_cost_the_same_everywhere() -> None:
    """α is the latency and β the inverse of the bandwidth, of every pair and of the slowest among any."""
    for source, target in ((0, 1), (5, 3), (100, 7)):
        assert SLOW.latency(source, target) == ALPHA
        assert SLOW.seconds_per_byte(source, target) == BETA
    assert SLOW.slowest(range(9)) == (ALPHA, BETA)
    assert (
        d5.simulation.UniformLinks().latency(0, 1),
        1 / d5.simulation.UniformLinks().seconds_per_byte(0, 1),
    ) == (50e-6, 1.25e9)
    assert d5.simulation.UniformLinks(latency_seconds=0).latency(0, 1) == 0.0


def test_grouped_links_cost_by_who_is_in_whose_group() -> None:
    """Racks of three: every pair of eight nodes against rank // 3, both ways."""
    links = d5.simulation.GroupedLinks(size=3, within=FAST, between=SLOW)
    racks = [[0, 1, 2], [3, 4, 5], [6, 7]]
    for source in range(8):
        for target in range(8):
            expected = FAST if any({source, target} <= set(rack) for rack in racks) else SLOW
            assert links.latency(source, target) == expected.latency_seconds
            assert links.seconds_per_byte(source, target) == 1 / expected.bytes_per_second


@pytest.mark.parametrize("nodes", [[0, 1, 2], [4, 3], range(8), [0, 2, 7], [5, 1, 4], [1]], ids=str)
def test_the_slowest_of_grouped_links_is_the_largest_of_all_pairs(nodes: list[int]) -> None:
    """Where the links between racks are the slow ones, as they are; one node alone costs nothing."""
    links = d5.simulation.GroupedLinks(size=3, within=FAST, between=SLOW)
    pairs = [(i, j) for i in nodes for j in nodes if i != j]
    alpha = max((links.latency(*pair) for pair in pairs), default=0.0)
    beta = max((links.seconds_per_byte(*pair) for pair in pairs), default=0.0)
    assert links.slowest(nodes) == (alpha, beta)


@pytest.mark.parametrize("wrong", NO_COSTS, ids=repr)
def test_wrong_costs_of_links_are_refused(wrong: Any) -> None:
    """What is no finite number of at least 0 (a bandwidth: greater than 0) is named, with the argument."""
    with pytest.raises(ConfigurationError, match=r"^latency_seconds is .* finite number, at least 0"):
        d5.simulation.UniformLinks(latency_seconds=wrong)
    with pytest.raises(ConfigurationError, match=r"^bytes_per_second is .* finite number, greater than 0"):
        d5.simulation.UniformLinks(bytes_per_second=wrong)
    with pytest.raises(ConfigurationError, match="bytes_per_second is 0"):
        d5.simulation.UniformLinks(bytes_per_second=0)


@pytest.mark.parametrize("wrong", [0, -2, 2.0, True, "2", None], ids=repr)
def test_wrong_groups_of_links_are_refused(wrong: Any) -> None:
    """A size that is no integer of at least 1, and links that are none."""
    with pytest.raises(ConfigurationError, match=r"^size is .* integer of at least 1"):
        d5.simulation.GroupedLinks(size=wrong, within=FAST, between=SLOW)
    with pytest.raises(ConfigurationError, match=r"^within is .* UniformLinks"):
        d5.simulation.GroupedLinks(size=2, within=wrong, between=SLOW)
    with pytest.raises(ConfigurationError, match=r"^between is .* UniformLinks"):
        d5.simulation.GroupedLinks(size=2, within=FAST, between=wrong)


def test_links_are_data() -> None:
    """Equal where their values are, hashable, and frozen."""
    assert d5.simulation.UniformLinks(ALPHA, RATE) == SLOW != FAST
    assert (
        len({SLOW, d5.simulation.UniformLinks(ALPHA, RATE), d5.simulation.GroupedLinks(2, FAST, SLOW)}) == 2
    )
    with pytest.raises(FrozenInstanceError):
        SLOW.latency_seconds = 1.0  # type: ignore[misc]


# -- wires -----------------------------------------------------------------------------------------------

Message = tuple[int, int, int, float]  # from, to, bytes, and when it is given to the sender


def arrivals(links: Links, *messages: Message, wires: Wires | None = None) -> list[float]:
    """When each of these messages, in the order of their times, has arrived."""
    clock, wires = VirtualClock(), wires or Wires(links)
    found: dict[int, float] = {}

    def agent(number: int, source: int, target: int, size: int, when: float) -> None:
        clock.sleep(when)
        arrived = clock.event()
        wires.send(clock, source, target, size, arrived.set)
        arrived.wait()
        found[number] = clock.seconds

    clock.run([clock.start(partial(agent, i, *message), f"{i}") for i, message in enumerate(messages)])
    return [found[number] for number in range(len(messages))]


def test_a_message_alone_takes_latency_and_time_per_byte() -> None:
    """α + βn, whenever it is sent, and both ways; an empty one takes α."""
    for begin in (0.0, 1000.0):
        for size in (0, 1, 16, 4096):
            assert arrivals(SLOW, (0, 1, size, begin)) == [begin + ALPHA + BETA * size]
            assert arrivals(SLOW, (1, 0, size, begin)) == [begin + ALPHA + BETA * size]


def test_a_sender_sends_one_after_the_other() -> None:
    """To three nodes at once: the k-th message leaves when those before it have left, βn after βn."""
    size = 32
    later = 2.0 + 3 * BETA * size + 5.0  # when the wire is free again
    messages = [(0, target, size, 2.0) for target in (1, 2, 3)]
    expected = [2.0 + ALPHA + k * BETA * size for k in (1, 2, 3)]
    assert arrivals(SLOW, *messages, (0, 1, size, later)) == [*expected, later + ALPHA + BETA * size]


@pytest.mark.parametrize("agents", [1, 2, 7])
def test_agents_that_send_to_one_node_take_latency_and_all_their_bytes(agents: int) -> None:
    """P agents, n bytes each, at the same time: α + P·β·n until the last has arrived, one every βn."""
    size = 64
    found = arrivals(SLOW, *((agent, agents, size, 0.0) for agent in range(agents)))
    assert found == [ALPHA + k * BETA * size for k in range(1, agents + 1)]


def test_different_links_do_not_disturb_one_another() -> None:
    """On a directed ring everyone sends to the next at once: all arrive after α + βn."""
    assert set(arrivals(SLOW, *((i, (i + 1) % 5, 64, 0.0) for i in range(5)))) == {ALPHA + BETA * 64}


def test_both_ways_of_a_ring_take_two_messages() -> None:
    """Everyone sends to the next, then to the one before: they arrive after α + βn and α + 2βn.

    A node receives what reaches it first, though another message to it, which leaves later, was given first.
    """
    messages = [(i, (i + step) % 5, 64, 0.0) for i in range(5) for step in (1, -1)]
    assert arrivals(SLOW, *messages) == [ALPHA + BETA * 64, ALPHA + 2 * BETA * 64] * 5


def test_arrivals_by_hand() -> None:
    """Six messages of unequal length among three nodes, α = ¼ s and 64 bytes a second.

    given  from → to  bytes  takes  leaves  reaches  begins to arrive  has arrived
    0.0    0 → 2         64  1.0    0.0     0.25     0.25              1.25
    0.0    1 → 2         32  0.5    0.0     0.25     1.25 (2 is busy)  1.75
    0.25   0 → 1         16  0.25   1.0     1.25     1.25              1.5
    0.25   0 → 2         16  0.25   1.25    1.5      2.0 (2 is busy)   2.25
    0.75   1 → 2         16  0.25   0.75    1.0      1.75 (2 is busy)  2.0
    3.0    2 → 0         96  1.5    3.0     3.25     3.25              4.75
    """
    wires = Wires(SLOW)
    given = [
        (0, 2, 64, 0.0), (1, 2, 32, 0.0), (0, 1, 16, 0.25), (0, 2, 16, 0.25), (1, 2, 16, 0.75),
        (2, 0, 96, 3.0),
    ]  # fmt: skip
    assert arrivals(SLOW, *given, wires=wires) == [1.25, 1.75, 1.5, 2.25, 2.0, 4.75]
    assert wires.carried == {(0, 2): 80, (1, 2): 48, (0, 1): 16, (2, 0): 96}


def test_a_message_to_oneself_costs_nothing() -> None:
    """It arrives at once, is not carried, and holds nobody up."""
    wires = Wires(SLOW)
    assert arrivals(SLOW, (1, 1, 10**9, 3.0), (1, 2, 64, 3.0), wires=wires) == [3.0, 3.0 + ALPHA + 1.0]
    assert wires.carried == {(1, 2): 64}


def test_wires_cost_by_the_links_they_are_on() -> None:
    """Within a group 64 bytes take 1/32 + 1/16 s, between groups 1/4 + 1 s.

    A message from afar does not hold up one from nearby that was given later and is there first.
    """
    links = d5.simulation.GroupedLinks(size=2, within=FAST, between=SLOW)
    assert arrivals(links, (0, 1, 64, 0.0)) == [1 / 32 + 1 / 16]
    assert arrivals(links, (2, 4, 64, 0.0)) == [1 / 4 + 1]
    assert arrivals(links, (2, 0, 64, 0.0), (1, 0, 64, 1 / 8)) == [1 / 4 + 1, 1 / 8 + 1 / 32 + 1 / 16]


# -- computation -----------------------------------------------------------------------------------------


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draws(time: ComputeTime, count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    own = rng(seed)
    return np.array([time.seconds(own) for _ in range(count)])


def test_a_constant_time_is_constant() -> None:
    """Whatever the generator."""
    assert set(draws(d5.simulation.ConstantTime(0.02), 10)) == {0.02}
    assert d5.simulation.ConstantTime() == d5.simulation.ConstantTime(1e-3)


def test_log_normal_times_have_the_median_and_the_spread_that_they_name() -> None:
    """Of 20,000 draws: the median within 1 %, σ of the logarithms too, the mean median · exp(σ²/2)."""
    found = draws(d5.simulation.LogNormalTime(median_seconds=0.02, sigma=0.5), 20_000)
    assert np.median(found) == pytest.approx(0.02, rel=0.02)
    assert np.log(found).std() == pytest.approx(0.5, rel=0.02)
    assert found.mean() == pytest.approx(0.02 * math.exp(0.125), rel=0.02)
    assert found.min() > 0


def test_log_normal_times_are_the_formula_on_the_agents_own_generator() -> None:
    """median · exp(σ z) with z of the generator: equal seeds give equal times, others others."""
    time = d5.simulation.LogNormalTime(0.01, 0.3)
    assert draws(time, 50, seed=4).tolist() == draws(time, 50, seed=4).tolist()
    assert draws(time, 50, seed=4).tolist() != draws(time, 50, seed=5).tolist()
    np.testing.assert_allclose(draws(time, 50, 4), 0.01 * np.exp(0.3 * rng(4).standard_normal(50)))
    assert set(draws(d5.simulation.LogNormalTime(0.01, sigma=0.0), 5)) == {0.01}


def run_tables(steps: list[tuple[str, float, float]]) -> dict[str, Any]:
    """The tables of a run whose steps took these (phase, forward, backward) seconds."""
    rows = Rows()
    recorder = Recorder(
        run_id="r", agent="a", rank=0, node="n", send=rows.samples, send_events=rows.events
    )  # fmt: skip
    frame = recorder.frame(("forward_time", "step_time", "backward_time"))
    for step, (phase, forward, backward) in enumerate(steps):
        frame.append(step, 0, phase, (forward, 100.0, backward))
    recorder.flush()
    return {
        "samples": pa.Table.from_batches(rows.batches, SAMPLES),
        "events": EVENTS.empty_table(),
    }


def test_measured_times_are_those_of_a_runs_steps_after_the_warm_up() -> None:
    """Forward plus backward of each step, but those without samples; drawn from them alike, nothing else."""
    steps = [("warmup", 9.0, 9.0), ("train", 1.0, 2.0), ("train", 2.0, 4.5), ("train", 0.0, 0.0)]
    tables = run_tables([*steps, ("train", 1.0, 1.0)])
    time = d5.simulation.MeasuredTime.of(tables)
    assert time == d5.simulation.MeasuredTime((3.0, 6.5, 2.0))
    found = draws(time, 3000)
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [2.0, 3.0, 6.5]
    assert counts.min() > 900 and counts.max() < 1100  # of 1,000 each, with a deviation of 26
    assert draws(time, 3000).tolist() == found.tolist()


def test_a_run_without_times_after_its_warm_up_gives_none() -> None:
    """Steps of the warm-up alone, or none."""
    for steps in ([("warmup", 1.0, 2.0)], []):
        with pytest.raises(ConfigurationError, match="no forward and backward times after its warm-up"):
            d5.simulation.MeasuredTime.of(run_tables(steps))


WRONG_TIMES: list[tuple[Callable[[Any], Any], str]] = [
    (d5.simulation.ConstantTime, "duration_seconds"),
    (d5.simulation.LogNormalTime, "median_seconds"),
    (lambda wrong: d5.simulation.MeasuredTime((1.0, wrong)), "durations_seconds"),
]


@pytest.mark.parametrize("wrong", [0, *NO_COSTS], ids=repr)
@pytest.mark.parametrize(("make", "name"), WRONG_TIMES, ids=[name for _, name in WRONG_TIMES])
def test_wrong_times_are_refused(make: Callable[[Any], Any], name: str, wrong: Any) -> None:
    """A computation that takes no time, or none that is a number."""
    with pytest.raises(ConfigurationError, match=rf"^{name} is .* finite number, greater than 0"):
        make(wrong)


@pytest.mark.parametrize("wrong", NO_COSTS, ids=repr)
def test_a_wrong_spread_is_refused(wrong: Any) -> None:
    """0 is fine, and constant; no measured time at all is not."""
    with pytest.raises(ConfigurationError, match=r"^sigma is .* finite number, at least 0"):
        d5.simulation.LogNormalTime(sigma=wrong)
    with pytest.raises(ConfigurationError, match="durations_seconds is empty"):
        d5.simulation.MeasuredTime(())


# -- stragglers ------------------------------------------------------------------------------------------


def factors(slow: StragglerModel, rank: int = 0, seed: int = 0, count: int = 20_000) -> np.ndarray[Any, Any]:
    delay = StragglerDelay([slow], rank, seed)
    return np.array([delay.factor() for _ in range(count)])


def test_a_slowdown_is_its_factor_for_its_agent_alone() -> None:
    """Agent 3 takes 4 times as long, the others are not touched, and are known not to be."""
    slow = d5.faults.Slowdown(agent=3, factor=4)
    assert set(factors(slow, rank=3, count=5)) == {4.0}
    assert set(factors(slow, rank=2, count=5)) == {1.0}
    assert (
        bool(StragglerDelay([slow], 3, 0))
        and not StragglerDelay([slow], 2, 0)
        and not StragglerDelay([], 3, 0)
    )


def test_slownesses_of_one_agent_multiply() -> None:
    """2 · 3 for agent 1, 2 for agent 0 that has one of them."""
    slow = [d5.faults.Slowdown(0, 2), d5.faults.Slowdown(1, 2), d5.faults.Slowdown(1, 3)]
    assert [StragglerDelay(slow, rank, 0).factor() for rank in range(3)] == [2.0, 6.0, 1.0]


@pytest.mark.parametrize("mean", [0.5, 3.0])
def test_exponential_slowdowns_are_one_plus_an_exponential_variable(mean: float) -> None:
    """P(X > x) = exp(−x / mean) at five places, and the mean and deviation, of 20,000 draws."""
    found = factors(d5.faults.ExponentialSlowdown(mean)) - 1
    assert found.min() >= 0
    for x in np.array([0.2, 0.5, 1.0, 2.0, 3.0]) * mean:
        assert (found > x).mean() == pytest.approx(math.exp(-x / mean), abs=0.015)
    assert found.mean() == pytest.approx(mean, rel=0.03) and found.std() == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("shape", [2.0, 3.5])
def test_heavy_tailed_slowdowns_follow_paretos_law(shape: float) -> None:
    """P(X > x) = x^−shape for x ≥ 1 at five places; the mean is shape / (shape − 1)."""
    found = factors(d5.faults.HeavyTailedSlowdown(shape), count=40_000)
    assert found.min() >= 1
    for x in (1.1, 1.5, 2.0, 4.0, 8.0):
        assert (found > x).mean() == pytest.approx(x**-shape, abs=0.01)
    assert found.mean() == pytest.approx(shape / (shape - 1), rel=0.05)


@pytest.mark.parametrize(
    "slow", [d5.faults.ExponentialSlowdown(1.0), d5.faults.HeavyTailedSlowdown()], ids=repr
)
def test_random_slowdowns_are_an_agents_own_and_repeat_with_the_seed(slow: StragglerModel) -> None:
    """Equal seed and rank give equal draws; another rank, or another seed, gives others."""
    first = factors(slow, rank=1, seed=5, count=100)
    assert factors(slow, rank=1, seed=5, count=100).tolist() == first.tolist()
    for rank, seed in ((2, 5), (1, 6), (5, 1)):
        other = factors(slow, rank, seed, count=100)
        assert not set(other) & set(first)
        assert abs(np.corrcoef(other, first)[0, 1]) < 0.5


def test_a_random_slowdown_of_one_agent_leaves_the_others_alone() -> None:
    """agent=2 draws for agent 2, and for nobody else."""
    for slow in (d5.faults.ExponentialSlowdown(1.0, agent=2), d5.faults.HeavyTailedSlowdown(agent=2)):
        assert set(factors(slow, rank=1, count=5)) == {1.0}
        assert factors(slow, rank=2, count=5).min() > 1.0


WRONG_SLOWNESSES: list[tuple[Callable[[], Any], str]] = [
    (lambda: d5.faults.Slowdown(0, 0.5), "factor is 0.5: it must be from 1 to 1,000,000"),
    (lambda: d5.faults.Slowdown(0, math.nan), "factor is nan"),
    (lambda: d5.faults.Slowdown(0, math.inf), "factor is inf"),
    (lambda: d5.faults.Slowdown(0, True), "factor is True"),
    (lambda: d5.faults.Slowdown(0, "4"), "factor is '4'"),  # type: ignore[arg-type]
    (lambda: d5.faults.ExponentialSlowdown(-0.1), "mean is -0.1: it must be from 0 to 1,000,000"),
    (lambda: d5.faults.ExponentialSlowdown(math.nan), "mean is nan"),
    (lambda: d5.faults.HeavyTailedSlowdown(1.0), "shape is 1.0: it must be a number greater than 1"),
    (lambda: d5.faults.HeavyTailedSlowdown(math.nan), "shape is nan"),
    (lambda: d5.faults.HeavyTailedSlowdown("2"), "shape is '2'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "words"), WRONG_SLOWNESSES, ids=[words for _, words in WRONG_SLOWNESSES])
def test_wrong_slownesses_are_refused(make: Callable[[], Any], words: str) -> None:
    """Faster than it is, endless, no number: with what was found and what is expected."""
    with pytest.raises(ConfigurationError, match=f"^{words}"):
        make()


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (d5.faults.Slowdown(4, 2), r"names the agent 4: the experiment's agents are 0 to 3"),
        ((d5.faults.Slowdown(0, 2), d5.faults.Slowdown(9, 2)), r"names the agent 9"),
        ((d5.faults.ExponentialSlowdown(1.0, agent=9),), r"names the agent 9"),
        ((2.0,), r"slow has 2\.0: it must be a Slowdown"),
        ("slow", r"slow is 'slow': it must be a tuple"),
        (None, r"slow is None: it must be a tuple"),
    ],
    ids=str,
)
def test_an_experiment_refuses_slownesses_that_do_not_fit(slow: Any, words: str) -> None:
    """An agent that is not there, and what is no straggler, before anything starts."""
    with pytest.raises(ConfigurationError, match=words):
        d5.Experiment(**PLAIN, agents=4, slow=slow)


def test_slownesses_are_part_of_the_experiment() -> None:
    """One alone is a tuple of one; others give another hash; every agent gets its own delay."""
    one = d5.Experiment(**PLAIN, agents=4, slow=d5.faults.Slowdown(3, 2))
    assert one == d5.Experiment(**PLAIN, agents=4, slow=(d5.faults.Slowdown(3, 2),))
    assert (
        len({e.hash for e in (one, one.with_values(slow=()), one.with_values(slow=d5.faults.Slowdown(3, 3)))})
        == 3
    )
    assert [one.pace(rank).factor() for rank in range(4)] == [1.0, 1.0, 1.0, 2.0]


def test_links_of_ones_own_need_two_methods() -> None:
    """A line of nodes, where distance costs: wires and the slowest link follow from latency and bandwidth."""

    class Line(Links):
        def latency(self, source: int, target: int) -> float:
            return float(abs(source - target))

        def seconds_per_byte(self, source: int, target: int) -> float:
            return 0.5

    assert arrivals(Line(), (1, 5, 8, 10.0)) == [10.0 + 4.0 + 4.0]
    assert Line().slowest([0, 1, 5, 6]) == (4.0, 0.5)
