"""Claims about the trial of a user's parts: what would fail later is refused before anything starts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from tests.plain_torch import CLASSES, samples

Array = npt.NDArray[Any]


class Head(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(4, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(inputs)
        return scores


class Raising(Head):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        raise KeyError("a mistake of the model's")


class Detached(Head):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs).detach()


class NotOfOne(Head):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) == 1:
            raise IndexError("one sample is too few")
        return super().forward(inputs)


class Uncopied(Head):
    def __init__(self) -> None:
        super().__init__()
        self.twice = 2 * self.out.weight


def normalized() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))


class Own(d5.datasets.Samples):
    """Samples whose `take` gives what a function makes of the right ones."""

    sample_shape = (4,)
    highest_label = CLASSES - 1

    def __init__(self, change: Callable[[Array, Array], Any]) -> None:
        self.change, self.all = change, samples(13).train

    def __len__(self) -> int:
        return len(self.all)

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        inputs, labels = self.all.take(indices)
        assert isinstance(inputs, np.ndarray)
        return self.change(inputs, labels)

    def add_to(self, digest: Any, part: str) -> None:
        digest.update(part.encode())


def own(change: Callable[[Array, Array], Any]) -> d5.Dataset:
    return d5.Dataset("own", Own(change), samples(13).test, CLASSES)


REFUSED: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "a loss of many numbers": (
        {"loss": lambda scores, labels: cross_entropy(scores, labels, reduction="none")},
        ("a tensor (2,)", "a loss is one number", "take the mean"),
    ),
    "a loss that is detached": (
        {"loss": lambda scores, labels: cross_entropy(scores, labels).detach()},
        ("cannot be differentiated", "detach()"),
    ),
    "a loss that fails": (
        {"loss": lambda scores, labels: list[int]()[0]},
        ("the loss, FunctionLoss", "output (2, 3) and labels (2,) of torch.int64", "IndexError"),
    ),
    "an output that is detached": ({"model": Detached}, ("cannot be differentiated", "forward pass")),
    "a forward pass that fails": ({"model": Raising}, ("model cannot be made, or called", "KeyError")),
    "a model that takes no single sample": (
        {"model": NotOfOne},
        ("the model, a NotOfOne, fails with a batch of 1 sample", "one sample is too few"),
    ),
    "a single sample at an epoch's end": (
        {"model": normalized},
        ("a batch of 1 sample", "Expected more than 1 value", "batch_size", "BatchNorm needs two"),
    ),
    "a module that cannot be copied": (
        {"model": Uncopied()}, ("a Uncopied, cannot be copied", "give its class, or a function")
    ),
    "targets for a loss of classes": (
        {"dataset": d5.from_arrays(np.ones((13, 4)), np.ones(13), classes=CLASSES)},
        ("labels of 'arrays' are floating numbers", "takes classes", "labels.astype(int)"),
    ),
    "labels of another shape for a network": (
        {"model": "mlp", "dataset": d5.from_arrays(np.ones((13, 4)), np.ones((13, 1), int))},
        ("output has the shape (1, 2) for labels of shape (1, 1)",),
    ),
    "a model of other names": (
        {"dataset": d5.from_arrays({"a": np.ones((13, 4)), "b": np.ones(13)}, np.ones(13, int))},
        ("unexpected keyword argument", "the 2 parts of a sample by the names a, b"),
    ),
    "samples of doubles": (
        {"dataset": own(lambda inputs, labels: (inputs.astype(float), labels))},
        ("Own.take gave inputs", "of float64", "float32 or int64 or uint8", "np.ascontiguousarray"),
    ),
    "samples that are tensors": (
        {"dataset": own(lambda inputs, labels: (torch.from_numpy(inputs), labels))},
        ("inputs that are Tensor",),
    ),
    "one sample short": (
        {"dataset": own(lambda inputs, labels: (inputs[1:], labels[1:]))},
        ("(0, 4) of float32 for 1 indices",),
    ),
    "samples of another shape": (
        {"dataset": own(lambda inputs, labels: (np.ascontiguousarray(inputs[:, 1:]), labels))},
        ("samples of shape (3,)", "its sample_shape, (4,)"),
    ),
}  # fmt: skip


def experiment(**values: Any) -> d5.Experiment:
    given: dict[str, Any] = {
        "model": Head, "dataset": samples(13), "optimizer": d5.optimizers.SGD(0.1), "agents": 2,
        "batch_size": 3, "epochs": 2, "monitor_seconds": 0,
    }  # fmt: skip
    return d5.Experiment(**given | values)


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("start", "part"), [(d5.launch, "a loss of many numbers"), *((d5.simulate, part) for part in REFUSED)]
)
def test_a_part_that_would_fail_is_refused_before_anything_starts(
    start: Any, part: str, tmp_path: Path
) -> None:
    """With the part, what was found, what was expected, and what to do; no folder of a run is left."""
    values, words = REFUSED[part]
    with pytest.raises((ConfigurationError, DataError)) as caught:
        start(experiment(**values), root=tmp_path)
    for word in words:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []
