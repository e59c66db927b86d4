"""Claims about the transformer: its formulas in float64 NumPy, its parameters, that it only looks back."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.build import chain
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.networks.layers.layers import Dropout, Residual
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss

Array = np.ndarray[Any, Any]
LOSS = SoftmaxCrossEntropyLoss()


def made(shape: tuple[int, ...] = (6,), classes: int = 11, **options: Any) -> TorchExecutor:
    return from_model(
        "transformer", options, sample_shape=shape, classes=classes, loss=LOSS, seed=3, threads=1
    )


def tokens(batch: int, length: int, classes: int = 11, seed: int = 5) -> Array:
    return np.random.default_rng(seed).integers(0, classes, (batch, length))


def normalized(x: Array, weight: Array, bias: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return np.asarray(weight * centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5) + bias)


def attention(x: Array, into: tuple[Array, Array], out: tuple[Array, Array], heads: int) -> Array:
    """One sample, one head, one position at a time: softmax over those up to its own."""
    batch, length, width = x.shape
    size = width // heads
    queries, keys, values = np.split(x @ into[0].T + into[1], 3, axis=-1)
    mixed = np.zeros_like(x)
    for sample in range(batch):
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            for at in range(length):
                scores = keys[sample, : at + 1, own] @ queries[sample, at, own] / math.sqrt(size)
                weights = np.exp(scores - scores.max())
                mixed[sample, at, own] = weights / weights.sum() @ values[sample, : at + 1, own]
    return np.asarray(mixed @ out[0].T + out[1])


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def by_formula(parameters: list[Array], inputs: Array, depth: int, heads: int) -> Array:
    """The scores (batch, length, classes); parameters in the order in which the network has them."""
    left = iter(parameters)

    def two() -> tuple[Array, Array]:
        return next(left), next(left)

    x = next(left)[inputs] + next(left)[: inputs.shape[1]]
    for _ in range(depth):
        x = x + attention(normalized(x, *two()), two(), two(), heads)
        before = normalized(x, *two())
        wide, narrow = two(), two()
        x = x + gelu(before @ wide[0].T + wide[1]) @ narrow[0].T + narrow[1]
    x = normalized(x, *two())
    weight, bias = two()
    assert next(left, None) is None
    return np.asarray(x @ weight.T + bias)


@pytest.mark.parametrize(("heads", "depth", "context"), [(2, 2, None), (4, 1, 9)])
def test_its_scores_are_those_of_the_formulas(heads: int, depth: int, context: int | None) -> None:
    """In float64 to 1e-12, with all parameters drawn at random, also with more positions than are used."""
    options = {"width": 8, "heads": heads, "depth": depth, "context": context}
    module = chain(network("transformer", (6,), 11, **options), (6,)).double()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    inputs = tokens(3, 6)
    expected = by_formula([t.detach().numpy() for t in module.parameters()], inputs, depth, heads)
    found = module(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_it_begins_with_the_loss_of_guessing() -> None:
    """log 256 up to a tenth, since its scores begin small."""
    executor = made((16,), 256, width=32)
    inputs = tokens(8, 17, 256)
    found = executor.evaluate(inputs[:, :-1].copy(), inputs[:, 1:].copy())
    assert found.loss == pytest.approx(math.log(256) + 1 / 6, abs=0.1)


def test_accuracy_is_the_mean_over_all_positions() -> None:
    """A network that always says 3 is right as often as 3 is the next token; the loss is the closed form."""
    executor = made((6,), width=8, heads=2)
    executor.parameters *= 0
    slot = executor.slots[-1]
    executor.parameters[slot.offset + 3] = 2.0
    inputs, labels = tokens(400, 6), tokens(400, 6, seed=6)
    found = executor.evaluate(inputs, labels)
    assert found.accuracy == (labels == 3).mean()
    total = math.log(10 + math.e**2)
    assert found.loss == pytest.approx(total - 2 * (labels == 3).mean(), rel=1e-6)


# -- dropout -----------------------------------------------------------------------------------------------


def test_dropout_stands_behind_the_embedding_and_at_the_end_of_every_branch() -> None:
    layers = network("transformer", (6,), 11, dropout=0.25, depth=3)
    assert layers[2] == Dropout(0.25)
    branches = [layer for layer in layers if isinstance(layer, Residual)]
    assert len(branches) == 6 and all(branch.body[-1] == Dropout(0.25) for branch in branches)
    assert not any(isinstance(layer, Dropout) for layer in network("transformer", (6,), 11))


# -- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((1, 8, 8), {}, "Embedding(tokens=11, width=64) needs samples of shape (length,), found (1, 8, 8)"),
        ((8,), {"width": 6}, "needs a width that its heads can share evenly, found 6: choose a width of 4"),
        ((8,), {"depth": 0}, "depth is 0: it must be an integer of at least 1"),
        ((8,), {"context": 7}, "Positions(longest=7) needs sequences of at most 7, found 8"),
    ],
)
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        network("transformer", shape, 11, **options)
    assert words in str(caught.value)
