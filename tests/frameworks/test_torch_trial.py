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
from d5ray.agent.trial import try_parts
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


def unmade() -> nn.Module:
    raise ZeroDivisionError("a mistake of the function's")


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
    "a loss that is no tensor": ({"loss": lambda scores, labels: 3.0}, ("gave 3.0", "one number")),
    "a loss that is detached": (
        {"loss": lambda scores, labels: cross_entropy(scores, labels).detach()},
        ("cannot be differentiated", "detach()"),
    ),
    "a loss that fails": (
        {"loss": lambda scores, labels: list[int]()[0]},
        ("the loss, FunctionLoss", "output (2, 3) and labels (2,) of torch.int64", "IndexError"),
    ),
    "a loss of other arguments": ({"loss": lambda: 0}, ("the loss, FunctionLoss", "takes 0 positional")),
    "an output that is detached": ({"model": Detached}, ("cannot be differentiated", "forward pass")),
    "a forward pass that fails": ({"model": Raising}, ("model cannot be made, or called", "KeyError")),
    "a function that fails": ({"model": unmade}, ("the model cannot be made", "a mistake of the function's")),
    "a function that makes no model": ({"model": lambda: 3}, ("made a int", "torch.nn.Module or a Network")),
    "a model that takes no single sample": (
        {"model": NotOfOne},
        ("the model, a NotOfOne, fails with a batch of 1 sample", "one sample is too few"),
    ),
    "a single sample at an epoch's end": (
        {"model": normalized},
        ("a batch of 1 sample", "Expected more than 1 value", "batch_size", "BatchNorm needs two"),
    ),
    "a single sample in a piece": (
        {"model": normalized, "agents": 1, "batch_size": 2, "accumulate": 2}, ("a batch of 1 sample",),
    ),
    "a module that cannot be copied": (
        {"model": Uncopied()}, ("a Uncopied, cannot be copied", "give its class, or a function")
    ),
    "targets for a loss of classes": (
        {"dataset": d5.from_arrays(np.ones((13, 4)), np.ones(13), classes=CLASSES)},
        ("labels of 'arrays' are floating numbers", "takes classes", "labels.astype(int)"),
    ),
    "targets for a network of classes": (
        {"model": "mlp", "executor": "numpy", "dataset": d5.from_arrays(np.ones((13, 4)), np.ones(13))},
        ("labels of 'arrays' are floating numbers", "takes classes"),
    ),
    "labels of another shape for a network": (
        {"model": "mlp", "dataset": d5.from_arrays(np.ones((13, 4)), np.ones((13, 1), int))},
        ("output has the shape (1, 2) for labels of shape (1, 1)",),
    ),
    "a model of other names": (
        {"dataset": d5.from_arrays({"a": np.ones((13, 4)), "b": np.ones(13)}, np.ones(13, int))},
        ("unexpected keyword argument", "the 2 parts of a sample by the names a, b"),
    ),
    "a model of fewer parts": (
        {"dataset": d5.from_arrays((np.ones((13, 4)), np.ones(13)), np.ones(13, int))},
        ("takes 2 positional arguments", "the 2 parts of a sample by position"),
    ),
    "samples of doubles": (
        {"dataset": own(lambda inputs, labels: (inputs.astype(float), labels))},
        ("Own.take gave inputs", "of float64", "float32 or int64 or uint8", "np.ascontiguousarray"),
    ),
    "labels of int32": (
        {"dataset": own(lambda inputs, labels: (inputs, labels.astype(np.int32)))},
        ("Own.take gave labels", "of int32", "int64 or float32"),
    ),
    "samples that are tensors": (
        {"dataset": own(lambda inputs, labels: (torch.from_numpy(inputs), labels))},
        ("inputs that are Tensor",),
    ),
    "samples that are lists": (
        {"dataset": own(lambda inputs, labels: (inputs.tolist(), labels.tolist()))}, ("Own.take gave", "list")
    ),
    "one sample short": (
        {"dataset": own(lambda inputs, labels: (inputs[1:], labels[1:]))},
        ("(0, 4) of float32 for 1 indices",),
    ),
    "one label short": (
        {"dataset": own(lambda inputs, labels: (inputs, labels[1:]))}, ("labels that are (0,)",)
    ),
    "no pair": ({"dataset": own(lambda inputs, labels: inputs)}, ("Own.take gave", "a tuple of inputs")),
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
    return d5.Experiment.from_values(**given | values)


@pytest.mark.parametrize("start", [d5.simulate, d5.launch], ids=["simulated", "real"])
@pytest.mark.parametrize("part", REFUSED)
def test_a_part_that_would_fail_is_refused_before_anything_starts(
    part: str, start: Any, tmp_path: Path
) -> None:
    """With the part, what was found, what was expected, and what to do; no folder of a run is left."""
    values, words = REFUSED[part]
    with pytest.raises((ConfigurationError, DataError)) as caught:
        start(experiment(**values), root=tmp_path)
    for word in words:
        assert word in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [np.float64, np.float16, np.int32, torch.float64, list])
def test_data_sets_of_pytorch_may_give_any_numbers(kind: Any) -> None:
    """They become those that models take, and train as the same numbers in float32."""
    inputs, labels = samples(13).train.take(np.arange(13))
    assert isinstance(inputs, np.ndarray)
    inputs = np.round(inputs)

    class Converted(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 13

        def __getitem__(self, index: int) -> Any:
            row = inputs[index]
            if kind is list:
                return row.tolist(), int(labels[index])
            if kind is torch.float64:
                return torch.from_numpy(row).double(), torch.tensor(labels[index])
            return row.astype(kind), np.int32(labels[index])

    found = []
    data = d5.from_torch(Converted(), test=Converted(), classes=CLASSES)

    class Floating(Head):
        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return super().forward(given.float())

    arrays = d5.Dataset("arrays", d5.datasets.Split(inputs, labels), samples().test, CLASSES)
    for each in (data, arrays):
        with d5.simulate(experiment(model=Floating, dataset=each)) as group:
            group.train(progress=False)
            found.append(group.parameters())
    for name, value in found[0].items():
        np.testing.assert_array_equal(value, found[1][name])


def test_a_trial_leaves_nothing_behind() -> None:
    """Generators and threads of this process are as before, and the module that was given is not called."""

    class Drawing(Head):
        def __init__(self) -> None:
            super().__init__()
            self.drawn, self.calls = np.random.standard_normal(), 0  # noqa: NPY002 - as users do

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(inputs + 0 * torch.rand(()) + np.random.random())  # noqa: NPY002

    module = Drawing()
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before, own_numbers = torch.get_rng_state(), repr(np.random.get_state())  # noqa: NPY002
    try_parts(experiment(model=module), samples(13))
    assert torch.equal(torch.get_rng_state(), before) and module.calls == 0
    assert repr(np.random.get_state()) == own_numbers  # noqa: NPY002
