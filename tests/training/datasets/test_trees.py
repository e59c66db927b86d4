"""Claims about samples of several parts: doors, batches, streams and splits keep form and values"""

from collections.abc import Callable, Iterator
from typing import Any

import datasets as hf
import numpy as np
import pytest
import torch

import d5ray as d5
from d5ray.errors import ConfigurationError, DataError
from d5ray.training.batches.loader import Loader, pieces_to_test
from d5ray.training.samplers.sampler import ShuffleSampler
from d5ray.training.samplers.shards import Shards
from tests.training.test_label_trees import parts, rows

RNG = np.random.default_rng(29)
IDS = RNG.integers(0, 9, (30, 4))
WEIGHTS = RNG.random((30, 2), np.float32)
IMAGE = RNG.integers(0, 256, (30, 3, 2, 2), dtype=np.uint8)
Y = RNG.integers(0, 3, 30)
TREE = {"ids": IDS, "more": (WEIGHTS, IMAGE)}


LABELS: dict[str, Any] = {
    "classes": Y, "dictionary": {"boxes": WEIGHTS, "kinds": Y}, "tuple": (WEIGHTS, Y),
    "nested": {"boxes": (WEIGHTS[:, :1], WEIGHTS[:, 1:]), "kinds": Y},
}  # fmt: skip


def sample(index: int, form: str = "classes") -> dict[str, Any]:
    more = (torch.from_numpy(WEIGHTS[index]), IMAGE[index])
    return {"ids": torch.from_numpy(IDS[index]), "labels": rows(LABELS[form], index), "more": more}


class Stream(torch.utils.data.IterableDataset[Any]):
    def __init__(self, form: str) -> None:
        self.form = form

    def __iter__(self) -> Iterator[Any]:
        return (sample(index, self.form) for index in range(30))


def numbered(form: str) -> list[Any]:
    return [sample(index, form) for index in range(30)]


DOORS: dict[str, Callable[[str], d5.Dataset]] = {
    "arrays": lambda form: d5.from_arrays(TREE, LABELS[form], classes=3),
    "by number": lambda form: d5.from_torch(numbered(form), classes=3),
    "named": lambda form: d5.from_torch(numbered(form), inputs=("ids", "more"), classes=3),
    "iterated": lambda form: d5.from_torch(Stream(form), classes=3),
    "streamed": lambda form: d5.from_torch(Stream(form), classes=3, samples=30),
}


def same(one: Any, other: Any) -> bool:
    found, expected = parts(one), parts(other)
    return [place for place, _ in found] == [place for place, _ in expected] and all(
        a.dtype == b.dtype and np.array_equal(a, b) for (_, a), (_, b) in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("form", LABELS)
@pytest.mark.parametrize("door", DOORS)
def test_samples_are_trees_as_they_were_given(door: str, form: str) -> None:
    """Their shape is the tree of shapes; some of them are those rows of every array, and so are labels."""
    train = DOORS[door](form).train
    shape: Any = train.sample_shape
    assert shape == {"ids": (4,), "more": ((2,), (3, 2, 2))}
    chosen = np.array([2, 7, 7, 29])
    inputs, labels = train.take(chosen)
    assert same(inputs, rows(TREE, chosen)) and same(labels, rows(LABELS[form], chosen))


@pytest.mark.parametrize("ahead", [0, 2])
def test_batches_are_trees_whose_pixels_are_scaled(ahead: int) -> None:
    """Every sample once an epoch, over two agents; the parts of a sample stay together."""
    train = d5.from_arrays(TREE, Y).train
    shards = Shards(30, 2, 4, ShuffleSampler(), seed=1)
    seen = []
    for agent in range(2):
        loader = Loader(train, ahead=ahead)
        loader.start(shards.draws(agent))
        for step, draw in zip(range(shards.steps_per_epoch), shards.draws(agent), strict=False):
            batch, rows = loader.next(step), draw.indices
            scaled = IMAGE[rows] / np.float32(255)
            assert same(batch.inputs, {"ids": IDS[rows], "more": (WEIGHTS[rows], scaled)})
            seen += rows.tolist()
        loader.close()
    assert sorted(seen) == list(range(30))


def test_pieces_to_test_are_trees() -> None:
    """As they lie in memory, or scaled; in pieces of any size."""
    plain = d5.from_arrays({"ids": IDS, "weights": WEIGHTS}, Y).train
    pieces = [inputs for inputs, _ in pieces_to_test(plain, (), 7)]
    assert [len(piece["ids"]) for piece in pieces] == [7, 7, 7, 7, 2]
    assert np.array_equal(np.concatenate([piece["weights"] for piece in pieces]), WEIGHTS)
    (scaled, _), *_ = pieces_to_test(d5.from_arrays(TREE, Y).train)
    assert scaled["more"][1].dtype == np.float32


def test_shares_and_fingerprints_are_of_all_parts() -> None:
    made = d5.from_arrays(TREE, Y, test=0.2, validation=0.1)
    assert [len(split) for split in made.splits.values()] == [21, 6, 3]
    changed = {"ids": IDS, "more": (WEIGHTS + 1, IMAGE)}
    prints = {d5.from_arrays(each, Y).fingerprint for each in (TREE, changed, {**TREE, "x": IDS}, IDS)}
    assert len(prints) == 4


def test_hugging_face_columns_are_a_dictionary() -> None:
    """Those that are named, or all beside the labels."""
    rows = hf.Dataset.from_dict(
        {"ids": IDS.tolist(), "mask": (IDS > 4).astype(int).tolist(), "label": Y.tolist()}
    )
    for made in (d5.from_huggingface(rows), d5.from_huggingface(rows, inputs=("ids", "mask"))):
        inputs, _ = made.train.take(np.arange(30))
        assert same(inputs, {"ids": IDS, "mask": (IDS > 4).astype(int)})


def of_parts(index: int) -> Any:
    parts = [("ids", IDS[index]), ("mask", IDS[index] * (0.0 if index != 4 else np.nan))]
    return dict(parts[: 1 if index == 6 else 2]), Y[index]


def test_a_wrong_part_is_one_error_with_the_sample_and_the_key() -> None:
    made = d5.from_torch([of_parts(index) for index in range(8)], classes=3)
    with pytest.raises(DataError, match=r"inputs\['mask'\]\[0\] of sample 4 is nan"):
        made.train.take(np.arange(5))
    with pytest.raises(DataError, match=r"sample 6: found \['ids'\], expected \['ids'\], \['mask'\]"):
        made.train.take(np.array([6]))
    with pytest.raises(DataError, match=r"x\['mask'\] has 29 samples and y 30"):
        d5.from_arrays({"ids": IDS, "mask": IDS[1:]}, Y)
    with pytest.raises(DataError, match=r"x\['mask'\]: found <U1"):
        d5.from_arrays({"ids": IDS, "mask": ["a"] * 30}, Y)
    with pytest.raises(DataError, match=r"test x has one array, expected \['ids'\]"):
        d5.from_arrays(TREE, Y, test=(IDS, Y))
    with pytest.raises(DataError, match="sample 0 has no 'mask'"):
        d5.from_torch([sample(0)], inputs=("ids", "mask"), classes=3)


def test_a_model_of_one_array_says_so() -> None:
    """Before anything starts; and so does a transformation."""
    made = d5.from_arrays(TREE, Y)
    with pytest.raises(ConfigurationError, match=r"have \['ids'\], \['more'\]\[0\].*takes one array"):
        d5.Experiment("mlp", made, d5.optimizers.SGD(0.1), batch_size=4)
    with pytest.raises(ConfigurationError, match=r"RandomFlip.* takes one array, the samples have \['ids'\]"):
        d5.Experiment(
            "mlp", made, d5.optimizers.SGD(0.1), batch_size=4, transformations=d5.transformations.RandomFlip()
        )
