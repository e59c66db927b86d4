"""Claims about the simulated costs: links and wires, computation times, and stragglers by plan"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import d5ray as d5
from d5ray.distributed.simulation.clock import VirtualClock
from d5ray.distributed.simulation.links import Links, Wires
from d5ray.errors import ConfigurationError
from d5ray.faults import ExponentialSlowdown, HeavyTailedSlowdown, Slowdown
from d5ray.metrics.record.recorder import Recorder
from d5ray.metrics.record.schema import EVENTS, SAMPLES
from d5ray.simulation import ConstantTime, GroupedLinks, LogNormalTime, MeasuredTime, UniformLinks
from d5ray.training.stragglers import StragglerDelay, StragglerModel
from tests.agents import Rows

ALPHA, RATE = 0.25, 64.0  # s and bytes/s: sums of such costs are exact in float64
BETA = 1 / RATE
SLOW, FAST = UniformLinks(ALPHA, RATE), UniformLinks(1 / 32, 1024.0)
RACKS = GroupedLinks(size=3, within=FAST, between=SLOW)
PLAIN: dict[str, Any] = {"model": "lenet", "dataset": "digits", "optimizer": d5.optimizers.SGD(0.1)}
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("nodes", [[0, 1, 2], [4, 3], range(8), [0, 2, 7], [5, 1, 4], [1]], ids=str)
def test_grouped_links_cost_by_who_is_in_whose_group(nodes: list[int]) -> None:
    """Racks of three: every pair against rank // 3, both ways; the slowest is the largest of all pairs."""
    alphas, betas = [0.0], [0.0]
    for source, target in [(i, j) for i in nodes for j in nodes if i != j]:
        expected = FAST if source // 3 == target // 3 else SLOW
        alphas.append(expected.latency_seconds)
        betas.append(1 / expected.bytes_per_second)
        assert RACKS.latency(source, target) == alphas[-1]
        assert RACKS.seconds_per_byte(source, target) == betas[-1]
    assert RACKS.slowest(nodes) == (max(alphas), max(betas))
    assert SLOW.slowest(range(9)) == (ALPHA, BETA) and UniformLinks(latency_seconds=0).latency(0, 1) == 0.0


class Line(Links):
    """A line of nodes, where distance costs: of one's own, links need two methods."""

    def latency(self, source: int, target: int) -> float:
        return float(abs(source - target))

    def seconds_per_byte(self, source: int, target: int) -> float:
        return 0.5


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
    """α + βn of the links that it is on, whenever it is sent, and both ways; an empty one takes α."""
    for begin in (0.0, 1000.0):
        for size in (0, 1, 16, 4096):
            assert arrivals(SLOW, (0, 1, size, begin)) == [begin + ALPHA + BETA * size]
            assert arrivals(SLOW, (1, 0, size, begin)) == [begin + ALPHA + BETA * size]
    assert arrivals(RACKS, (0, 1, 64, 0.0)) == [1 / 32 + 1 / 16]
    assert arrivals(RACKS, (2, 4, 64, 0.0)) == [1 / 4 + 1]
    assert arrivals(Line(), (1, 5, 8, 10.0)) == [10.0 + 4.0 + 4.0]
    assert Line().slowest([0, 1, 5, 6]) == (4.0, 0.5)  # of neighbours in the order given


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


def draws(time: d5.simulation.ComputeTime, count: int, seed: int = 0) -> Array:
    own = np.random.default_rng(seed)
    return np.array([time.seconds(own) for _ in range(count)])


def test_times_are_the_formula_on_the_agents_own_generator() -> None:
    """Constant, or median · exp(σ z) with z of the generator."""
    expected = 0.01 * np.exp(0.3 * np.random.default_rng(4).standard_normal(50))
    np.testing.assert_allclose(draws(LogNormalTime(0.01, 0.3), 50, seed=4), expected)
    assert set(draws(LogNormalTime(0.01, sigma=0.0), 5)) == set(draws(ConstantTime(0.01), 5)) == {0.01}


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
    time = MeasuredTime.of(tables)
    assert time == MeasuredTime((3.0, 6.5, 2.0))
    found = draws(time, 3000)
    values, counts = np.unique(found, return_counts=True)
    assert values.tolist() == [2.0, 3.0, 6.5]
    assert counts.min() > 900 and counts.max() < 1100  # of 1,000 each, with a deviation of 26
    assert draws(time, 3000).tolist() == found.tolist()


def test_a_run_without_times_after_its_warm_up_gives_none() -> None:
    """Steps of the warm-up alone, or none."""
    for steps in ([("warmup", 1.0, 2.0)], []):
        with pytest.raises(ConfigurationError, match="no forward and backward times after its warm-up"):
            MeasuredTime.of(run_tables(steps))


def factors(slow: StragglerModel, rank: int = 0, seed: int = 0, count: int = 20_000) -> Array:
    delay = StragglerDelay([slow], rank, seed)
    return np.array([delay.factor() for _ in range(count)])


def test_slownesses_of_one_agent_multiply() -> None:
    """2 · 3 for agent 1, 2 for agent 0 that has one; others are not touched, and known not to be."""
    slow = (Slowdown(0, 2), Slowdown(1, 2), Slowdown(1, 3))
    assert [StragglerDelay(slow, rank, 0).factor() for rank in range(3)] == [2.0, 6.0, 1.0]
    assert StragglerDelay(slow, 1, 0) and not StragglerDelay(slow, 2, 0)
    wanted = d5.Experiment(**PLAIN, agents=3, slow=slow)
    assert [wanted.straggler_delay(rank).factor() for rank in range(3)] == [2.0, 6.0, 1.0]
    assert d5.Experiment(**PLAIN, agents=3, slow=slow[0]) == wanted.with_values(slow=slow[:1]) != wanted


@pytest.mark.parametrize(
    ("slow", "least", "beyond", "mean"),
    [
        *((ExponentialSlowdown(mean), 1.0, lambda x, mean=mean: np.exp(-(x - 1) / mean), 1 + mean)
          for mean in (0.5, 3.0)),
        *((HeavyTailedSlowdown(shape), 1.0, lambda x, shape=shape: x**-shape, shape / (shape - 1))
          for shape in (2.0, 3.5)),
    ],
    ids=str,
)  # fmt: skip
def test_random_slowdowns_follow_their_law(
    slow: StragglerModel, least: float, beyond: Callable[[Array], Array], mean: float
) -> None:
    """P(X > x) is exp(−(x − 1) / mean), or Pareto's x^−shape, of 40,000 draws."""
    found = factors(slow, count=40_000)
    assert found.min() >= least
    for x in (1.1, 1.5, 2.0, 4.0, 8.0):
        assert (found > x).mean() == pytest.approx(beyond(np.array(x)), abs=0.01)
    assert found.mean() == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("kind", [ExponentialSlowdown, HeavyTailedSlowdown])
def test_random_slowdowns_are_an_agents_own_and_repeat_with_the_seed(kind: Any) -> None:
    """Equal seed and rank give equal draws; another rank, or another seed, gives others; or one agent's."""
    first = factors(kind(2.0), rank=1, seed=5, count=100)
    assert factors(kind(2.0), rank=1, seed=5, count=100).tolist() == first.tolist()
    for rank, seed in ((2, 5), (1, 6), (5, 1)):
        other = factors(kind(2.0), rank, seed, count=100)
        assert not set(other) & set(first)
        assert abs(np.corrcoef(other, first)[0, 1]) < 0.5
    assert set(factors(kind(2.0, agent=2), rank=1, count=5)) == {1.0}
    assert factors(kind(2.0, agent=2), rank=2, count=5).min() > 1.0


NO_COSTS: tuple[Any, ...] = (-1.0, math.nan, math.inf, -math.inf, True, "1e-3", None, [1.0])
NO_SIZES: tuple[Any, ...] = (0, -2, 2.0, True, "2", None)
REFUSED: list[tuple[str, Callable[[Any], object], tuple[Any, ...]]] = [
    ("latency_seconds", lambda wrong: UniformLinks(latency_seconds=wrong), NO_COSTS),
    ("bytes_per_second", lambda wrong: UniformLinks(bytes_per_second=wrong), (0, *NO_COSTS)),
    ("size", lambda wrong: GroupedLinks(size=wrong, within=FAST, between=SLOW), NO_SIZES),
    ("within", lambda wrong: GroupedLinks(size=2, within=wrong, between=SLOW), NO_SIZES),
    ("between", lambda wrong: GroupedLinks(size=2, within=FAST, between=wrong), NO_SIZES),
    ("duration_seconds", ConstantTime, (0, *NO_COSTS)),
    ("median_seconds", LogNormalTime, (0, *NO_COSTS)),
    ("sigma", lambda wrong: LogNormalTime(sigma=wrong), NO_COSTS),
    ("durations_seconds", lambda wrong: MeasuredTime((1.0, wrong)), (0, *NO_COSTS)),
    ("durations_seconds", MeasuredTime, ((),)),
    ("factor", lambda wrong: Slowdown(0, wrong), (0.5, math.nan, math.inf, True, "4")),
    ("mean", ExponentialSlowdown, (-0.1, math.nan)),
    ("shape", HeavyTailedSlowdown, (1.0, math.nan, "2")),
    ("slow", lambda wrong: d5.Experiment(**PLAIN, slow=wrong), ((2.0,), "slow", None)),
    (
        ".* names the agent 9: .* agents",
        lambda wrong: d5.Experiment(**PLAIN, agents=4, slow=wrong),
        (Slowdown(9, 2), (Slowdown(0, 2), ExponentialSlowdown(1.0, agent=9))),
    ),
]


@pytest.mark.parametrize(("name", "make", "values"), REFUSED, ids=[name for name, *_ in REFUSED])
def test_what_costs_nothing_or_no_number_is_refused(
    name: str, make: Callable[[Any], object], values: tuple[Any, ...]
) -> None:
    """By the argument's name."""
    for wrong in values:
        with pytest.raises(ConfigurationError, match=f"^{name} (is|has|are) "):
            make(wrong)
