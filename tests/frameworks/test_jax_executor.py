"""Claims about the executor of JAX: PyTorch's gradients, a plain loop's training, state, random numbers"""

from typing import Any

import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.frameworks import jax as d5fw
from d5ray.networks.executors.flat_buffers import by_name

pytest.importorskip("jax", reason="JAX is not installed")
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.frameworks.jax_models import MODELS, Nnx, by_peer, peer_with

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)
IMAGES = RNG.standard_normal((40, 1, 8, 8)).astype(np.float32)
LABELS = RNG.integers(0, 10, 40)
XENT = d5.operators.SoftmaxCrossEntropyLoss()


def libraries(*quick: str) -> pytest.MarkDecorator:
    """A test for each library, of which the quick ones are in `make test`."""
    own = [each if each in quick else pytest.param(each, marks=pytest.mark.full) for each in MODELS]
    return pytest.mark.parametrize("library", own)


def made(model: Any, loss: Any = XENT, seed: int = 3, precision: str = "float32", **options: Any) -> Any:
    return d5fw.from_model(
        model, options, sample_shape=(1, 8, 8), classes=10, loss=loss, seed=seed, threads=1,
        precision=precision,
    )  # fmt: skip


def gradients(executor: Any) -> dict[str, Array]:
    return by_name(executor.gradients, executor.slots)


@libraries("nnx", "equinox")
def test_gradients_in_float64_are_those_of_pytorch(library: str) -> None:
    """A convolution, a BatchNorm over its batch and a linear layer, of the same weights."""
    executor = made(MODELS[library], precision="float64")
    reference = peer_with(library, executor.state_dict())
    scores = reference(torch.from_numpy(IMAGES).double())
    loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(LABELS))
    torch.autograd.backward(loss)
    assert executor.inference_and_backprop(IMAGES, LABELS) == pytest.approx(loss.item(), rel=1e-12)
    found = by_peer(library, gradients(executor))
    for name, tensor in reference.named_parameters():
        assert tensor.grad is not None
        np.testing.assert_allclose(found[name], tensor.grad.numpy(), rtol=1e-9, atol=1e-12)
    assert executor.gradients.dtype == np.float64


@libraries("nnx")
def test_evaluations_take_the_running_statistics(library: str) -> None:
    """After two passes the scores are the peer's in evaluation mode with the same statistics."""
    executor = made(MODELS[library], precision="float64")
    for part in (slice(0, 16), slice(16, 40)):
        executor.inference_and_backprop(IMAGES[part], LABELS[part])
    state = executor.state_dict()
    reference = peer_with(library, state)
    if library == "equinox":  # keeps a zero-debiased mean, and counts
        first, count = state["norm.batch_state_index.0"], state["norm.batch_counter"]
        assert count == 2
        scale = 1 - 0.9**2
        second = state["norm.batch_state_index.1"]
        own = {"1.running_mean": first / scale, "1.running_var": second / scale}
        reference.load_state_dict({name: torch.from_numpy(each) for name, each in own.items()}, strict=False)
    reference.eval()
    with torch.no_grad():
        wanted = reference(torch.from_numpy(IMAGES).double()).numpy()
    np.testing.assert_allclose(executor.inference(IMAGES), wanted, rtol=1e-9, atol=1e-11)
    found = executor.evaluate(IMAGES, LABELS)
    assert found.accuracy == (wanted.argmax(-1) == LABELS).mean()
    assert found.loss == pytest.approx(XENT.numpy(wanted, LABELS), rel=1e-9)


def test_twenty_steps_are_those_of_a_plain_loop_of_jax_and_optax() -> None:
    """Adam by d5ray on the flat buffer against `optax.adam` on the module, with a smaller last batch.

    In float64, since Adam makes steps of the rounding that a bias before a BatchNorm has for a gradient.
    """
    executor = made(Nnx, precision="float64")
    rule = d5.optimizers.Adam(0.01)
    state = rule.state_for(executor.parameters, executor.slots)
    parts = [slice(16 * (at % 3), 16 * (at % 3) + 16) for at in range(20)]  # every third has 8
    with jax.enable_x64(True):
        losses, wanted = plain_loop(Nnx(rngs=nnx.Rngs(3)), optax.adam(0.01), parts)
    for part, loss in zip(parts, losses, strict=True):
        found = executor.inference_and_backprop(IMAGES[part], LABELS[part])
        assert found == pytest.approx(loss, rel=1e-6)
        rule.step(executor.parameters, executor.gradients, state)
    own = executor.state_dict()
    assert own.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(own[name], value, atol=1e-6)


def plain_loop(module: Any, transform: Any, parts: list[slice]) -> tuple[list[float], dict[str, Array]]:
    """The losses and last variables of a training as Flax's guide writes it, in float64."""
    graph, *split = nnx.split(module, nnx.Param, nnx.BatchStat, ...)
    parameters, statistics, others = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, split
    )
    memory = transform.init(parameters)

    @jax.jit  # type: ignore[untyped-decorator]
    def step(parameters: Any, statistics: Any, memory: Any, images: Any, labels: Any) -> Any:
        def loss_of(parameters: Any, statistics: Any) -> Any:
            own = nnx.merge(graph, parameters, jax.tree.map(jnp.copy, statistics), others)
            loss = optax.softmax_cross_entropy_with_integer_labels(own(images), labels).mean()
            return loss, nnx.state(own, nnx.BatchStat)

        (loss, after), slopes = jax.value_and_grad(loss_of, has_aux=True)(parameters, statistics)
        moves, memory = transform.update(slopes, memory)
        return loss, optax.apply_updates(parameters, moves), after, memory

    losses = []
    for part in parts:
        images = IMAGES[part].astype(np.float64)
        loss, parameters, statistics, memory = step(parameters, statistics, memory, images, LABELS[part])
        losses.append(float(loss))
    found = [*nnx.to_flat_state(parameters), *nnx.to_flat_state(statistics)]
    return losses, {".".join(map(str, path)): np.asarray(value[...]) for path, value in found}


@libraries("nnx")
def test_bfloat16_rounds_products_and_keeps_masters_in_float32(library: str) -> None:
    """Gradients differ from float32's by what eight bits explain; evaluations are those of float32."""
    half, full = made(MODELS[library], precision="bfloat16"), made(MODELS[library])
    np.testing.assert_array_equal(half.inference(IMAGES), full.inference(IMAGES))
    for each in (half, full):
        each.inference_and_backprop(IMAGES, LABELS)
    assert half.parameters.dtype == half.gradients.dtype == half.buffers.dtype == np.float32
    away = np.linalg.norm(half.gradients - full.gradients) / np.linalg.norm(full.gradients)
    assert 1e-4 < away < 3e-2


def test_losses_of_ones_own_and_of_optax() -> None:
    """A function of (output, labels) sees the whole output, nested to any depth."""

    class Pair(nnx.Module):  # type: ignore[misc]
        def __init__(self, *, rngs: nnx.Rngs) -> None:
            self.head = nnx.Linear(64, 10, rngs=rngs)

        def __call__(self, images: Any) -> Any:
            found = {"logits": self.head(images.reshape(len(images), -1)), "twice": 2.0}
            return {"heads": ({"scores": found["logits"]}, found)}

    def mean(output: Any, labels: Any) -> Any:
        output = output["heads"][1]
        each = optax.softmax_cross_entropy_with_integer_labels(output["logits"], labels)
        return each.mean() * output["twice"] / 2

    own, theirs = made(Pair), made(Pair, d5.operators.FunctionLoss(mean, classifies=True))
    losses = [each.inference_and_backprop(IMAGES, LABELS) for each in (own, theirs)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    np.testing.assert_allclose(own.gradients, theirs.gradients, atol=1e-7)
    assert theirs.evaluate(IMAGES, LABELS).accuracy == own.evaluate(IMAGES, LABELS).accuracy


def test_inputs_of_several_arrays_go_by_name_or_place() -> None:
    """A dictionary by name, a tuple by place, to the same scores."""

    class Two(nnx.Module):  # type: ignore[misc]
        def __init__(self, *, rngs: nnx.Rngs) -> None:
            self.head = nnx.Linear(6, 3, rngs=rngs)

        def __call__(self, left: Any, right: Any) -> Any:
            return self.head(jnp.concatenate([left, right], -1))

    left, right = IMAGES.reshape(40, 64)[:, :2], IMAGES.reshape(40, 64)[:, 2:6]
    tuples, names = (
        d5fw.from_model(Two, {}, sample_shape=shape, classes=3, loss=XENT, seed=1, threads=1)
        for shape in (((2,), (4,)), {"right": (4,), "left": (2,)})
    )
    both: tuple[Any, Any] = (left, right), {"right": right, "left": left}
    scores, named = tuples.inference(both[0]), tuples.named_parameters()
    np.testing.assert_array_equal(scores, names.inference(both[1]))
    wanted = np.concatenate([left, right], -1) @ named["head.kernel"] + named["head.bias"]
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-5)
