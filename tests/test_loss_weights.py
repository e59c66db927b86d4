"""Losses that give (sum, weight): agents whose labels count differently, beside one process on all samples"""

import copy
import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import d5ray as d5
from d5ray.datasets import Split
from d5ray.errors import ConfigurationError
from d5ray.testing import same_as_torch
from tests.plain_torch import Array, Tensors, check_same, module_of, samples, trained

IGNORED, CLASSES, LENGTH, BATCH = -100, 3, 6, 4
AGENTS = 3
# The labels that count of each agent's samples, by step: very different, none on one, none on all.
COUNTS = [(6, 1, 3), (0, 5, 1), (6, 6, 6), (0, 0, 0), (2, 0, 0), (1, 6, 2)]
MASKED = d5.operators.MaskedCrossEntropyLoss()
OPTIMIZERS: dict[str, Any] = {
    "SGD": functools.partial(torch.optim.SGD, lr=0.3),
    "momentum": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": functools.partial(torch.optim.AdamW, lr=0.05, weight_decay=0.3),
}


def data(remainder: int = 0) -> d5.Dataset:
    """Sequences in the order in which agents take them, with as many labels as `COUNTS` says."""
    rng = np.random.default_rng(7)
    rows = [count for step in COUNTS for count in step for _ in range(BATCH)]
    rows += [(6, 0, 1, 5)[each % 4] for each in range(remainder)]
    inputs = rng.standard_normal((len(rows), LENGTH, 5)).astype(np.float32)
    labels = rng.integers(CLASSES, size=(len(rows), LENGTH))
    for row, count in enumerate(rows):
        labels[row, rng.permutation(LENGTH)[count:]] = IGNORED
    return d5.Dataset(
        "padded", Split(inputs, labels), Split(inputs[:9], labels[:9]), tuple(map(str, range(CLASSES)))
    )


def summed(output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    flat, truth = output.flatten(end_dim=-2), labels.flatten()
    return F.cross_entropy(flat, truth, ignore_index=IGNORED, reduction="sum"), (truth != IGNORED).sum()


class Own(d5.Loss):
    """A class of one's own, with weights that are no integers."""

    ignored = IGNORED

    def check(self, output_shape: tuple[int, ...], classes: int) -> None: ...

    def torch(self, scores: torch.Tensor, labels: torch.Tensor) -> Any:
        total, count = summed(scores, labels)
        return 0.37 * total, 0.37 * count


class Itself(nn.Module):
    """A model that computes its own loss, as those of Hugging Face do."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, CLASSES)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        logits = self.head(inputs)
        return {"loss": None if labels is None else summed(logits, labels), "logits": logits}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES))


LOSSES: dict[str, tuple[Any, Any]] = {
    "function": (summed, net),
    "class": (Own(), net),
    "masked": (MASKED, net),
    "model": ("model", Itself),
}
SUMS: dict[str, Any] = {
    "allreduce": d5.optimizers.AllreduceSGD(),
    "overlapped": d5.optimizers.OverlappedAllreduceSGD(bucket_bytes=64),
    "sharded": d5.optimizers.ShardedAllreduceSGD(),
    "exactly compressed": d5.optimizers.CompressedSGD(d5.compression.Identity()),
    "servers": d5.optimizers.ParameterServerSGD(),
}


def one_process(
    made: nn.Module,
    batches: dict[tuple[int, int], tuple[Any, Array]],
    optimizer: Any,
    updates: list[int] | None = None,
) -> Tensors:
    """Plain PyTorch on the samples of all agents; nothing is done where no label counts.

    updates: the steps of which each is, by default one.
    """
    torch.manual_seed(5)
    rule = optimizer(made.parameters())
    ends = np.cumsum(updates or [1] * (1 + max(step for _, step in batches)))
    for begin, end in itertools.pairwise([0, *ends]):
        given = [batches[key] for key in sorted(batches) if begin <= key[1] < end]
        inputs, labels = (torch.from_numpy(np.concatenate(each)) for each in zip(*given, strict=True))
        output = made(inputs)
        total, count = summed(output["logits"] if isinstance(output, dict) else output, labels)
        if count:
            rule.zero_grad()
            torch.autograd.backward(total / count)
            rule.step()
    return {name: each.detach().numpy().copy() for name, each in made.state_dict().items()}


def options(**more: Any) -> dict[str, Any]:
    return {
        "train_sampler": d5.samplers.OrderedSampler(), "agents": AGENTS, "batch_size": BATCH,
        "steps": len(COUNTS),
    } | more  # fmt: skip


@pytest.mark.parametrize("real", [False, True], ids=["simulated", "real"])
@pytest.mark.parametrize("rule", SUMS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_agents_are_one_process_on_all_samples(loss: str, optimizer: str, rule: str, real: bool) -> None:
    """Also where no label of one agent counts, and where none of all does: then nothing moves."""
    given, make = LOSSES[loss]
    torch.manual_seed(1)
    found, batches, _ = trained(
        make(), OPTIMIZERS[optimizer], data(5), real=real, loss=given, distributed=SUMS[rule],
        **options(steps=len(COUNTS) + 1),
    )  # fmt: skip
    torch.manual_seed(1)
    check_same(found, one_process(make(), batches, OPTIMIZERS[optimizer]), 1e-6)


@pytest.mark.parametrize("real", [False, True], ids=["simulated", "real"])
@pytest.mark.parametrize("rule", ["allreduce", "overlapped", "servers"])
@pytest.mark.parametrize("loss", LOSSES)
def test_pieces_of_a_batch_add_up(loss: str, rule: str, real: bool) -> None:
    given, make = LOSSES[loss]
    torch.manual_seed(1)
    found, batches, _ = trained(
        make(), OPTIMIZERS["SGD"], data(5), real=real, loss=given, distributed=SUMS[rule],
        **options(batch_size=1, accumulate=4, steps=len(COUNTS) + 1),
    )  # fmt: skip
    torch.manual_seed(1)
    check_same(found, one_process(make(), batches, OPTIMIZERS["SGD"]), 1e-6)


@pytest.mark.parametrize("late", [False, True])
def test_servers_count_pushes_by_their_weights(late: bool) -> None:
    """Servers of groups, of two agents and of one; and those whose updates leave the last push out."""
    torch.manual_seed(1)
    made, optimizer = net(), OPTIMIZERS["momentum"]
    first = copy.deepcopy(made)
    more: dict[str, Any] = {"servers": d5.Servers(groups=2)}
    if late:
        more = {"slow": (d5.faults.Slowdown(agent=2, factor=100),)}
    rule = d5.optimizers.ParameterServerSGD(backups=int(late))
    found, batches, _ = trained(made, optimizer, data(), loss=summed, distributed=rule, **options(**more))
    if late:
        batches = {key: batch for key, batch in batches.items() if key[0] < 2}
    check_same(found, one_process(first, batches, optimizer), 1e-6)


def own_means(made: nn.Module, batches: Any, optimizer: Any, period: int) -> Tensors:
    """Replicas that train by their own batches, and take their mean after every so many steps."""
    replicas = [copy.deepcopy(made) for _ in range(AGENTS)]
    rules = [optimizer(each.parameters()) for each in replicas]
    for step in range(len(COUNTS)):
        for rank, (replica, rule) in enumerate(zip(replicas, rules, strict=True)):
            total, count = summed(
                replica(torch.from_numpy(batches[rank, step][0])), torch.from_numpy(batches[rank, step][1])
            )
            if count:
                rule.zero_grad()
                torch.autograd.backward(total / count)
                rule.step()
        if (step + 1) % period == 0:
            with torch.no_grad():
                for same in zip(*(each.parameters() for each in replicas), strict=True):
                    mean = torch.stack(list(same)).mean(dim=0)
                    for each in same:
                        each.copy_(mean)
    return {name: each.detach().numpy().copy() for name, each in replicas[0].state_dict().items()}


@pytest.mark.parametrize("loss", ["function", "masked"])
def test_models_of_ones_own_are_trained_by_their_own_means(loss: str) -> None:
    torch.manual_seed(1)
    made, optimizer = net(), OPTIMIZERS["momentum"]
    first = copy.deepcopy(made)
    rule = d5.optimizers.LocalSGD(3)
    found, batches, _ = trained(made, optimizer, data(), loss=LOSSES[loss][0], distributed=rule, **options())
    check_same(found, own_means(first, batches, optimizer, 3), 1e-6)


def test_a_batch_that_grows_counts_labels() -> None:
    torch.manual_seed(1)
    made, optimizer = net(), OPTIMIZERS["momentum"]
    first = copy.deepcopy(made)
    rule = d5.optimizers.GrowingBatch([1], factor=2)  # one step, then two and two
    found, batches, _ = trained(made, optimizer, data(), loss=summed, distributed=rule, **options(steps=5))
    check_same(found, one_process(first, batches, optimizer, [1, 2, 2]), 1e-6)


def under_jax() -> tuple[Any, Any]:
    """A linear layer, and the sum of its losses with the number of labels that count."""
    import jax  # noqa: PLC0415 - takes long, as Keras does
    import jax.numpy as jnp  # noqa: PLC0415

    def make() -> Any:
        begin = lambda key: {"w": jax.random.normal(key, (5, CLASSES)), "b": jnp.zeros(CLASSES)}  # noqa: E731
        return begin, lambda parameters, inputs: inputs @ parameters["w"] + parameters["b"]

    def loss(output: Any, labels: Any) -> Any:
        counts = labels != IGNORED
        logs = jax.nn.log_softmax(output)
        own = jnp.take_along_axis(logs, jnp.where(counts, labels, 0)[..., None], axis=-1)[..., 0]
        return -jnp.where(counts, own, 0).sum(), counts.sum()

    return make, loss


def under_tensorflow() -> tuple[Any, Any]:
    """The same by Keras; each label counts for a hundredth, so that no weight is above 1."""
    keras = pytest.importorskip("keras")
    import tensorflow as tf  # noqa: PLC0415

    def loss(output: Any, labels: Any) -> Any:
        counts = labels != IGNORED
        own = tf.nn.sparse_softmax_cross_entropy_with_logits(tf.where(counts, labels, 0), output)
        counts = 0.01 * tf.cast(counts, own.dtype)
        return tf.reduce_sum(counts * own), tf.reduce_sum(counts)

    return lambda: keras.Sequential([keras.Input((LENGTH, 5)), keras.layers.Dense(CLASSES)]), loss


UNDER = {"jax": under_jax, "tensorflow": under_tensorflow}


@pytest.mark.parametrize("given", ["function", "masked"])
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("framework", ["jax", pytest.param("tensorflow", marks=pytest.mark.full)])
def test_it_is_so_under_every_framework(framework: str, accumulate: int, given: str) -> None:
    """Three agents do what one does with all of their samples."""
    make, loss = UNDER[framework]()
    loss = MASKED if given == "masked" else loss
    found = []
    for agents, size in ((1, 3 * BATCH), (AGENTS, BATCH // accumulate)):
        experiment = d5.Experiment(
            make, data(), d5.optimizers.Momentum(0.1, 0.9), executor=framework,
            loss=loss, agents=agents, batch_size=size, seed=5, evaluate=False,
            train_sampler=d5.samplers.OrderedSampler(), accumulate=1 if agents == 1 else accumulate,
        )  # fmt: skip
        with d5.simulate(experiment) as group:
            group.train(steps=len(COUNTS), progress=False)
            found.append(group.parameters())
    check_same(found[1], found[0], 1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_an_evaluation_is_sum_over_weight_of_the_whole_split(loss: str) -> None:
    """In pieces of any size; and the recorded loss of a step is the agent's own."""
    given, make = LOSSES[loss]
    experiment = d5.Experiment(
        make(), data(), d5.optimizers.SGD(0.1), loss=given, agents=AGENTS, batch_size=BATCH
    )
    split = experiment.load_dataset().train
    executor = experiment.make_executor(
        experiment.model, {}, sample_shape=(LENGTH, 5), classes=CLASSES, loss=experiment.loss, seed=1,
        threads=1,
    )  # fmt: skip
    pieces = [(split.inputs[at : at + 5], split.labels[at : at + 5]) for at in range(0, 72, 5)]
    found = executor.evaluate_pieces(pieces)
    module = module_of(executor)
    with torch.no_grad():
        output = module(torch.from_numpy(split.inputs))
        scores = output["logits"] if isinstance(output, dict) else output
        total, count = summed(scores, torch.from_numpy(split.labels))
    assert found.loss == pytest.approx(float(total / count), rel=1e-5)
    assert executor.inference_and_backprop(split.inputs, split.labels) == pytest.approx(found.loss, rel=1e-5)


WRONG: dict[str, tuple[Any, str]] = {
    "negative": (lambda output, labels: (output.sum(), -1.0), r"gave a sum and -1\.0 for its weight"),
    "no number": (lambda output, labels: (output.sum(), "all"), "a number of at least 0"),
    "no finite one": (lambda output, labels: (output.sum(), float("inf")), "a number of at least 0"),
    "differentiated": (lambda output, labels: (output.sum(), output.mean()), "that requires gradients"),
    "several": (lambda output, labels: (output.sum(), labels), "a number of at least 0"),
    "a sum of nothing": (lambda output, labels: (output.sum(), 0), "with a weight of 0"),
    "no sum": (lambda output, labels: (output, 3), r"gave a tensor .*or give \(sum, weight\)"),
    "three": (lambda output, labels: (output.sum(), 3, 4), "one number"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_sum_and_weight_is_refused_before_anything_starts(wrong: str) -> None:
    loss, said = WRONG[wrong]
    experiment = d5.Experiment(net(), data(), d5.optimizers.SGD(0.1), loss=loss, agents=2, batch_size=4)
    with pytest.raises(ConfigurationError, match=said), d5.simulate(experiment):
        pass


def test_losses_that_need_none_exchange_none() -> None:
    """Those of the catalogue say so, and agents send as many messages as before; one that may, once."""
    for name in ("SoftmaxCrossEntropyLoss", "MeanSquaredErrorLoss", "ActorCriticLoss", "MultiBoxLoss"):
        assert getattr(d5.operators, name).weighted is False
    sent = []
    for loss in (d5.operators.SoftmaxCrossEntropyLoss(), F.cross_entropy):
        small = samples()
        experiment = d5.Experiment(
            nn.Linear(4, 3), small, d5.optimizers.SGD(0.1), loss=loss, agents=2, batch_size=4
        )
        with d5.simulate(experiment.with_values(evaluate=False)) as group:
            group.train(steps=3, progress=False)
            rows = group.metrics().to_pandas()
        rows = rows[(rows.metric == "messages_sent") & (rows["rank"] == 0)]
        sent.append(rows.sort_values("step").value.tolist())
    plain, function = sent
    assert plain[0] == plain[1] == plain[2] and function[1:] == plain[1:] and function[0] > plain[0]


def test_same_as_torch_takes_sums_and_weights() -> None:
    assert same_as_torch(net, data(), summed, OPTIMIZERS["AdamW"], agents=3, steps=6) < 1e-5
