"""What every distributed optimizer keeps beside its recursion: it is data, on any array and communicator"""

import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, final

import networkx
import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.compression import QSGD, TopK
from d5ray.distributed.buffers import LocalBuffers, SynchronizedBuffers
from d5ray.distributed.topologies.requirements import check_topology
from d5ray.errors import ConfigurationError
from d5ray.frameworks.host import host_view
from d5ray.identity.canonical import digest
from d5ray.optimizers import (
    BMUF,
    DPSGD,
    SGD,
    AdaptThenCombine,
    AllreduceSGD,
    ChocoSGD,
    ConsistentNeighbors,
    DiLoCo,
    ExactDiffusion,
    GradientTracking,
    GrowingBatch,
    HierarchicalAveraging,
    LocalSGD,
    Momentum,
    Nesterov,
    OverlappedAllreduceSGD,
    PostLocalSGD,
    ShardedAllreduceSGD,
    SlowMo,
    StochasticGradientPush,
)
from d5ray.topologies import Complete, Custom, DirectedRing, Exponential, OnePeerExponential, Ring, Star
from tests.distributed.forming import Former
from tests.distributed.quadratic import (
    SIZE,
    Array,
    batch_of,
    batches_of,
    course,
    noise,
    quadratics,
    train,
    zeros,
)

Rule = d5.DistributedOptimizer
RULES: list[Callable[[], Rule]] = [
    d5.optimizers.AllreduceSGD, lambda: OverlappedAllreduceSGD(20), d5.optimizers.ShardedAllreduceSGD,
    lambda: GrowingBatch((3, 5), factor=3), d5.optimizers.ModelAveraging, lambda: LocalSGD(3),
    lambda: PostLocalSGD(2, 3), lambda: HierarchicalAveraging(2, 1, 3), lambda: DiLoCo(3),
    lambda: SlowMo(3, 0.5, 0.9), lambda: BMUF(3, 0.5, 0.9), d5.optimizers.DPSGD,
    d5.optimizers.AdaptThenCombine, d5.optimizers.ConsistentNeighbors, d5.optimizers.GradientTracking,
    d5.optimizers.ExactDiffusion, d5.optimizers.StochasticGradientPush, lambda: ChocoSGD(TopK(2), 0.4),
]  # fmt: skip
every_rule = pytest.mark.parametrize("make", RULES, ids=lambda make: type(make()).__name__)
AGENTS = 5


@every_rule
def test_any_array_and_communicator_gives_the_same(make: Callable[[], Rule], groups: Former) -> None:
    """Five agents with momentum: tensors as arrays, and real communicators but for the order of sums."""

    def watch(optimizer: Any) -> Any:
        assert optimizer.x is optimizer._executor.parameters
        return host_view(optimizer.x).copy()

    given = (
        Momentum(0.05, 0.9),
        Ring(AGENTS),
        quadratics(AGENTS, same_start=True),
        batches_of(noise(AGENTS, 7)),
    )
    expected = course(make(), *given)
    found = [course(make(), *given, watch=watch, array=torch.from_numpy)]
    for backend in ("shared_memory", "socket"):
        found.append(course(make(), *given, watch=watch, form=partial(groups.form, backend)))
    for each in found:
        np.testing.assert_allclose(each, expected, rtol=1e-12, atol=1e-13)


@every_rule
def test_a_rule_is_data_until_it_is_bound(make: Callable[[], Rule]) -> None:
    """Equal arguments, equal descriptions; its text makes it again; binding a copy leaves it as it was."""
    rule = make()
    assert digest(rule) == digest(make()) == digest(pickle.loads(pickle.dumps(rule)))
    before = dict(vars(rule))
    texts = train(rule, SGD(0.1), Ring(2), quadratics(2), batches_of(noise(2, 4)), watch=repr)
    assert vars(rule) == before
    assert {text for own in texts for text in own} == {repr(rule)}
    namespace = {kind.__name__: kind for kind in (type(rule), Nesterov, TopK)}
    assert digest(eval(repr(rule), namespace)) == digest(rule)


@every_rule
def test_statistics_are_averaged_where_there_is_one_model_or_an_average(make: Callable[[], Rule]) -> None:
    """And kept where the models differ for good."""
    rule = make()
    assert rule.buffer_policy == (LocalBuffers() if rule.needs else SynchronizedBuffers())


WHOLE: list[tuple[str, int, Callable[[Any], Rule]]] = [
    ("period", 1, LocalSGD), ("period", 1, DiLoCo), ("period", 1, SlowMo), ("period", 1, BMUF),
    ("period", 1, lambda wrong: PostLocalSGD(5, wrong)),
    ("synchronous_steps", 0, lambda wrong: PostLocalSGD(wrong, 5)),
    ("group_size", 1, lambda wrong: HierarchicalAveraging(wrong, 2, 4)),
    ("period", 1, lambda wrong: HierarchicalAveraging(2, wrong, 4)),
    ("global_period", 2, lambda wrong: HierarchicalAveraging(2, 2, wrong)),
    ("bucket_bytes", 1, OverlappedAllreduceSGD),
    ("factor", 2, lambda wrong: GrowingBatch((3,), wrong)),
    ("a milestone", 1, lambda wrong: GrowingBatch((wrong,))),
]  # fmt: skip


@pytest.mark.parametrize(("name", "low", "make"), WHOLE)
def test_a_wrong_whole_number_is_refused(name: str, low: int, make: Callable[[Any], Rule]) -> None:
    """With the argument's name and what was found; the bound itself is good."""
    make(low)
    for wrong in (low - 1, 2.5, "3", True, None, math.nan):
        with pytest.raises(ConfigurationError, match=f"^{name} is {wrong!r}"):
            make(wrong)


OTHERS: list[tuple[Callable[[], object], str]] = [
    (lambda: SlowMo(3, 1.0), "slow_momentum is 1.0"),
    (lambda: SlowMo(3, 0.5, 0), "slow_learning_rate is 0"),
    (lambda: BMUF(3, -0.1), "block_momentum is -0.1"),
    (lambda: BMUF(3, 0.5, math.nan), "block_learning_rate is nan"),
    *((lambda wrong=wrong: ChocoSGD(TopK(2), wrong), f"gamma is {wrong!r}") for wrong in (0.0, 1.1, "1")),
    (lambda: ChocoSGD(3, 0.5), "compressor is 3"),  # type: ignore[arg-type]
    (lambda: ChocoSGD(TopK(7), 0.5).check(6), "k is 7 of 6 entries"),
    (lambda: ChocoSGD(QSGD(2), 0.5).check(1000), "no contraction on 1000 parameters"),
    (lambda: DiLoCo(3, 0.7), "outer is 0.7"),  # type: ignore[arg-type]
    (lambda: GrowingBatch((5, 3)), "ascending"),
    (lambda: GrowingBatch([3, 3]), "ascending"),
    (lambda: HierarchicalAveraging(2, 3, 4), "multiple of 3"),
]


@pytest.mark.parametrize(("make", "words"), OTHERS, ids=[words for _, words in OTHERS])
def test_other_wrong_arguments_are_refused(make: Callable[[], object], words: str) -> None:
    ChocoSGD(TopK(7), 0.5).check(7)
    with pytest.raises(ConfigurationError, match=words):
        make()


SHARES = [
    [[4], [3], [1]],
    [[4, 4], [4, 4], [3, 2]],
    [[4, 4, 4], [1, 1, 0], [4, 4, 4], [1, 0, 0]],
    [[2] * 8, [2, 2, 2, 2, 2, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0, 0], [2] * 8],
]


def shared(shares: list[list[int]]) -> tuple[list[Array], list[list[d5.Batch]]]:
    """The union of each step's samples (samples, SIZE), and the agents' batches, weighted as `Draw` says."""
    rng = np.random.default_rng(5)
    unions = [rng.standard_normal((sum(counts), SIZE)) for counts in shares]
    batches = [
        [
            batch_of(own, step, weight=len(own) * len(counts) / len(union))
            for own in np.split(union, np.cumsum(counts)[:-1])
        ]
        for step, (counts, union) in enumerate(zip(shares, unions, strict=True))
    ]
    return unions, batches


@pytest.mark.parametrize("shares", SHARES, ids=repr)
@pytest.mark.parametrize(
    "rule",
    [AllreduceSGD(), OverlappedAllreduceSGD(1), OverlappedAllreduceSGD(30), ShardedAllreduceSGD(),
     d5.optimizers.ModelAveraging(), GrowingBatch(milestones=(2, 6))],
    ids=repr,
)  # fmt: skip
def test_agents_are_one_process_on_the_union(rule: Rule, shares: list[list[int]]) -> None:
    """Uneven and empty shares: every agent follows the mean over all samples of the step, or of several."""
    unions, batches = shared([shares[step % len(shares)] for step in range(10)])
    agents, base = len(shares[0]), Momentum(0.05, 0.9)
    problem = quadratics(agents, same_start=True, same_data=True)
    got = course(rule, base, Complete(agents), problem, batches)
    ends = [0, 1, 2, 4, 6, 10] if isinstance(rule, GrowingBatch) else list(range(11))
    grown = [[batch_of(np.concatenate(unions[a:b]))] for a, b in pairwise(ends)]
    expected = course(AllreduceSGD(), base, Complete(1), problem.only(0), grown)
    np.testing.assert_allclose(got[ends], np.repeat(expected, agents, axis=1), rtol=1e-12, atol=1e-13)
    for step in {*range(11)} - {*ends}:
        np.testing.assert_array_equal(got[step], got[step - 1])


@final
@dataclass(frozen=True)
class Remembering(d5.Optimizer):
    """Notes how much state it was asked for."""

    asked: list[int]
    learning_rate: float = 0.1

    def state(self, x: Any) -> dict[str, Any]:
        self.asked.append(len(x))
        return {}

    def update(self, x: Any, gradient: Any, state: Any) -> None:
        x -= self.learning_rate * gradient


@pytest.mark.parametrize("agents", [1, 4, 8])
def test_sharded_state_is_that_of_the_own_slice(agents: int) -> None:
    """Once each, and all agents' together have the size of the model."""
    base, problem = Remembering([]), quadratics(agents, same_start=True)
    course(ShardedAllreduceSGD(), base, Complete(agents), problem, batches_of(noise(agents, 3)))
    slices = [SIZE * (rank + 1) // agents - SIZE * rank // agents for rank in range(agents)]
    assert sorted(base.asked) == sorted(slices) and sum(slices) == SIZE


@pytest.mark.parametrize(("bucket_bytes", "exchanges"), [(1, 3), (9, 2), (1000, 1)])
def test_overlapped_buckets_are_exchanged_one_by_one(bucket_bytes: int, exchanges: int) -> None:
    """Tensors of 2, 3 and 1 parameters: as many exchanges a step on every agent, with samples or without."""
    _, batches = shared([[2, 2, 2], [1, 0, 0], [2, 2, 2]])
    seen = course(
        OverlappedAllreduceSGD(bucket_bytes), SGD(0.1), Complete(3), quadratics(3, same_start=True), batches,
        watch=lambda optimizer: np.array(optimizer.communication.traffic.messages_sent),
    )  # fmt: skip
    np.testing.assert_array_equal(np.diff(seen, axis=0), exchanges)


@pytest.mark.parametrize(
    ("rule", "topology"),
    [(GradientTracking(), Ring(4)), (GradientTracking(), OnePeerExponential(4)), (ExactDiffusion(), Star(5))],
    ids=repr,
)
def test_the_exact_minimum_at_a_constant_learning_rate(rule: Rule, topology: d5.Topology) -> None:
    """Every agent ends at the minimum of the sum, within 1e-12, though the agents' own minima differ."""
    problem = quadratics(topology.agents)
    got = course(rule, SGD(0.1), topology, problem, batches_of(zeros(topology.agents, 800)))[-1]
    np.testing.assert_allclose(got, np.tile(problem.minimum, (topology.agents, 1)), rtol=0, atol=1e-12)
    assert np.abs(problem.centres - problem.minimum).max() > 0.5


IRREGULAR = Custom(networkx.DiGraph([(0, 1), (1, 2), (2, 0), (0, 2)]))
STARS = Star(4, mixing=d5.topologies.Uniform())
TURNS = d5.topologies.TimeVarying((Ring(4), Complete(4)))


@pytest.mark.parametrize(
    ("rule", "topology", "words"),
    [
        (DPSGD(), STARS, "doubly stochastic"),
        (DPSGD(), Custom(networkx.Graph([(0, 1), (2, 3)])), "reach every other"),
        (AdaptThenCombine(), IRREGULAR, "doubly stochastic"),
        (GradientTracking(), IRREGULAR, "doubly stochastic"),
        (StochasticGradientPush(), STARS, "columns that sum to one"),
        (StochasticGradientPush(), Custom(networkx.DiGraph([(0, 1), (1, 2)])), "reach every other"),
        (ExactDiffusion(), Exponential(6), "symmetric"),
        (ExactDiffusion(), TURNS, "one that stays"),
        (ChocoSGD(TopK(2), 0.4), TURNS, "one that stays"),
        (ChocoSGD(TopK(2), 0.4), DirectedRing(4), "symmetric"),
        (ConsistentNeighbors(), DirectedRing(4), "both ways"),
    ],
    ids=repr,
)
def test_a_topology_that_does_not_fit_is_refused(rule: Rule, topology: d5.Topology, words: str) -> None:
    """Before anything starts, with what the rule needs."""
    with pytest.raises(ConfigurationError, match=words):
        check_topology(topology, rule.needs, type(rule).__name__)
