"""Claims about losses of PyTorch and of one's own: they train, evaluate and hash as what they are"""

import copy
from collections import namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import d5ray as d5
from d5ray.errors import AgentError, ConfigurationError
from d5ray.ops.losses.function_loss import as_loss

DIGITS = d5.datasets.load_dataset("digits")
Output = namedtuple("Output", ["loss", "logits"])
Course = tuple[np.ndarray[Any, Any], float, float | None]


@dataclass
class Whole:
    """An output of a class of one's own."""

    heads: dict[str, torch.Tensor]
    features: torch.Tensor


class Plain(nn.Module):
    """Scores (batch, 10) as a tensor, or in one of the forms in which models give them."""

    def __init__(self, form: str = "tensor") -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(64, 10), form

    def forward(self, images: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        scores = self.layer(images.flatten(1))
        loss = None if labels is None else functional.cross_entropy(scores, labels)
        return {
            "tensor": scores,
            "tuple": (scores, images),
            "dictionary": {"logits": scores, "features": images},
            "attribute": Output(loss, scores),
            "own loss": {"loss": loss, "logits": scores},
            "nested": {"heads": (scores, {"features": images})},
            "data class": Whole({"scores": scores}, images),
            "nothing": None,
        }[self.form]


def course(loss: Any, form: str = "tensor", **changes: Any) -> Course:
    """Parameters, test loss and test accuracy after an epoch."""
    wanted = experiment(loss, form, **changes)
    with d5.simulate(wanted) as group:
        group.train(progress=False)
        parameters = group.agents[0].flat_parameters()
    rows = group.metrics().to_pylist()
    last = {row["metric"]: row["value"] for row in rows if row["agent"] == "TrainingAgent(rank=0)"}
    return parameters, last["test_loss"], last.get("test_accuracy")


def experiment(loss: Any, form: str = "tensor", **changes: Any) -> d5.Experiment:
    values: dict[str, Any] = {
        "model": Plain, "model_kwargs": {"form": form}, "dataset": DIGITS, "loss": loss, "agents": 2,
        "optimizer": d5.optimizers.SGD(0.1), "batch_size": 64, "seed": 3,
    }  # fmt: skip
    return d5.Experiment(**(values | changes))


RANDOM = np.random.default_rng(2)
X, REAL = (RANDOM.standard_normal((12, size)).astype(np.float32) for size in (5, 4))
NUMBERS, SHARES = RANDOM.integers(0, 4, 12), np.exp(REAL) / np.exp(REAL).sum(1, keepdims=True)
BITS, SIGNS = (REAL > 0).astype(np.float32), np.sign(REAL)
SETS = np.where(np.arange(4) == 0, NUMBERS[:, None], -1)  # of one class each
LOSSES: dict[str, tuple[Any, Any, nn.Module]] = {  # labels, and the model's last layer
    "CrossEntropyLoss": (nn.CrossEntropyLoss(), NUMBERS, nn.Identity()),
    "with weights": (nn.CrossEntropyLoss(weight=torch.arange(1.0, 5)), NUMBERS, nn.Identity()),
    "smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), NUMBERS, nn.Identity()),
    "of probabilities": (nn.CrossEntropyLoss(), SHARES, nn.Identity()),
    "NLLLoss": (nn.NLLLoss(), NUMBERS, nn.LogSoftmax(1)),
    "MultiMarginLoss": (nn.MultiMarginLoss(), NUMBERS, nn.Identity()),
    "L1Loss": (nn.L1Loss(), REAL, nn.Identity()),
    "MSELoss": (nn.MSELoss(), REAL, nn.Identity()),
    "SmoothL1Loss": (nn.SmoothL1Loss(), REAL, nn.Identity()),
    "HuberLoss": (nn.HuberLoss(delta=0.5), REAL, nn.Identity()),
    "PoissonNLLLoss": (nn.PoissonNLLLoss(), np.abs(REAL), nn.Identity()),
    "KLDivLoss": (nn.KLDivLoss(reduction="batchmean"), SHARES, nn.LogSoftmax(1)),
    "BCELoss": (nn.BCELoss(), BITS, nn.Sigmoid()),
    "BCEWithLogitsLoss": (nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0)), BITS, nn.Identity()),
    "HingeEmbeddingLoss": (nn.HingeEmbeddingLoss(), SIGNS, nn.Identity()),
    "SoftMarginLoss": (nn.SoftMarginLoss(), SIGNS, nn.Identity()),
    "MultiLabelMarginLoss": (nn.MultiLabelMarginLoss(), SETS, nn.Identity()),
    "MultiLabelSoftMarginLoss": (nn.MultiLabelSoftMarginLoss(), BITS, nn.Identity()),
    "GaussianNLLLoss": (
        lambda output, labels: nn.GaussianNLLLoss()(output, labels, torch.ones_like(labels)), REAL,
        nn.Identity(),
    ),
    "CosineEmbeddingLoss": (
        lambda output, labels: nn.CosineEmbeddingLoss()(output, labels, torch.ones(len(labels))), REAL,
        nn.Identity(),
    ),
    "MarginRankingLoss": (
        lambda output, labels: nn.MarginRankingLoss()(output[:, 0], output[:, 1], labels[:, 0]), SIGNS,
        nn.Identity(),
    ),
    "TripletMarginLoss": (
        lambda output, labels: nn.TripletMarginLoss()(output, labels, -labels), REAL, nn.Identity()
    ),
    "TripletMarginWithDistanceLoss": (
        lambda output, labels: nn.TripletMarginWithDistanceLoss()(output, labels, -labels), REAL,
        nn.Identity(),
    ),
}  # fmt: skip
ELSEWHERE = {"CTCLoss", "LinearCrossEntropyLoss"}  # d5ray's own CTCLoss; a loss that has a layer within


@pytest.mark.every_case
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_of_torch_is_that_loss(name: str) -> None:
    """Its value, its gradient and its evaluation, beside plain PyTorch; and the likeliest class is right."""
    from d5ray.frameworks.torch import from_model  # noqa: PLC0415 - for this alone

    loss, labels, last = LOSSES[name]
    module = nn.Sequential(nn.Linear(5, 4), last)
    twin = copy.deepcopy(module)
    made = from_model(module, {}, sample_shape=(5,), classes=4, loss=as_loss(loss), seed=1, threads=1)
    found = made.inference_and_backprop(X, labels)
    scores = twin(torch.tensor(X))
    expected = loss(scores, torch.tensor(labels))
    expected.backward()
    assert found == pytest.approx(expected.item(), rel=1e-6)
    flat = np.concatenate([np.ravel(np.asarray(each.grad)) for each in twin.parameters()])
    np.testing.assert_allclose(np.asarray(made.gradients), flat, rtol=1e-5, atol=1e-7)
    judged = made.evaluate(X, labels)
    assert judged.loss == pytest.approx(expected.item(), rel=1e-6)
    if as_loss(loss).classifies:
        truth = labels.argmax(1) if labels.ndim == 2 else labels
        assert judged.accuracy == (scores.argmax(1).numpy() == truth).mean()


def test_every_loss_of_torch_is_here() -> None:
    kinds = [kind for kind in vars(nn.modules.loss).values() if isinstance(kind, type)]
    names = {kind.__name__ for kind in kinds if issubclass(kind, nn.Module) and "Loss" in kind.__name__}
    assert {name for name in names if not name.startswith("_")} - {"NLLLoss2d"} <= LOSSES.keys() | ELSEWHERE


@pytest.fixture(scope="module")
def own() -> Course:
    """The course under d5ray's own loss."""
    return course(d5.operators.SoftmaxCrossEntropyLoss())


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.CrossEntropyLoss,
        functional.cross_entropy,
        partial(functional.cross_entropy, reduction="mean"),
    ],
    ids=["object", "class", "function", "partial"],
)
def test_a_loss_of_pytorch_trains_as_d5rays_own(loss: Any, own: Course) -> None:
    """The same parameters, test loss and accuracy, to the last bit."""
    parameters, test_loss, accuracy = course(loss)
    assert np.array_equal(parameters, own[0])
    assert (test_loss, accuracy) == pytest.approx(own[1:], abs=1e-12)


@pytest.mark.parametrize("form", ["tuple", "dictionary", "attribute", "nested", "data class"])
def test_a_model_gives_its_scores_in_any_form(form: str, own: Course) -> None:
    """The first tensor, or `logits` of a dictionary or of an object, as Hugging Face's models give."""
    assert np.array_equal(course(d5.operators.SoftmaxCrossEntropyLoss(), form)[0], own[0])


@pytest.mark.parametrize("form", ["dictionary", "nested"])
def test_a_loss_sees_the_whole_output(form: str, own: Course) -> None:
    """A function of ours that reads two parts of it, wherever they are."""

    def whole(output: Any, labels: torch.Tensor) -> Any:
        scores, features = (
            output["heads"] if form == "nested" else (output["logits"], {"features": output["features"]})
        )
        assert features["features"].shape[1:] == (1, 8, 8)
        return functional.cross_entropy(scores, labels) + 0 * features["features"].mean()

    parameters, _, accuracy = course(whole, form)
    assert np.allclose(parameters, own[0], atol=1e-7)
    assert accuracy is None  # nobody knows whether it classifies
    assert course(d5.operators.FunctionLoss(whole, classifies=True), form)[2] == pytest.approx(own[2])


class NeedsLabels(Plain):
    """It cannot be called without labels."""

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> Any:  # type: ignore[override]
        return super().forward(images, labels)


@pytest.mark.parametrize("model", [Plain, NeedsLabels])
@pytest.mark.parametrize("form", ["own loss", "attribute"])
def test_a_model_computes_its_own_loss(form: str, model: type[Plain], own: Course) -> None:
    """loss="model": it is given the labels, and its output has the loss."""
    parameters, test_loss, _ = course("model", form, model=model)
    assert np.array_equal(parameters, own[0])
    assert test_loss == pytest.approx(own[1], abs=1e-12)


def test_labels_that_are_ignored_count_for_nothing() -> None:
    """-100 in a third of the labels: loss and accuracy are those of the others."""
    labels = DIGITS.test.labels.copy()
    labels[::3] = -100
    counted = labels != -100
    loss = as_loss(nn.CrossEntropyLoss())
    from d5ray.frameworks import torch as adapter  # noqa: PLC0415 - for this alone

    made = adapter.from_model(Plain, {}, sample_shape=(1, 8, 8), classes=10, loss=loss, seed=1, threads=1)
    found = made.evaluate(DIGITS.test.inputs, labels)
    oracle = made.evaluate(DIGITS.test.inputs[counted], labels[counted])
    assert found.accuracy == pytest.approx(oracle.accuracy, abs=1e-12)
    assert found.loss == pytest.approx(oracle.loss, rel=1e-6)


def test_other_settings_of_a_loss_are_another_experiment() -> None:
    """PyTorch's own text of a loss does not tell them."""
    hashes = {
        experiment(loss).hash
        for loss in (
            nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1), nn.MSELoss(),
            nn.CrossEntropyLoss(weight=torch.arange(10.0)),
        )
    }  # fmt: skip
    assert len(hashes) == 4
    assert experiment(nn.CrossEntropyLoss()).hash == experiment(nn.CrossEntropyLoss()).hash


def test_keras_losses_are_d5rays_own() -> None:
    keras = pytest.importorskip("keras")
    made = as_loss(keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert made == d5.operators.SoftmaxCrossEntropyLoss()
    assert as_loss(keras.losses.MeanSquaredError()) == d5.operators.MeanSquaredErrorLoss()
    other = keras.losses.SparseCategoricalCrossentropy()  # of probabilities
    assert as_loss(other).classifies
    with pytest.raises(ConfigurationError, match=r"under executor='tensorflow' .*from_logits=True"):
        experiment(other)


@pytest.mark.parametrize(
    ("loss", "form", "words"),
    [
        ("model", "tensor", "gives a Tensor without a loss: let it take `labels`"),
        (nn.CrossEntropyLoss(), "nothing", "returned a NoneType, the loss needs one tensor of scores"),
    ],
)
def test_what_is_no_loss_is_named(loss: Any, form: str, words: str) -> None:
    """Found, expected, what to do."""
    with pytest.raises((AgentError, ConfigurationError), match=words):
        course(loss, form)


def test_scores_that_do_not_fit_the_classes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"needs \(batch, 10\), or the classes at axis 1"):
        course(nn.CrossEntropyLoss(), model=nn.Sequential(nn.Flatten(), nn.Linear(64, 7)), model_kwargs={})


@pytest.mark.parametrize(
    "loss", [nn.CrossEntropyLoss(reduction="sum"), partial(functional.cross_entropy, reduction="sum")]
)
def test_a_sum_over_the_batch_is_not_accumulated(loss: Any) -> None:
    """Its pieces would count as means; alone it trains as in a plain loop."""
    assert experiment(loss).accumulate == 1
    with pytest.raises(ConfigurationError, match=r"accumulate is 2 and .*is a sum over the batch"):
        experiment(loss, accumulate=2)
