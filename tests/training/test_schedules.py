"""Claims about hyperparameters that change: PyTorch's schedulers, closed forms, and whole trainings"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.schedules import never

Scheduler = Callable[[torch.optim.Optimizer], Any]
lr = torch.optim.lr_scheduler
PEERS: dict[str, tuple[d5.Schedule, float, Scheduler]] = {
    "piecewise": (
        d5.schedules.Piecewise(0.1, {3: 0.01, 7: 0.001}), 0.1, lambda o: lr.MultiStepLR(o, [3, 7], gamma=0.1),
    ),
    "cosine": (d5.schedules.Cosine(0.1, 12, 0.02), 0.1, lambda o: lr.CosineAnnealingLR(o, 12, 0.02)),
    "line": (d5.schedules.Polynomial(0.1, 12), 0.1, lambda o: lr.PolynomialLR(o, 12)),
    "polynomial": (
        d5.schedules.Polynomial(0.1, 12, power=2.5), 0.1, lambda o: lr.PolynomialLR(o, 12, power=2.5)
    ),
    "one cycle": (d5.schedules.OneCycle(0.1, 13), 0.1, lambda o: lr.OneCycleLR(o, 0.1, total_steps=13)),
    "warm-up": (d5.schedules.WarmUp(0.1, 5, 0.02), 0.1, lambda o: lr.LinearLR(o, 0.2, total_iters=5)),
    "computed": (
        d5.schedules.Computed(lambda t: 0.1 * 0.9**t), 0.1, lambda o: lr.LambdaLR(o, lambda t: 0.9**t)
    ),
    "steps": (
        d5.schedules.Piecewise(0.1, {4: 0.05, 8: 0.025, 12: 0.0125}), 0.1,
        lambda o: lr.StepLR(o, 4, gamma=0.5),
    ),
    "product": (
        d5.schedules.Computed(lambda t: 0.1 * 0.8**t), 0.1, lambda o: lr.MultiplicativeLR(o, lambda t: 0.8)
    ),
    "exponential": (d5.schedules.Computed(lambda t: 0.1 * 0.8**t), 0.1, lambda o: lr.ExponentialLR(o, 0.8)),
    "constant": (
        d5.schedules.Piecewise(0.02, {5: 0.1}), 0.1, lambda o: lr.ConstantLR(o, factor=0.2, total_iters=5)
    ),
    "sequence": (
        d5.schedules.Computed(lambda t: 0.01 if t < 3 else 0.1 * 0.9 ** (t - 3)), 0.1,
        lambda o: lr.SequentialLR(
            o, [lr.ConstantLR(o, factor=0.1, total_iters=9), lr.ExponentialLR(o, 0.9)], [3]
        ),
    ),
    "chain": (
        d5.schedules.WarmUp(d5.schedules.Multiplied(d5.schedules.Cosine(0.1, 12), 1.0), 1, 0.1), 0.1,
        lambda o: lr.ChainedScheduler([lr.CosineAnnealingLR(o, 12)]),
    ),
    "cycle": (
        d5.schedules.Computed(lambda t: 0.01 + 0.09 * (1 - abs(t % 8 - 4) / 4)), 0.01,
        lambda o: lr.CyclicLR(o, 0.01, 0.1, step_size_up=4, cycle_momentum=False),
    ),
    "restarts": (
        d5.schedules.Computed(lambda t: d5.schedules.Cosine(0.1, 4, 0.01).value(t % 4)), 0.1,
        lambda o: lr.CosineAnnealingWarmRestarts(o, 4, eta_min=0.01),
    ),
}  # fmt: skip
OTHERS = {"LRScheduler", "_LRScheduler", "ReduceLROnPlateau"}  # no functions of the time


def test_every_schedule_of_torch_is_here() -> None:
    kinds = [kind for kind in vars(lr).values() if isinstance(kind, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, lr.LRScheduler)}
    made = {type(make(torch.optim.SGD([torch.zeros(1)], lr=0.1))).__name__ for _, _, make in PEERS.values()}
    assert names <= made | OTHERS


@pytest.mark.parametrize("name", PEERS)
def test_a_schedule_is_that_of_torch(name: str) -> None:
    """Thirteen times, to 1e-12."""
    schedule, start, make = PEERS[name]
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=start)
    scheduler = make(optimizer)
    for time in range(13):
        assert schedule.value(time) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12, abs=1e-15)
        optimizer.step()
        if time < 12:
            scheduler.step()


@pytest.mark.parametrize(
    "schedule",
    [d5.schedules.Cosine(0.1, 5, 0.02), d5.schedules.Polynomial(0.1, 5, 0.02), d5.schedules.OneCycle(0.1, 5)],
)
def test_after_its_end_a_schedule_stays_where_it_is(schedule: d5.Schedule) -> None:
    assert schedule.value(5) == pytest.approx(schedule.value(500), rel=1e-12)


def test_a_schedule_counts_whole_epochs_or_steps() -> None:
    """Of 10 steps an epoch; a warm-up goes on with the schedule that it leads to, at that one's own time."""
    by_epoch = d5.schedules.Piecewise(1.0, {1: 0.5})
    assert [by_epoch.at(step, step // 10) for step in (0, 9, 10, 19, 20)] == [1.0, 1.0, 0.5, 0.5, 0.5]
    by_step = d5.schedules.Piecewise(1.0, {1: 0.5}, unit="step")
    assert [by_step.at(step, step // 10) for step in (0, 1, 9)] == [1.0, 0.5, 0.5]
    warm = d5.schedules.WarmUp(d5.schedules.Piecewise(1.0, {4: 0.25}), 2)
    assert [warm.value(time) for time in range(6)] == [0.0, 0.5, 1.0, 1.0, 0.25, 0.25]


def trained(optimizer: d5.Optimizer, **changes: Any) -> np.ndarray[Any, Any]:
    """Parameters of agent 0 after two epochs on the digits, in the simulation."""
    values: dict[str, Any] = {
        "model": "mlp", "dataset": "digits", "optimizer": optimizer,
        "distributed": d5.optimizers.AllreduceSGD(),
        "agents": 2, "batch_size": 64, "seed": 3, "evaluate": False, "epochs": 2,
    }  # fmt: skip
    with d5.simulate(d5.Experiment(**(values | changes))) as group:
        group.train(progress=False)
        return np.concatenate([array.ravel() for array in group.parameters().values()])


def distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


@pytest.mark.full
def test_a_scheduled_training_is_the_sum_of_its_parts() -> None:
    """η = 0.1 in the first epoch and 0 in the second: one epoch's parameters; with weight decay around it."""
    once = d5.optimizers.Scheduled(
        d5.optimizers.Momentum(0.1, 0.5), learning_rate=d5.schedules.Piecewise(0.1, {1: 1e-30})
    )
    assert distance(trained(once), trained(d5.optimizers.Momentum(0.1, 0.5), epochs=1)) < 1e-6
    wrapped = d5.optimizers.WeightDecay(once, 1e-3)
    alone = d5.optimizers.WeightDecay(d5.optimizers.Momentum(0.1, 0.5), 1e-3)
    assert distance(trained(wrapped), trained(alone, epochs=1)) < 1e-6
    assert distance(trained(once), trained(d5.optimizers.Momentum(0.1, 0.5))) > 1e-2


@pytest.mark.parametrize(
    "rule",
    [
        d5.optimizers.ParameterServerSGD(),
        d5.optimizers.ASGD(),
        d5.optimizers.StalenessAwareSGD(),
        d5.optimizers.Downpour(),
    ],
)
def test_parameter_servers_keep_the_schedule_of_the_run(rule: d5.DistributedOptimizer) -> None:
    """They count updates: one a step where all wait for each other, else as many as agents."""
    once = d5.optimizers.Scheduled(
        d5.optimizers.SGD(0.1), learning_rate=d5.schedules.Piecewise(0.1, {1: 1e-30})
    )
    servers = d5.Servers(shards=2)
    found = trained(once, distributed=rule, servers=servers)
    expected = trained(d5.optimizers.SGD(0.1), distributed=rule, servers=servers, epochs=1)
    assert distance(found, expected) < 1e-3  # agents need not be in the same step when an epoch ends
    assert distance(trained(d5.optimizers.SGD(0.1), distributed=rule, servers=servers), expected) > 1e-2


def test_any_number_of_a_rule_can_change() -> None:
    """Momentum and rate at once, against the recursion by hand."""
    rule = d5.optimizers.Scheduled(
        d5.optimizers.Momentum(0.1, 0.9),
        learning_rate=d5.schedules.Polynomial(0.1, 10, unit="step"),
        momentum=d5.schedules.Piecewise(0.9, {2: 0.5}, unit="step"),
    )
    x, y, v = np.array([1.0, -2.0]), np.array([1.0, -2.0]), np.zeros(2)
    state = rule.state(x)
    for step in range(6):
        rule.step(x, 3 * x, state)
        v = (0.9 if step < 2 else 0.5) * v + 3 * y
        y = y - 0.1 * (1 - step / 10) * v
        np.testing.assert_allclose(x, y, rtol=1e-14)
    assert rule.at(5).learning_rate == pytest.approx(0.05)


def test_what_a_run_never_reaches_is_said() -> None:
    """The original's recipe drops its rate at epochs 81, 122 and 164 of a run of 90."""
    late = d5.schedules.Piecewise(0.1, {81: 0.01, 122: 0.001, 164: 0.0001})
    assert never(late, 90 * 5, 90) == (122, 164)
    assert never(d5.schedules.Cosine(0.1, 90), 90 * 5, 90) == ()
    with pytest.warns(UserWarning, match=r"at epoch 122, 164, but the run ends after 2 epochs of 12 steps"):
        trained(
            d5.optimizers.Scheduled(
                d5.optimizers.SGD(0.1),
                learning_rate=d5.schedules.Piecewise(0.1, {1: 0.01, 122: 1e-3, 164: 1e-4}),
            )
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=d5.schedules.Cosine(0.1, 2)))


WORD: Any = "cosine"
WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: d5.schedules.Piecewise(0.1, {}), "times and numbers"),
    (lambda: d5.schedules.Piecewise(0.1, {0: 0.1}), "a time of values"),
    (lambda: d5.schedules.Piecewise(0.1, {3: -1.0}), r"values\[3\]"),
    (lambda: d5.schedules.Cosine(0.1, 0), "length is 0"),
    (lambda: d5.schedules.Cosine(0.1, 5, unit="week"), "unit is 'week'"),
    (lambda: d5.schedules.Polynomial(0.1, 5, power=0), "power"),
    (lambda: d5.schedules.OneCycle(0.1, 5, rise=1.0), "rise"),
    (lambda: d5.schedules.WarmUp(WORD, 3), "after is 'cosine'"),
    (lambda: d5.schedules.WarmUp(d5.schedules.Cosine(0.1, 5), 3, unit="step"), "give both the same unit"),
    (lambda: d5.schedules.Computed(WORD), "function is 'cosine'"),
    (lambda: d5.optimizers.Scheduled(d5.optimizers.SGD(0.1)), "give one, as in"),
    (
        lambda: d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), momentum=d5.schedules.Cosine(0.1, 5)),
        "has no 'momentum' that could change"
    ),
    (lambda: d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=WORD), "must be a Schedule"),
    (
        lambda: d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1), momentum=d5.schedules.Piecewise(1.5, {3: 0.1})
        ), "momentum is 1.5"
    ),
    (
        lambda: d5.optimizers.Scheduled(d5.optimizers.SGD(0.1), learning_rate=d5.schedules.Cosine(0.1, 5)).at(
            1
        ), "nobody said how many steps"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("make", "words"), WRONG)
def test_a_wrong_schedule_is_an_error(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


@pytest.mark.parametrize("make", [lambda: np.ones(3, np.float32), lambda: torch.ones(3)])
@pytest.mark.parametrize(
    "rule", [d5.optimizers.SGD(0.1), d5.optimizers.Momentum(0.1, 0.9), d5.optimizers.Adam(0.1)], ids=repr
)
def test_a_rate_that_begins_or_ends_with_zero_moves_nothing_then(rule: d5.Optimizer, make: Any) -> None:
    """As every warm-up from 0 does in its first step, and a cosine behind its end."""
    scheduled = d5.optimizers.Scheduled(
        rule, learning_rate=d5.schedules.WarmUp(d5.schedules.Cosine(0.1, 4), 2)
    ).timed(1)
    x = make()
    state = scheduled.state_for(x, (Slot("w", 0, (3,)),))
    seen = []
    for _ in range(6):
        scheduled.step(x, 0 * x + 0.5, state)
        seen.append(float(x[0]))
    assert seen[0] == 1.0
    assert seen[0] > seen[1] > seen[2] > seen[3]
    assert seen[3] == seen[4] == seen[5]
