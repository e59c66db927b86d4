"""Laws of agents' executors, for every framework: announcements, buffers, draws, state, evaluation"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.frameworks import executor_by_name
from d5ray.frameworks.initial_values import trainable_network
from d5ray.frameworks.torch.build import chain, seeded
from d5ray.networks.executors.accumulating import AccumulatingExecutor
from d5ray.networks.executors.executor import Executor
from d5ray.networks.layers.from_layers import network_from_layers
from d5ray.networks.layers.layers import BatchNorm, Conv, Dropout, Flatten, Layer, Linear, Relu
from d5ray.networks.network import Network
from tests.frameworks.small_networks import of_cupy

Array = np.ndarray[Any, Any]
SHAPE = (1, 8, 8)
LOSS = d5.operators.SoftmaxCrossEntropyLoss()
RNG = np.random.default_rng(5)
IMAGES, LABELS = RNG.standard_normal((24, *SHAPE)).astype(np.float32), RNG.integers(0, 10, 24)
FIRST, SECOND = (IMAGES[:12], LABELS[:12]), (IMAGES[12:], LABELS[12:])


def layers(dropout: float) -> tuple[Layer, ...]:
    return Conv(3, 3, 1), BatchNorm(), Relu(), Flatten(), Dropout(dropout), Linear(10)


def network(dropout: float) -> Network:
    module = seeded(layers(dropout), SHAPE, 3)
    values = {name: tensor.numpy().copy() for name, tensor in module.state_dict().items()}
    return network_from_layers(layers(dropout), SHAPE, values)


def of_keras(dropout: float) -> Callable[[], Any]:
    keras = pytest.importorskip("keras")
    of = keras.layers
    return lambda: keras.Sequential([
        keras.Input(SHAPE), of.Reshape((8, 8, 1)), of.Conv2D(3, 3, padding="same"), of.BatchNormalization(),
        of.ReLU(), of.Flatten(), of.Dropout(dropout), of.Dense(10),
    ])  # fmt: skip


def of_flax(dropout: float) -> Callable[..., Any]:
    pytest.importorskip("jax")
    from tests.frameworks.jax_models import Nnx  # noqa: PLC0415 - imports JAX

    return lambda *, rngs: Nnx(dropout, rngs=rngs)


def module(dropout: float) -> Callable[[], Any]:
    return lambda: chain(layers(dropout), SHAPE)


MAKERS: dict[str, tuple[str, Callable[[float], Any], dict[str, Any]]] = {
    "NumPy, a Network": ("numpy", network, {}),
    "CuPy, a Network": ("cupy", network, {}),
    "PyTorch, a module": ("torch", module, {}),
    "PyTorch, recomputed": ("torch", module, {"recompute": True}),
    "PyTorch, bfloat16": ("torch", module, {"precision": "bfloat16"}),
    "PyTorch, float16": ("torch", module, {"precision": "float16"}),
    "PyTorch, in one piece": ("torch", module, {}),  # behind a wrapper
    "TensorFlow, a Network": ("tensorflow", network, {}),
    "TensorFlow, a Keras model": ("tensorflow", of_keras, {}),
    "JAX, a Flax model": ("jax", of_flax, {}),
}
MARKS = {
    "CuPy, a Network": of_cupy,
    **dict.fromkeys([kind for kind in MAKERS if kind.startswith("PyTorch")], pytest.mark.every_case),  # quick
}
KINDS = [pytest.param(kind, marks=MARKS.get(kind, ())) for kind in MAKERS]
every_executor = pytest.mark.parametrize("kind", KINDS)


def made(kind: str, dropout: float = 0.0, seed: int = 3) -> Executor:
    framework, model, options = MAKERS[kind]
    pytest.importorskip(framework)
    found: Executor = executor_by_name(framework)(
        model(dropout), {}, sample_shape=SHAPE, classes=10, loss=LOSS, seed=seed, threads=1, **options
    )
    return AccumulatingExecutor(found, LOSS, 1) if kind.endswith("in one piece") else found


def numbers(flat: Any) -> Array:
    """A copy in host memory."""
    of = next((each for each in ("numpy", "get") if hasattr(flat, each)), None)
    return np.array(getattr(flat, of)() if of else flat)


def near(found: Any, expected: Any, *, exact: bool = False) -> None:
    rtol, atol = (0.0, 0.0) if exact else (1e-5, 1e-7)
    np.testing.assert_allclose(numbers(found), numbers(expected), rtol=rtol, atol=atol)


@every_executor
def test_what_is_announced_is_the_gradient(kind: str) -> None:
    """Every range once, in the order of `buckets`, complete, and from then on it belongs to the callee."""
    under_test, twin = made(kind), made(kind)
    told: list[tuple[int, int]] = []

    def on_ready(begin: int, end: int) -> None:
        told.append((begin, end))
        near(under_test.gradients[begin:end], twin.gradients[begin:end], exact="PyTorch" in kind)
        under_test.gradients[begin:end] = 7

    for bucket_bytes, batch in ((800, FIRST), (800, SECOND), (10**9, SECOND)):
        told.clear()
        loss = twin.inference_and_backprop(*batch)
        ranges = under_test.buckets(bucket_bytes)
        assert (len(ranges) == 1) == (bucket_bytes == 10**9)
        assert under_test.inference_and_backprop(*batch, on_ready) == pytest.approx(loss, rel=1e-5)
        assert tuple(told) == ranges and (numbers(under_test.gradients) == 7).all()
    assert under_test.forward_ns > 0 and under_test.backward_ns > 0
    under_test.inference_and_backprop(*SECOND)
    near(under_test.gradients, twin.gradients)


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if "CuPy" not in kind])
def test_buffers_can_be_moved_into_memory_that_is_given(kind: str) -> None:
    """Values stay, passes go on there, and memory that overlaps or has another shape is refused."""
    under_test, twin = made(kind), made(kind)
    blocks: list[Array] = []

    def allocate(count: int, name: str) -> Array:
        blocks.append(np.full(count, np.nan, name))
        return blocks[-1]

    for each in (under_test, twin):
        each.inference_and_backprop(*FIRST)
    under_test.use_buffers(allocate)
    near(blocks[0], twin.parameters)
    near(blocks[1], twin.gradients)
    for each in (under_test, twin):
        each.parameters *= 0.5
    for batch in (FIRST, SECOND):
        loss = twin.inference_and_backprop(*batch)
        assert under_test.inference_and_backprop(*batch) == pytest.approx(loss, rel=1e-5)
        near(blocks[1], twin.gradients)
        near(blocks[0], twin.parameters)
        for each in (under_test, twin):
            each.parameters -= 0.1 * each.gradients
    same = np.zeros(len(blocks[0]), np.float32)
    with pytest.raises(ConfigurationError, match="overlapping memory"):
        under_test.use_buffers(lambda count, name: same)
    with pytest.raises(ConfigurationError, match=r"allocate gave an array of shape \(3,\) and type float64"):
        under_test.use_buffers(lambda count, name: np.zeros(3))


@every_executor
def test_what_is_dropped_follows_from_seed_rank_and_pass(kind: str) -> None:
    """Others' draws do not matter; who goes on from a state draws what would have been; inference none."""
    one, other, resumed = (made(kind, dropout=0.5) for _ in range(3))

    def losses(each: Executor, seed: int, rank: int) -> list[float]:
        each.draw_from(seed, rank)
        found = []
        for _ in range(2):
            found.append(each.inference_and_backprop(*FIRST))
            other.inference_and_backprop(*SECOND)
            np.random.standard_normal()  # noqa: NPY002 - as another part of the process does
        return found

    first = losses(one, 3, 1)
    state = one.random_state()
    expected = one.inference_and_backprop(*FIRST)
    resumed.draw_from(3, 1)
    resumed.set_random_state(state)
    assert resumed.inference_and_backprop(*FIRST) == pytest.approx(expected, rel=1e-6)
    assert losses(resumed, 3, 1) == pytest.approx(first, rel=1e-6)
    assert len({*first, expected, *losses(one, 3, 0), *losses(one, 4, 1)}) == 7
    np.testing.assert_array_equal(one.inference(IMAGES), one.inference(IMAGES))


@every_executor
def test_running_statistics_are_the_untrained_state(kind: str) -> None:
    """Flat and named alike, moved by training passes alone, and taken from where they are written."""
    under_test = made(kind)
    before = under_test.named_state()
    under_test.evaluate(*FIRST)
    assert all((value == before[name]).all() for name, value in under_test.named_state().items())
    under_test.inference_and_backprop(*FIRST)
    after, scores = under_test.named_state(), under_test.inference(IMAGES)
    flat = [value.ravel() for value in after.values() if value.dtype == np.float32]
    np.testing.assert_array_equal(numbers(under_test.buffers), np.concatenate(flat))
    assert len(under_test.buffers) == 6
    assert all((after[name] != before[name]).any() for name in after)
    assert after.keys().isdisjoint(under_test.named_parameters())
    np.testing.assert_allclose(under_test.inference(IMAGES[:1]), scores[:1], rtol=1e-4, atol=1e-5)
    under_test.buffers *= 2
    assert np.abs(under_test.inference(IMAGES) - scores).max() > 1e-3


@every_executor
def test_an_evaluation_is_the_mean_over_all_samples(kind: str) -> None:
    """Whatever batches it makes of them; parameters and gradients are as before."""
    under_test = made(kind, dropout=0.5)
    under_test.inference_and_backprop(*FIRST)
    before = numbers(under_test.parameters), numbers(under_test.gradients)
    inputs = np.tile(IMAGES, (60, 1, 1, 1))[:1040] * np.float32(0.9)  # 1,024 of them at once
    labels = RNG.integers(0, 10, len(inputs))
    scores = np.concatenate([under_test.inference(part) for part in np.split(inputs, 8)])
    found = under_test.evaluate(inputs, labels)
    assert found.loss == pytest.approx(LOSS.numpy(scores, labels), rel=1e-5)
    assert found.accuracy == (scores.argmax(axis=1) == labels).mean()
    np.testing.assert_array_equal(numbers(under_test.parameters), before[0])
    np.testing.assert_array_equal(numbers(under_test.gradients), before[1])


@every_executor
def test_inputs_are_only_read(kind: str) -> None:
    """Arrays out of Ray's object store are read-only: equal results, and nothing is printed."""
    under_test, twin = made(kind), made(kind)
    inputs, labels = IMAGES.copy(), LABELS.copy()
    inputs.flags.writeable = labels.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = under_test.inference_and_backprop(inputs, labels)
        found = under_test.evaluate(inputs, labels)
        under_test.inference(inputs)
    assert twin.inference_and_backprop(IMAGES, LABELS) == pytest.approx(loss, rel=1e-6)
    assert twin.evaluate(IMAGES, LABELS).loss == pytest.approx(found.loss, rel=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in MAKERS if "Network" not in kind])
def test_a_models_first_parameters_follow_from_the_seed(kind: str) -> None:
    """Whatever was made in between."""
    first, again, other = (made(kind, seed=seed) for seed in (3, 3, 4))
    np.testing.assert_array_equal(numbers(first.parameters), numbers(again.parameters))
    assert [slot.name for slot in first.slots] == [slot.name for slot in again.slots]
    assert (numbers(first.parameters) != numbers(other.parameters)).any()


def test_a_module_as_a_network_begins_as_under_pytorch_with_the_same_seed() -> None:
    plain = made("PyTorch, a module", seed=4)
    found = trainable_network(module(0.0), {}, SHAPE, 10, LOSS, seed=4).network.parameters
    for slot in plain.slots:
        values = numbers(plain.parameters)[slot.offset : slot.offset + slot.size]
        np.testing.assert_array_equal(found[slot.name].ravel(), values)
