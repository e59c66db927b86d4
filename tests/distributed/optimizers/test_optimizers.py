"""What every distributed optimizer keeps: it is data, takes any framework's arrays, refuses what is wrong"""

import copy
import inspect
import math
import pickle
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.distributed.buffers import LocalBuffers, SynchronizedBuffers
from d5ray.distributed.compression.precision import Identity
from d5ray.distributed.compression.stochastic import QSGD
from d5ray.distributed.compression.top_k import TopK
from d5ray.distributed.optimizers.allreduce import AllreduceSGD
from d5ray.distributed.optimizers.choco_sgd import ChocoSGD
from d5ray.distributed.optimizers.consistent_neighbors import ConsistentNeighbors
from d5ray.distributed.optimizers.dpsgd import DPSGD, AdaptThenCombine
from d5ray.distributed.optimizers.exact_diffusion import ExactDiffusion
from d5ray.distributed.optimizers.gradient_tracking import GradientTracking
from d5ray.distributed.optimizers.growing_batch import GrowingBatch
from d5ray.distributed.optimizers.hierarchical_averaging import HierarchicalAveraging
from d5ray.distributed.optimizers.local_sgd import (
    BMUF,
    DiLoCo,
    LocalSGD,
    ModelAveraging,
    PostLocalSGD,
    SlowMo,
)
from d5ray.distributed.optimizers.optimizer import DistributedOptimizer
from d5ray.distributed.optimizers.overlapped_allreduce import OverlappedAllreduceSGD
from d5ray.distributed.optimizers.sharded_allreduce import ShardedAllreduceSGD
from d5ray.distributed.optimizers.stochastic_gradient_push import StochasticGradientPush
from d5ray.distributed.topologies.topology import Complete, Ring
from d5ray.errors import ConfigurationError
from d5ray.identity.canonical import digest
from d5ray.training.optimizers.gradient_descent import SGD, Momentum, Nesterov
from tests.distributed.quadratic import batches_of, course, noise, quadratics, train

Rule = DistributedOptimizer
RULES: list[Callable[[], Rule]] = [
    AllreduceSGD,
    lambda: OverlappedAllreduceSGD(20),
    ShardedAllreduceSGD,
    lambda: GrowingBatch((3, 5), factor=3),
    ModelAveraging,
    lambda: LocalSGD(3),
    lambda: PostLocalSGD(2, 3),
    lambda: HierarchicalAveraging(2, 1, 3),
    lambda: DiLoCo(3),
    lambda: SlowMo(3, 0.5, 0.9),
    lambda: BMUF(3, 0.5, 0.9),
    DPSGD,
    AdaptThenCombine,
    ConsistentNeighbors,
    GradientTracking,
    ExactDiffusion,
    StochasticGradientPush,
    lambda: ChocoSGD(TopK(2), 0.4),
]
every_rule = pytest.mark.parametrize("make", RULES, ids=lambda make: type(make()).__name__)


@every_rule
def test_torch_tensors_go_as_numpy_arrays(make: Callable[[], Rule]) -> None:
    """Twelve steps with momentum on tensors and on arrays of float64 agree."""
    problem, batches = quadratics(4, same_start=True), batches_of(noise(4, 12))
    base = Momentum(0.05, 0.9)
    numpy = course(make(), base, Ring(4), problem, batches)
    tensors = course(make(), base, Ring(4), problem, batches, array=torch.from_numpy)
    np.testing.assert_allclose(tensors, numpy, rtol=1e-12, atol=1e-14)


@every_rule
def test_x_stays_the_models_own_buffer(make: Callable[[], Rule]) -> None:
    """A step writes into the parameters, and never puts another array in their place."""
    problem, batches = quadratics(4, same_start=True), batches_of(noise(4, 12))
    seen = train(
        make(), SGD(0.1), Ring(4), problem, batches,
        watch=lambda optimizer: (optimizer.x is optimizer._executor.parameters, optimizer.x.ctypes.data),
    )  # fmt: skip
    for own in seen:
        assert set(own) == {(True, own[0][1])}


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


def test_different_arguments_give_different_descriptions() -> None:
    """Every argument counts."""
    rules: list[Rule] = [
        LocalSGD(3), LocalSGD(4), PostLocalSGD(3, 4), PostLocalSGD(4, 3), DiLoCo(3), DiLoCo(3, SGD(1.0)),
        SlowMo(3), SlowMo(3, 0.6), SlowMo(3, 0.7, 0.9), BMUF(3), BMUF(3, 0.8), ChocoSGD(TopK(2), 0.4),
        ChocoSGD(TopK(3), 0.4), ChocoSGD(TopK(2), 0.5), GrowingBatch((3,)), GrowingBatch((4,)),
        GrowingBatch((3,), 3), OverlappedAllreduceSGD(), OverlappedAllreduceSGD(20),
    ]  # fmt: skip
    assert len({digest(rule) for rule in rules}) == len(rules)


@every_rule
def test_the_docstring_says_what_the_rule_is(make: Callable[[], Rule]) -> None:
    """A formula, a source, the survey's terms, what becomes of state, by it and its base; a short step."""
    kind = type(make())
    said = [each.__doc__ for each in kind.__mro__ if each not in Rule.__mro__]
    text = re.sub(r"\s+", " ", " ".join(map(str, said)))
    assert "←" in text
    assert re.search(r"arXiv:\d{4}\.\d{4,5}|doi 10\.", text)
    assert re.search(r"[Dd]ecentralized", text)
    assert re.search(r"(in)?consistent", text)
    assert "base optimizer" in text
    assert re.search(r"[Bb]uffers", text)
    assert len(inspect.getsource(kind.step).splitlines()) <= 15


@every_rule
def test_statistics_are_averaged_where_there_is_one_model_or_an_average(make: Callable[[], Rule]) -> None:
    """And kept where the models differ for good."""
    rule = make()
    assert rule.untrained == (LocalBuffers() if rule.needs else SynchronizedBuffers())


ALONE: list[Rule] = [
    AllreduceSGD(), OverlappedAllreduceSGD(20), ShardedAllreduceSGD(), ModelAveraging(), LocalSGD(3),
    PostLocalSGD(2, 3), HierarchicalAveraging(2, 1, 3), DiLoCo(3, SGD(1.0)), SlowMo(3, 0.0, 1.0),
    BMUF(3, 0.0, 1.0), DPSGD(), AdaptThenCombine(), GradientTracking(), ExactDiffusion(),
    StochasticGradientPush(), ChocoSGD(Identity(), 1.0),
]  # fmt: skip


@pytest.mark.parametrize("rule", ALONE, ids=repr)
def test_one_agent_alone_is_its_base_optimizer(rule: Rule) -> None:
    """No peers, no difference: x follows heavy ball, written out."""
    problem, samples = quadratics(1), noise(1, 12)
    got = course(rule, Momentum(0.05, 0.9), Complete(1), problem, batches_of(samples))
    x, velocity = problem.start, np.zeros(1)
    for step, sample in enumerate(samples):
        velocity = 0.9 * velocity + problem.gradients(x) + sample.mean(axis=1)
        x = x - 0.05 * velocity
        np.testing.assert_allclose(got[step + 1], x, rtol=1e-11, atol=1e-13)


# -- arguments that are wrong --------------------------------------------------------------------------------


WHOLE: list[tuple[str, int, Callable[[Any], Rule]]] = [
    ("period", 1, LocalSGD),
    ("period", 1, DiLoCo),
    ("period", 1, SlowMo),
    ("period", 1, BMUF),
    ("period", 1, lambda wrong: PostLocalSGD(5, wrong)),
    ("synchronous_steps", 0, lambda wrong: PostLocalSGD(wrong, 5)),
    ("group_size", 1, lambda wrong: HierarchicalAveraging(wrong, 2, 4)),
    ("period", 1, lambda wrong: HierarchicalAveraging(2, wrong, 4)),
    ("global_period", 1, lambda wrong: HierarchicalAveraging(2, 2, wrong)),
    ("bucket_bytes", 1, OverlappedAllreduceSGD),
    ("factor", 2, lambda wrong: GrowingBatch((3,), wrong)),
    ("a milestone", 1, lambda wrong: GrowingBatch((wrong,))),
]


@pytest.mark.parametrize("wrong", [-1, 2.5, "3", True, None, math.nan], ids=repr)
@pytest.mark.parametrize(("name", "low", "make"), WHOLE)
def test_a_wrong_whole_number_is_refused(
    name: str, low: int, make: Callable[[Any], Rule], wrong: object
) -> None:
    """With the argument's name, what was found, and what it must be."""
    with pytest.raises(ConfigurationError) as caught:
        make(wrong)
    counted = "an integer number of bytes," if name == "bucket_bytes" else "an integer of"
    assert str(caught.value) == f"{name} is {wrong!r}: it must be {counted} at least {low}"


@pytest.mark.parametrize(("name", "low", "make"), WHOLE)
def test_the_least_whole_number_is_taken_and_one_less_is_not(
    name: str, low: int, make: Callable[[Any], Rule]
) -> None:
    """The bound itself is good."""
    if name != "global_period":  # whose least is the period
        make(low)
    with pytest.raises(ConfigurationError, match=f"{name} is {low - 1}"):
        make(low - 1)


SHARE = "it must be a number from 0 up to, but not, 1"
POSITIVE = "it must be a number greater than 0"
OTHERS: list[tuple[Callable[[Any], Rule], Any, str]] = [
    (lambda wrong: SlowMo(3, wrong), 1.0, f"slow_momentum is 1.0: {SHARE}"),
    (lambda wrong: SlowMo(3, 0.5, wrong), 0, f"slow_learning_rate is 0: {POSITIVE}"),
    (lambda wrong: BMUF(3, wrong), -0.1, f"block_momentum is -0.1: {SHARE}"),
    (lambda wrong: BMUF(3, 0.5, wrong), math.nan, f"block_learning_rate is nan: {POSITIVE}"),
    (lambda wrong: ChocoSGD(TopK(2), wrong), 0.0, f"gamma is 0.0: {POSITIVE}, and 1 at most"),
    (lambda wrong: ChocoSGD(TopK(2), wrong), 1.1, f"gamma is 1.1: {POSITIVE}, and 1 at most"),
    (lambda wrong: ChocoSGD(TopK(2), wrong), "1", f"gamma is '1': {POSITIVE}, and 1 at most"),
    (lambda wrong: ChocoSGD(wrong, 0.5), 3, "compressor is 3: it must be a Compressor such as TopK(0.01)"),
    (lambda wrong: DiLoCo(3, wrong), 0.7, "outer is 0.7 (float): it must be an Optimizer such as Nesterov("),
    (GrowingBatch, (5, 3), "milestones are (5, 3): give the steps in ascending order, each once"),
    (GrowingBatch, [3, 3], "milestones are (3, 3): give the steps in ascending order, each once"),
    (
        lambda wrong: HierarchicalAveraging(2, 3, wrong),
        4,
        "global_period is 4, period is 3: a mean of all begins with the means of the groups, so take a "
        "multiple of 3",
    ),
]


@pytest.mark.parametrize(("make", "wrong", "words"), OTHERS, ids=[words for _, _, words in OTHERS])
def test_other_wrong_arguments_are_refused(make: Callable[[Any], Rule], wrong: Any, words: str) -> None:
    """What was found, what was expected, what to do."""
    with pytest.raises(ConfigurationError) as caught:
        make(wrong)
    assert str(caught.value).startswith(words)


def test_choco_needs_a_contraction_that_fits() -> None:
    """Checked when the number of parameters is known: QSGD(2) of 1000 is none, and TopK(7) cannot be of 6."""
    ChocoSGD(TopK(7), 0.5).check(7)
    with pytest.raises(ConfigurationError, match="k is 7 of 6 entries"):
        ChocoSGD(TopK(7), 0.5).check(6)
    with pytest.raises(ConfigurationError, match="no contraction on 1000 parameters, ChocoSGD needs one"):
        ChocoSGD(QSGD(2), 0.5).check(1000)


def test_most_rules_take_any_number_of_parameters() -> None:
    """`check` of the others does nothing."""
    for make in RULES[:-1]:
        make().check(1)


def test_a_copy_is_bound_apart() -> None:
    """Two agents' buffers are not one."""
    rule = GradientTracking()
    seen = train(rule, SGD(0.1), Ring(2), quadratics(2), [], watch=lambda optimizer: optimizer.y)
    assert not np.shares_memory(seen[0][0], seen[1][0])
    assert copy.copy(rule) is not rule and vars(rule) == {}
