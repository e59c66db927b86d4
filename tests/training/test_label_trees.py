"""Claims about labels of several parts: every door, two heads with two losses, beside plain PyTorch"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, smooth_l1_loss

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from d5ray.testing import same_as_torch

RNG = np.random.default_rng(7)
X = RNG.standard_normal((30, 6)).astype(np.float32)
BOXES = RNG.standard_normal((30, 4)).astype(np.float32)
KINDS = RNG.integers(0, 3, 30)
PARTS: dict[str, Any] = {
    "dictionary": {"boxes": BOXES, "kinds": KINDS},
    "tuple": (BOXES, KINDS),
    "nested": {"boxes": (BOXES[:, :2], BOXES[:, 2:]), "kinds": KINDS},
}
SGD: Any = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def parts(tree: Any, place: str = "") -> list[tuple[str, Any]]:
    """The arrays of labels, also of a structured array of them, and where they stand."""
    if getattr(getattr(tree, "dtype", None), "names", None):
        names = tree.dtype.names
        tree = {int(name[1:-1]) if name[0] == "[" else name: tree[name] for name in names}
    if not isinstance(tree, (dict, tuple)):
        return [(place, tree)]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [part for key, each in items for part in parts(each, f"{place}[{key!r}]")]


class Heads(nn.Module):
    """One body, four numbers of a box and three scores of classes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.box, self.kind = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.tanh(self.body(x))
        return {"boxes": self.box(hidden), "kinds": self.kind(hidden)}


def both(output: dict[str, torch.Tensor], labels: Any) -> torch.Tensor:
    """The two losses, of labels in any of the forms above."""
    *boxes, kinds = (each for _, each in parts(labels))
    of_boxes = smooth_l1_loss(output["boxes"], torch.cat(boxes, 1))
    return of_boxes + cross_entropy(output["kinds"], kinds)


def sample(form: str, index: int) -> Any:
    return X[index], rows(PARTS[form], index)


def rows(tree: Any, at: Any) -> Any:
    if isinstance(tree, dict):
        return {key: rows(each, at) for key, each in tree.items()}
    return tuple(rows(each, at) for each in tree) if isinstance(tree, tuple) else tree[at]


DOORS: dict[str, Callable[[str], d5.Dataset]] = {
    "arrays": lambda form: d5.from_arrays(X, PARTS[form]),
    "by number": lambda form: d5.from_torch([sample(form, at) for at in range(30)]),
}


@pytest.mark.parametrize("agents", [1, 3])
@pytest.mark.parametrize("form", PARTS)
@pytest.mark.parametrize("door", DOORS)
def test_two_heads_are_trained_as_by_pytorch(door: str, form: str, agents: int) -> None:
    """Every loss, parameter and buffer after the same batches; of three agents as DDP has them."""
    same_as_torch(Heads, DOORS[door](form), both, SGD, steps=6, agents=agents)


def train(data: d5.Dataset, root: Path, **changes: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The parameters and the measured rows of a simulation."""
    settings: dict[str, Any] = {"agents": 3, "batch_size": 2, "epochs": 2, "seed": 4, "loss": both} | changes
    resumed = settings.pop("resume", None)
    experiment = d5.Experiment(Heads, data, d5.optimizers.Momentum(0.1, 0.9), **settings)
    with d5.simulate(experiment, root=root, resume=resumed) as group:
        group.train(progress=False)
        return group.parameters(), group.tables()["samples"].to_pylist()


def test_a_resumed_training_has_the_numbers_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    """Bit for bit, from the middle of an epoch."""
    data = d5.from_torch([sample("dictionary", at) for at in range(30)])
    saving = d5.events.Checkpoint(tmp_path / "saved", every_steps=3, keep=0)
    whole, _ = train(data, tmp_path, events=(saving,))
    again, _ = train(data, tmp_path, resume=tmp_path / "saved/step-00000003")
    assert whole.keys() == again.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(again[name], value)


def test_accumulated_pieces_are_the_large_batch(tmp_path: Path) -> None:
    """To 1e-6, of means of equal pieces."""
    data = d5.from_arrays(X, PARTS["dictionary"])
    large, _ = train(data, tmp_path, batch_size=5)
    pieces, _ = train(data, tmp_path, batch_size=1, accumulate=5)
    for name, value in large.items():
        np.testing.assert_allclose(pieces[name], value, atol=1e-6)


def test_evaluations_are_the_loss_on_the_split(tmp_path: Path) -> None:
    """To validate on after each epoch, and the test split at the end, by plain PyTorch."""
    data = d5.from_arrays(X, PARTS["nested"], validation=0.2, test=0.3)
    parameters, table = train(data, tmp_path, agents=1)
    model = Heads()
    model.load_state_dict({name: torch.from_numpy(each) for name, each in parameters.items()})
    for metric, split in (("validation_loss", data.validation), ("test_loss", data.test)):
        assert split is not None
        inputs, labels = split.take(np.arange(len(split)))
        truth = [torch.from_numpy(np.ascontiguousarray(each)) for _, each in parts(labels)]
        with torch.no_grad():
            expected = float(both(model(torch.from_numpy(inputs)), tuple(truth)))
        found = [row["value"] for row in table if row["metric"] == metric]
        np.testing.assert_allclose(found[-1], expected, rtol=1e-5)
        assert len(found) == (2 if metric == "validation_loss" else 1)


def test_jax_gets_the_tree_too(tmp_path: Path) -> None:
    """The parameters after two epochs are those that PyTorch has."""
    jax = pytest.importorskip("jax", reason="d5ray[jax] is not installed")
    start = {"w": X[:6].copy(), "v": X[6:9].copy()}

    def apply(weights: Any, x: Any) -> Any:
        return {"boxes": (x @ weights["w"])[:, :4], "kinds": x @ weights["v"].T}

    def loss(output: Any, labels: Any) -> Any:
        scores = jax.nn.log_softmax(output["kinds"])
        one = -jax.numpy.take_along_axis(scores, labels["kinds"][:, None], 1).mean()
        return one + ((output["boxes"] - labels["boxes"]) ** 2).mean()

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in start.items():
                self.register_parameter(name, nn.Parameter(torch.from_numpy(value.copy())))

        def forward(self, x: torch.Tensor) -> Any:
            return apply(dict(self.named_parameters()), x)

    def plain(output: Any, labels: Any) -> Any:
        of_kinds = cross_entropy(output["kinds"], labels["kinds"])
        return of_kinds + ((output["boxes"] - labels["boxes"]) ** 2).mean()

    data, found = d5.from_arrays(X, PARTS["dictionary"], test=0.2), {}
    for framework, model, own in (("torch", Plain, plain), ("jax", lambda: (lambda key: start, apply), loss)):
        experiment = d5.Experiment(
            model,
            data,
            d5.optimizers.SGD(0.1),
            agents=2,
            batch_size=4,
            epochs=2,
            loss=own,
            executor=framework,
        )
        with d5.simulate(experiment, root=tmp_path) as group:
            group.train(progress=False)
            found[framework] = group.parameters()
    for one, other in zip(found["torch"].values(), reversed(found["jax"].values()), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_utilisation_counts_samples_where_labels_have_parts(tmp_path: Path) -> None:
    """There are no tokens of which some could be ignored."""
    event = d5.events.MeasureUtilisation(lambda shapes, sample: 100.0)
    _, table = train(d5.from_arrays(X, PARTS["tuple"]), tmp_path, events=(event,))
    assert sum(row["value"] for row in table if row["metric"] == "tokens") == 2 * 30


def test_fingerprints_are_of_all_parts_and_their_names() -> None:
    """Of another number, name or form they are others."""
    nested = PARTS["nested"]
    forms = [PARTS["dictionary"], PARTS["tuple"], nested, {"boxes": BOXES + 1, "kinds": KINDS}, BOXES,
             {"box": BOXES, "kinds": KINDS}]  # fmt: skip
    assert len({d5.from_arrays(X, each).fingerprint for each in forms}) == len(forms)


def bad(at: int, **changes: Any) -> d5.Dataset:
    """Thirty samples, of which this one's label has changes."""
    label = {key: each for key, each in (sample("dictionary", at)[1] | changes).items() if each is not None}
    return d5.from_torch([(X[at], label) if i == at else sample("dictionary", i) for i in range(30)])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"kinds": None},
            "label of sample 17: found ['boxes'], expected ['boxes'], ['kinds'] as of sample 0",
        ),
        ({"boxes": BOXES[0, :3]}, "label['boxes'] of sample 17: found the shape (3,), expected (4,)"),
        ({"boxes": BOXES[0] * np.nan}, "label['boxes'][0] of sample 17 is nan"),
        ({"kinds": np.float32(0.5)}, "label['kinds'] of sample 17: found float32, expected integers"),
    ],
)
def test_a_wrong_part_is_one_error_with_the_sample_and_the_key(changes: Any, words: str) -> None:
    with pytest.raises(DataError) as found:
        bad(17, **changes).train.take(np.arange(30))
    assert words in str(found.value)


def test_arrays_that_make_no_labels_are_refused() -> None:
    """Lengths that differ, keys that are no names, NaN with its place."""
    for labels, words in (
        ({"a": BOXES[:20], "b": KINDS}, r"y has parts of \[20, 30\] samples"),
        ({1: BOXES, 2: KINDS}, r"y: found the keys \[1, 2\], expected texts"),
        ({"a": BOXES * np.nan, "b": KINDS}, r"y\['a'\]\[0, 0\] is nan"),
    ):
        with pytest.raises(DataError, match=words):
            d5.from_arrays(X, labels)


@pytest.mark.parametrize(
    "changes", [{"loss": d5.operators.SoftmaxCrossEntropyLoss()}, {"executor": "numpy"},
                {"loss": d5.operators.FunctionLoss(both, classifies=True)}],
)  # fmt: skip
def test_what_takes_no_such_labels_is_refused_by_name(changes: Any, tmp_path: Path) -> None:
    """Before anything starts."""
    with pytest.raises(
        ConfigurationError, match=r"labels of 'arrays' have the parts boxes, kinds.*of your own"
    ):
        train(d5.from_arrays(X, PARTS["dictionary"], test=0.2), tmp_path, **changes)
