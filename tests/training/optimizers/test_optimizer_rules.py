"""Claims about every level-2 rule: torch.optim where it has it, else the paper's formula tensor by tensor"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.distributed.parameter_server.servers import Servers
from d5ray.errors import ConfigurationError
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.training.optimizers.optimizer import BLOCK, Optimizer
from tests.training.optimizers.test_every_rule import RULES, native

Array = np.ndarray[Any, Any]
SHAPES = {"first": (4, 3), "bias": (3,), "kernel": (5, 2, 3, 3), "square": (6, 6), "last": (1,)}
KINDS = ("numpy", "torch")


def slots_of(shapes: dict[str, tuple[int, ...]]) -> tuple[Slot, ...]:
    found, offset = [], 0
    for name, shape in shapes.items():
        found.append(Slot(name, offset, shape))
        offset += found[-1].size
    return tuple(found)


SLOTS = slots_of(SHAPES)
SIZE = sum(slot.size for slot in SLOTS)


def array_of(values: Any, kind: str) -> Any:
    array = np.array(values, dtype=np.float64)
    return torch.from_numpy(array) if kind == "torch" else array


def views(flat: Any, slots: tuple[Slot, ...] = SLOTS) -> list[Any]:
    return [flat[slot.offset : slot.offset + slot.size].reshape(slot.shape) for slot in slots]


def walk(rule: Optimizer, start: Array, gradients: Array, kind: str, slots: tuple[Slot, ...]) -> list[Array]:
    """The parameters after each step; the gradient must come out as it went in."""
    x = array_of(start, kind)
    state, found = rule.state_for(x, slots), []
    for gradient in gradients:
        given = array_of(gradient, kind)
        rule.prepare(x, state)
        rule.step(x, given, state)
        np.testing.assert_array_equal(np.asarray(given), gradient)
        found.append(np.asarray(x).copy())
    return found


def draws(steps: int, size: int = SIZE) -> tuple[Array, Array]:
    rng = np.random.default_rng(7)
    return rng.standard_normal(size), rng.standard_normal((steps, size)) * rng.choice(
        [0.01, 1, 30], (steps, 1)
    )


@pytest.fixture
def in_float64() -> Iterator[None]:
    """PyTorch keeps numbers of its own, such as step counts, in the default type."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


# -- against torch.optim ---------------------------------------------------------------------------------

OTHER_SETTINGS = {
    "Momentum, less of it": (d5.optimizers.Momentum(0.01, 0.5), native("SGD", lr=0.01, momentum=0.5)),
    "RMSProp, quicker": (d5.optimizers.RMSProp(0.02, 0.9), native("RMSprop", lr=0.02, alpha=0.9)),
    "Adam, other moments": (
        d5.optimizers.Adam(0.01, 0.7, 0.95, 1e-4), native("Adam", lr=0.01, betas=(0.7, 0.95), eps=1e-4)
    ),
    "Adafactor, decaying": (
        d5.optimizers.Adafactor(0.3, weight_decay=0.1), native("Adafactor", lr=0.3, weight_decay=0.1)
    ),
    "LBFGS, short": (d5.optimizers.LBFGS(0.5, 4), native("LBFGS", lr=0.5, max_iter=1, history_size=4)),
    "WeightDecay of Adam": (
        d5.optimizers.WeightDecay(d5.optimizers.Adam(0.01), 0.1), native("Adam", lr=0.01, weight_decay=0.1)
    ),
}  # fmt: skip
PEERS = {name: (row.rule, row.peer) for name, row in RULES.items() if row.peer is not None} | OTHER_SETTINGS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PEERS)
def test_a_rule_is_that_of_torch_optim(name: str, kind: str, in_float64: None) -> None:
    """Thirty steps over tensors of one to four dimensions, gradients of very different size."""
    rule, theirs = PEERS[name]
    start, gradients = draws(30)
    tensors = [torch.tensor(view) for view in views(start)]
    peer = getattr(torch.optim, theirs.rule)(tensors, **theirs.settings)
    for gradient, found in zip(gradients, walk(rule, start, gradients, kind, SLOTS), strict=True):
        for tensor, view in zip(tensors, views(gradient), strict=True):
            tensor.grad = torch.tensor(view)
        peer.step(lambda: 0.0)
        expected = np.concatenate([tensor.numpy().ravel() for tensor in tensors])
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", KINDS)
def test_muon_moves_matrices_as_torch_does(kind: str) -> None:
    """Within the precision of bfloat16, in which PyTorch iterates: tall, wide and square matrices."""
    slots = slots_of({"tall": (20, 4), "wide": (4, 20), "square": (8, 8)})
    start, gradients = draws(5, sum(slot.size for slot in slots))
    tensors = [torch.tensor(view, dtype=torch.float32) for view in views(start, slots)]
    peer = torch.optim.Muon(tensors, lr=0.1, weight_decay=0.2, momentum=0.9)
    found = walk(d5.optimizers.Muon(0.1, 0.9, 0.2), start, gradients, kind, slots)
    for gradient in gradients:
        for tensor, view in zip(tensors, views(gradient, slots), strict=True):
            tensor.grad = torch.tensor(view, dtype=torch.float32)
        peer.step()  # type: ignore[no-untyped-call]
    expected = np.concatenate([tensor.numpy().ravel() for tensor in tensors])
    np.testing.assert_allclose(found[-1], expected, atol=0.01)  # of steps of 0.1 to 0.5


# -- against the paper -----------------------------------------------------------------------------------


def lion(start: Array, gradients: Array) -> list[Array]:
    w, m, found = start.copy(), np.zeros_like(start), []
    for g in gradients:
        w = w - 0.01 * (np.sign(0.9 * m + 0.1 * g) + 0.3 * w)
        m = 0.99 * m + 0.01 * g
        found.append(w)
    return found


def lars(start: Array, gradients: Array) -> list[Array]:
    tensors = [view.copy() for view in views(start)]
    velocities = [np.zeros_like(w) for w in tensors]
    found = []
    for gradient in gradients:
        for i, g in enumerate(views(gradient)):
            w = tensors[i]
            flat = w.ndim == 1
            ratio = (
                1
                if flat
                else 0.02 * np.sqrt((w**2).sum()) / (np.sqrt((g**2).sum()) + 0.1 * np.sqrt((w**2).sum()))
            )
            velocities[i] = 0.8 * velocities[i] + 0.5 * ratio * (g if flat else g + 0.1 * w)
            tensors[i] = w - velocities[i]
        found.append(np.concatenate([w.ravel() for w in tensors]))
    return found


def lamb(start: Array, gradients: Array) -> list[Array]:
    tensors = [view.copy() for view in views(start)]
    ms, vs = ([np.zeros_like(w) for w in tensors] for _ in range(2))
    found = []
    for t, gradient in enumerate(gradients, 1):
        for i, g in enumerate(views(gradient)):
            ms[i] = 0.9 * ms[i] + 0.1 * g
            vs[i] = 0.999 * vs[i] + 0.001 * g**2
            r = ms[i] / (1 - 0.9**t) / (np.sqrt(vs[i] / (1 - 0.999**t)) + 1e-6)
            ratio: Any = 1.0
            if g.ndim > 1:
                r = r + 0.1 * tensors[i]
                ratio = np.linalg.norm(tensors[i].ravel()) / np.linalg.norm(r.ravel())
            tensors[i] = tensors[i] - 0.02 * ratio * r
        found.append(np.concatenate([w.ravel() for w in tensors]))
    return found


def accelegrad(start: Array, gradients: Array) -> list[Array]:
    """Algorithm 2 of the paper; what is compared is the x of the next step."""
    y, z, found = start.copy(), start.copy(), []
    total: Any = 0.0
    for t, g in enumerate(gradients):
        alpha = 1.0 if t <= 2 else (t + 1) / 4
        x = z / alpha + (1 - 1 / alpha) * y
        total += alpha**2 * (g @ g)
        eta = 2 * 3.0 / np.sqrt(2.0**2 + total)
        z = z - alpha * eta * g
        y = x - eta * g
        after = 1.0 if t + 1 <= 2 else (t + 2) / 4
        found.append(z / after + (1 - 1 / after) * y)
    return found


def root(matrix: Array, exponent: float) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray(vectors @ np.diag(values**exponent) @ vectors.T)


def shampoo(start: Array, gradients: Array) -> list[Array]:
    """With einsum for every dimension, and roots of all factors anew every second step."""
    tensors = [view.copy() for view in views(start)]
    factors = [[0.01 * np.eye(n) for n in w.shape] for w in tensors]
    roots: list[list[Array]] = [[np.empty(0)] * w.ndim for w in tensors]
    velocities, found = [np.zeros_like(w) for w in tensors], []
    for step, gradient in enumerate(gradients):
        for i, g in enumerate(views(gradient)):
            u = g
            for axis in range(g.ndim):
                others = [other for other in range(g.ndim) if other != axis]
                factors[i][axis] = factors[i][axis] + np.tensordot(g, g, (others, others))
                if step % 2 == 0:
                    roots[i][axis] = root(factors[i][axis], -1 / (2 * g.ndim))
                u = np.moveaxis(np.tensordot(roots[i][axis], u, (1, axis)), 0, axis)
            velocities[i] = 0.5 * velocities[i] + u
            tensors[i] = tensors[i] - 0.1 * velocities[i]
        found.append(np.concatenate([w.ravel() for w in tensors]))
    return found


def clipped_momentum(start: Array, gradients: Array) -> list[Array]:
    x, v, found = start.copy(), np.zeros_like(start), []
    for g in gradients:
        v = 0.9 * v + g * min(1.0, 2.0 / np.linalg.norm(g))
        x = x - 0.1 * v
        found.append(x)
    return found


def clipped_descent(start: Array, gradients: Array) -> list[Array]:
    return list(start - 0.1 * np.cumsum(np.minimum(np.maximum(gradients, -0.5), 0.5), axis=0))


PAPERS: dict[str, tuple[Optimizer, Callable[[Array, Array], list[Array]]]] = {
    "Lion": (d5.optimizers.Lion(0.01, weight_decay=0.3), lion),
    "LARS": (d5.optimizers.LARS(0.5, 0.8, 0.1, 0.02), lars),
    "LAMB": (d5.optimizers.LAMB(0.02, weight_decay=0.1), lamb),
    "AcceleGrad": (d5.optimizers.AcceleGrad(1.0, 3.0, 2.0), accelegrad),
    "Shampoo": (d5.optimizers.Shampoo(0.1, 0.5, 0.01, period=2), shampoo),
    "clipped by norm": (d5.optimizers.ClipNorm(d5.optimizers.Momentum(0.1), 2.0), clipped_momentum),
    "clipped by value": (d5.optimizers.ClipValue(d5.optimizers.SGD(0.1), 0.5), clipped_descent),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PAPERS)
def test_a_rule_is_its_paper(name: str, kind: str) -> None:
    """Twelve steps in float64."""
    rule, paper = PAPERS[name]
    start, gradients = draws(12)
    found = walk(rule, start, gradients, kind, SLOTS)
    for step, expected in zip(found, paper(start, gradients), strict=True):
        np.testing.assert_allclose(step, expected, rtol=1e-9, atol=1e-11)


# -- one table of all rules and what they share ----------------------------------------------------------

ALL = {
    **{name: rule for name, (rule, _) in (PEERS | PAPERS).items()}, "Muon": d5.optimizers.Muon(0.1),
}  # fmt: skip
ELEMENTWISE = {name: rule for name, rule in ALL.items() if rule.elementwise}


@pytest.mark.parametrize("name", ALL)
def test_a_gradient_of_zero_moves_nothing_but_what_decays(name: str) -> None:
    """From the start, where no momentum is: NaN or a move without a gradient would be an error."""
    start, _ = draws(1)
    found = walk(ALL[name], start, np.zeros((3, SIZE)), "numpy", SLOTS)[-1]
    decays = ("AdamW", "Lion", "LARS", "LAMB", "Adafactor", "WeightDecay")
    if name.startswith(decays):
        assert np.isfinite(found).all()
    else:
        np.testing.assert_allclose(found, start, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_rule_goes_through_blocks_and_parts_to_the_same_bits(name: str, kind: str) -> None:
    """Whole, in blocks through the cache, and in two parts with states of their own: equal bits."""
    rule = ALL[name]
    size = 2 * BLOCK + 17
    rng = np.random.default_rng(1)
    start, gradients = rng.standard_normal(size), rng.standard_normal((3, size))
    blocked = walk(rule, start, gradients, kind, ())[-1]
    cut = BLOCK - 5
    halves = [
        walk(rule, start[part], gradients[:, part], kind, ())[-1] for part in (slice(cut), slice(cut, None))
    ]
    np.testing.assert_array_equal(blocked, np.concatenate(halves))
    x = array_of(start, kind)
    state = rule.state(x)
    for gradient in gradients:
        rule.advance(state)
        rule.update(x, array_of(gradient, kind), state)
    np.testing.assert_array_equal(blocked, np.asarray(x))


@pytest.mark.parametrize("name", [name for name in ALL if name not in ELEMENTWISE])
def test_a_rule_that_looks_at_all_coordinates_gets_them_at_once(name: str) -> None:
    assert [part for part, _ in ALL[name].blocks(np.zeros(2 * BLOCK), {})] == [slice(None)]


@pytest.mark.parametrize("name", ALL)
def test_the_learning_rate_can_be_replaced(name: str) -> None:
    """`with_rate` gives the same rule with that rate, also behind clipping and decay."""
    assert ALL[name].with_rate(0.125).learning_rate == 0.125
    assert type(ALL[name].with_rate(0.125)) is type(ALL[name])


NONE: Any = None
WRONG: list[Any] = [
    lambda: d5.optimizers.SGD(float("inf")), lambda: d5.optimizers.Momentum(0.1, 1.0),
    lambda: d5.optimizers.Nesterov(0.1, -0.1), lambda: d5.optimizers.Adam(0.0),
    lambda: d5.optimizers.Adam(0.1, 1.0),
    lambda: d5.optimizers.Adam(0.1, 0.9, -0.1),
    lambda: d5.optimizers.Adam(epsilon=0.0),
    lambda: d5.optimizers.AdamW(0.1, weight_decay=-1.0), lambda: d5.optimizers.RMSProp(0.1, 1.0),
    lambda: d5.optimizers.Muon(0.1, iterations=0), lambda: d5.optimizers.Shampoo(0.1, period=0),
    lambda: d5.optimizers.LBFGS(1.0, 0), lambda: d5.optimizers.Lion(float("nan")),
    lambda: d5.optimizers.ClipNorm(d5.optimizers.SGD(0.1), 0.0), lambda: d5.optimizers.ClipNorm(NONE, 1.0),
    lambda: d5.optimizers.LARS(0.1, trust=0.0),
    lambda: d5.optimizers.AcceleGrad(1.0, 0.0), lambda: d5.optimizers.Adafactor(0.1, decay_power=0.5),
]  # fmt: skip


@pytest.mark.parametrize("make", WRONG)
def test_a_wrong_hyperparameter_is_an_error(make: Callable[[], Optimizer]) -> None:
    with pytest.raises(ConfigurationError, match=r"it must be"):
        make()


# -- where a rule needs more than a part -----------------------------------------------------------------


def test_servers_with_shards_refuse_rules_that_must_see_everything() -> None:
    """LAMB looks at tensors, which no server knows; AcceleGrad at all parameters, which one shard has."""
    for optimizer, shards in (
        (d5.optimizers.LAMB(), 1),
        (d5.optimizers.AcceleGrad(), 2),
        (d5.optimizers.ClipNorm(d5.optimizers.SGD(0.1), 1.0), 2),
    ):
        with pytest.raises(ConfigurationError, match="must see"):
            d5.Experiment(
                model="lenet", dataset="digits", optimizer=optimizer, distributed=d5.optimizers.ASGD(),
                agents=2,
                servers=Servers(shards=shards),
            )  # fmt: skip


def test_shampoo_stays_finite_where_rounding_makes_eigenvalues_negative() -> None:
    """H = ε + g gᵀ for a large g is not positive definite in float32."""
    slots = (Slot("w", 0, (6, 5)),)
    x = torch.ones(30)
    rule = d5.optimizers.Shampoo(0.1)
    state = rule.state_for(x, slots)
    gradient = torch.outer(torch.arange(1.0, 7.0), torch.arange(1.0, 6.0)).reshape(-1) * 1e2
    for _ in range(3):
        rule.step(x, gradient, state)
    assert bool(torch.isfinite(x).all())


@pytest.mark.parametrize(
    "rule",
    [
        d5.optimizers.Momentum(0.1, 0.9),
        d5.optimizers.ClipNorm(d5.optimizers.Adam(0.01), 1.0),
        d5.optimizers.Scheduled(
            d5.optimizers.SGD(1.0), learning_rate=d5.schedules.Cosine(0.1, 9, unit="step")
        ),
        d5.optimizers.Scheduled(
            d5.optimizers.Momentum(0.1, 0.9), momentum=d5.schedules.Piecewise(0.5, {1: 0.9})
        ),
        d5.optimizers.WeightDecay(
            d5.optimizers.Scheduled(d5.optimizers.SGD(1.0), learning_rate=d5.schedules.WarmUp(0.1, 3)), 0.1
        ),
    ],
    ids=repr,
)
def test_a_scaled_rule_has_that_many_times_the_rate_at_every_step(rule: d5.Optimizer) -> None:
    """Also by a schedule, whose unit and epochs stay; a state of the one goes on with the other."""
    timed = rule.timed(4)
    scaled = timed.scaled(0.25)
    for step in range(12):
        assert scaled.at(step).learning_rate == pytest.approx(0.25 * timed.at(step).learning_rate, rel=1e-12)
    x, state = np.ones(3), timed.state(np.ones(3))
    for each in (timed, scaled):
        each.step(x, np.ones(3), state)
    assert scaled.schedules or not rule.schedules


def test_accelegrad_is_accelerated() -> None:
    """On a quadratic of condition 1,000: below gradient descent at its best rate after 300 steps."""
    curvatures = np.logspace(-3, 0, 20)
    losses = {}
    for rule in (d5.optimizers.AcceleGrad(1.0, 5.0, 1.0), d5.optimizers.SGD(1.9)):
        x = np.ones(20)
        state = rule.state(x)
        for _ in range(300):
            rule.step(x, curvatures * x, state)
        losses[type(rule).__name__] = float((curvatures * x * x).sum())
    assert losses["AcceleGrad"] < 0.5 * losses["SGD"]


def test_lbfgs_is_quicker_than_any_constant_rate() -> None:
    """Condition 10, 20 dimensions, 100 steps: far below ((κ − 1) / (κ + 1))¹⁰⁰ = 2e-9 of the start."""
    curvatures = np.logspace(-1, 0, 20)
    x, rule = np.ones(20), d5.optimizers.LBFGS(1.0, 20)
    state = rule.state(x)
    for _ in range(100):
        rule.step(x, curvatures * x, state)
    assert np.linalg.norm(curvatures * x) < 1e-12 * np.linalg.norm(curvatures)


def test_a_rule_that_must_see_everything_is_not_given_parts() -> None:
    """Sharded allreduce updates a slice on every agent."""
    wanted = d5.Experiment(
        model="lenet",
        dataset="digits",
        optimizer=d5.optimizers.LAMB(),
        distributed=d5.optimizers.ShardedAllreduceSGD(),
        agents=2,
    )
    with pytest.raises(Exception, match="must see all parameters"), d5.simulate(wanted) as group:
        group.train(2, progress=False)
