"""Claims about the transformer: its formulas in float64 NumPy, its parameters, that it only looks back."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import d5ray as d5
from benchmarks.simulation_speed.worker import inner_of
from d5ray.errors import ConfigurationError
from d5ray.frameworks.torch import from_model
from d5ray.frameworks.torch.build import chain
from d5ray.frameworks.torch.executor import TorchExecutor
from d5ray.networks.layers.layers import Dropout, Residual, chain_shape
from d5ray.networks.zoo.catalogue import network
from d5ray.ops.losses.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss
from d5ray.training.datasets import Dataset, Split

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


@pytest.mark.parametrize(("heads", "depth", "context"), [(1, 1, None), (2, 2, None), (4, 1, 9)])
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


@pytest.mark.full
def test_gradients_are_central_differences() -> None:
    """Of every parameter, through attention, normalization, GELU and both sums."""
    module = chain(network("transformer", (3,), 4, width=4, heads=2, depth=1), (3,)).double()
    names = [name for name, _ in module.named_parameters()]
    inputs = torch.from_numpy(tokens(2, 3, classes=4))

    def squares(*parameters: torch.Tensor) -> Any:
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), inputs).square()

    assert torch.autograd.gradcheck(squares, tuple(module.parameters()))


@pytest.mark.full
@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 12), st.integers(0, 3))
def test_it_has_the_parameters_of_the_closed_form(
    heads: int, depth: int, length: int, classes: int, more: int
) -> None:
    """depth (12 w² + 13 w) + (2 classes + context + 2) w + classes."""
    width = 4 * heads
    executor = made((length,), classes, width=width, heads=heads, depth=depth, context=length + more)
    block = 12 * width**2 + 13 * width
    rest = (2 * classes + length + more + 2) * width + classes
    assert len(executor.parameters) == depth * block + rest


@pytest.mark.full
@settings(derandomize=True, deadline=None, max_examples=20)
@given(st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_a_later_token_never_changes_an_earlier_score(at: int, seed: int) -> None:
    """Bit for bit before it; from it on, the scores change."""
    executor = made((8,), width=8, heads=2, depth=2)
    executor.parameters += 0.1
    inputs = tokens(2, 8, seed=seed)
    changed = inputs.copy()
    changed[:, at:] = (changed[:, at:] + 1 + tokens(2, 8 - at, 10, seed)) % 11
    before, after = executor.inference(inputs), executor.inference(changed)
    np.testing.assert_array_equal(before[:, :at], after[:, :at])
    assert (before[:, at:] != after[:, at:]).any(axis=-1).all()


def test_it_begins_with_the_loss_of_guessing() -> None:
    """log 256 up to a tenth, since its scores begin small."""
    executor = made((16,), 256, width=32)
    inputs = tokens(8, 17, 256)
    found = executor.evaluate(inputs[:, :-1].copy(), inputs[:, 1:].copy())
    assert found.loss == pytest.approx(math.log(256) + 1 / 6, abs=0.1)


def test_it_learns_what_follows() -> None:
    """A cycle of eleven tokens: after sixty steps it knows the next one, at every position."""
    executor = made((6,), width=16, heads=2, depth=1)
    inputs = (np.arange(11)[:, None] + np.arange(7)) % 11
    split = inputs[:, :-1].copy(), inputs[:, 1:].copy()
    for _ in range(60):
        executor.inference_and_backprop(*split)
        executor.parameters -= 0.5 * executor.gradients
    found = executor.evaluate(*split)
    assert found.accuracy == 1.0 and found.loss < 0.1


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


def losses(executor: TorchExecutor, steps: int = 3) -> list[float]:
    inputs, labels = tokens(4, 6), tokens(4, 6, seed=6)
    return [executor.inference_and_backprop(inputs, labels) for _ in range(steps)]


def test_every_agent_and_every_step_drops_something_else_again_and_again() -> None:
    """The same seed and rank draw the same masks; other ranks, seeds and steps others; evaluation none."""
    executors = [made(dropout=0.5) for _ in range(4)]
    for executor, (seed, rank) in zip(executors, ((3, 0), (3, 0), (3, 1), (4, 0)), strict=True):
        executor.draw_from(seed, rank)
    first, again, other_rank, other_seed = map(losses, executors)
    assert first == again
    assert len({*first, *other_rank, *other_seed}) == 9
    inputs = tokens(4, 6)
    np.testing.assert_array_equal(executors[0].inference(inputs), executors[2].inference(inputs))


def test_agents_of_one_process_do_not_disturb_each_other() -> None:
    """Whoever computes in between, or draws numbers of its own: a simulation is as repeatable as an agent."""
    alone, one, other = made(dropout=0.5), made(dropout=0.5), made(dropout=0.5)
    for executor, rank in ((alone, 1), (one, 1), (other, 0)):
        executor.draw_from(3, rank)
    expected = losses(alone)
    found = []
    for _ in range(3):
        found += losses(one, 1)
        losses(other, 1)
        torch.rand(5)
    assert found == expected


def test_who_goes_on_draws_what_would_have_been_drawn() -> None:
    """After three passes, in another executor: the fourth and the fifth are those of who never stopped."""
    whole, resumed = made(dropout=0.5), made(dropout=0.5)
    for executor in (whole, resumed):
        executor.draw_from(3, 1)
    begin = losses(whole, 3)
    state = whole.random_state()
    expected = losses(whole, 2)
    resumed.set_random_state(state)
    assert losses(resumed, 2) == expected != begin[:2]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_agents_of_an_experiment_draw_by_their_rank(tmp_path: Path, dropout: float) -> None:
    """On one and the same batch two agents with the same parameters drop different numbers, if any."""
    inputs = tokens(8, 6)
    data = Dataset("tokens", Split(inputs, inputs), Split(inputs, inputs), tuple(map(str, range(11))))
    experiment = d5.Experiment(
        model="transformer", model_kwargs={"dropout": dropout, "width": 8}, dataset=data,
        optimizer=d5.optimizers.SGD(0.1), agents=2, batch_size=4,
    )  # fmt: skip
    with d5.simulate(experiment, root=tmp_path) as group:
        executors = [inner_of(agent.executor) for agent in group.agents]
        found = [executor.inference_and_backprop(inputs, inputs) for executor in executors]
    assert (found[0] == found[1]) == (dropout == 0)


def test_a_dropped_share_is_what_was_asked_for_and_the_mean_stays() -> None:
    """Of 100,000 ones a quarter becomes 0, the others 4/3: within five standard deviations."""
    module = chain((Dropout(0.25),), (100_000,))
    torch.manual_seed(1)
    found = module(torch.ones(1, 100_000)).numpy()
    assert set(np.unique(found)) == {0.0, np.float32(4 / 3)}
    assert (found == 0).mean() == pytest.approx(0.25, abs=5 * math.sqrt(0.25 * 0.75 / 1e5))


# -- refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((1, 8, 8), {}, "Embedding(tokens=11, width=64) needs samples of shape (length,), found (1, 8, 8)"),
        ((8,), {"width": 6}, "needs a width that its heads can share evenly, found 6: choose a width of 4"),
        ((8,), {"width": 2}, "choose a width of 4, or another number of heads"),
        ((8,), {"width": 0}, "width of Embedding(tokens=11, width=0) must be an integer from 1 up"),
        ((8,), {"heads": 0}, "heads of CausalSelfAttention(heads=0) must be"),
        ((8,), {"depth": 0}, "depth is 0: it must be an integer of at least 1"),
        ((8,), {"context": 7}, "Positions(longest=7) needs sequences of at most 7, found 8"),
        ((8,), {"context": 0}, "longest of Positions(longest=0) must be"),
        ((8,), {"dropout": 1.0}, "share is 1.0"),
        ((8,), {"layers": 2}, "model_kwargs do not fit the model 'transformer'"),
    ],
)
def test_what_does_not_fit_is_refused(shape: tuple[int, ...], options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        network("transformer", shape, 11, **options)
    assert words in str(caught.value)


def test_shapes_as_data_are_those_that_pytorch_computes() -> None:
    """Layer by layer."""
    layers = network("transformer", (6,), 11, dropout=0.1)
    value = torch.from_numpy(tokens(2, 6))
    for count, part in enumerate(chain(layers, (6,)), start=1):
        value = part(value)
        assert tuple(value.shape) == (2, *chain_shape(layers[:count], (6,)))
    assert tuple(value.shape) == (2, 6, 11)


class Bag(torch.nn.Module):
    """A user's own network over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(11, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.table(inputs).mean(dim=1)
        return found


def test_a_module_of_ones_own_may_take_tokens() -> None:
    """It is tried with tokens where it does not take numbers, and its output is checked as ever."""
    executor = from_model(Bag, {}, sample_shape=(6,), classes=5, loss=LOSS, seed=3, threads=1)
    assert executor.inference(tokens(2, 6)).shape == (2, 5)
    with pytest.raises(ConfigurationError, match="4 classes needs"):
        from_model(Bag, {}, sample_shape=(6,), classes=4, loss=LOSS, seed=3, threads=1)
