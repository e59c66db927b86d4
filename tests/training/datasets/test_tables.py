"""Claims about tables and Hugging Face's data sets: the same training as of arrays, wrong rows by number"""

from collections.abc import Callable
from typing import Any

import datasets as hf
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from PIL import Image

import d5ray as d5
from d5ray.errors import ConfigurationError, D5Error, DataError
from tests.training.datasets.test_arrays import equal, trained

RNG = np.random.default_rng(26)
X = RNG.random((30, 4), np.float32)
Y = RNG.integers(0, 3, 30)
NAMES = ("ant", "bee", "cat")
FEATURES = hf.Features({"x": hf.List(hf.Value("float32")), "label": hf.ClassLabel(names=list(NAMES))})
FRAME = pd.DataFrame({f"x{at}": X[:, at] for at in range(4)} | {"label": Y})
LISTS = pa.table({"x": list(X), "label": [NAMES[y] for y in Y]})


def of_dictionary(**columns: Any) -> hf.Dataset:
    return hf.Dataset.from_dict(columns)


def mine() -> hf.Dataset:
    return hf.Dataset.from_dict({"x": X.tolist(), "label": Y.tolist()}, features=FEATURES)


SAME: dict[str, Callable[[], d5.Dataset]] = {
    "hugging face": lambda: d5.from_huggingface(mine()),
    "as torch": lambda: d5.from_huggingface(mine().with_format("torch")),
    "integers": lambda: d5.from_huggingface(of_dictionary(y=Y.tolist(), x=X.tolist()), labels="y"),
    "a dictionary of splits": lambda: d5.from_huggingface(hf.DatasetDict(train=mine())),
    "iterated": lambda: d5.from_huggingface(mine().to_iterable_dataset()),
    "data frame": lambda: d5.from_table(FRAME),
    "data frame, some columns": lambda: d5.from_table(FRAME.assign(z="a"), inputs=("x0", "x1", "x2", "x3")),
    "arrow": lambda: d5.from_table(LISTS),
    "record batch": lambda: d5.from_table(LISTS.combine_chunks().to_batches()[0], classes=NAMES),
}


@pytest.mark.parametrize("made", SAME.values(), ids=SAME)
def test_training_is_that_of_the_same_arrays_to_the_last_bit(made: Callable[[], d5.Dataset]) -> None:
    assert equal(trained(made()), trained(d5.from_arrays(X, Y, classes=3)))


def test_classes_are_those_of_the_column() -> None:
    """Names of a `ClassLabel`, sorted texts, or as many as the numbers say."""
    assert d5.from_huggingface(mine()).classes == d5.from_table(LISTS).classes == NAMES
    assert d5.from_table(FRAME).classes == ("0", "1", "2")
    assert d5.from_huggingface(of_dictionary(x=[[1.0]], label=[6])).classes == tuple("0123456")
    assert d5.from_table(LISTS, classes=["cat", "bee", "ant"]).train.labels.tolist() == (2 - Y).tolist()


def test_splits_are_those_that_are_there() -> None:
    parts = mine().train_test_split(10, shuffle=False)
    made = d5.from_huggingface(parts)
    assert np.array_equal(made.test.inputs, X[20:])
    assert len(d5.from_huggingface(parts["train"], validation=parts["test"]).held_out) == 10
    assert {len(each) for each in d5.from_table(FRAME, test=0.1, validation=FRAME[:3]).splits.values()} == {
        27,
        3,
    }


def test_images_and_bytes_stay_bytes() -> None:
    """(C, H, W) of uint8: of Pillow's images, of lists of bytes, and of raw ones."""
    pixels = RNG.integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    features = hf.Features({"image": hf.Image(), "label": hf.Value("int64")})
    pictures = hf.Dataset.from_dict(
        {"image": [Image.fromarray(each) for each in pixels], "label": [0, 1, 0]}, features=features
    )
    expected = pixels.transpose(0, 3, 1, 2)
    found, _ = d5.from_huggingface(pictures).train.take(np.arange(3))
    assert found.dtype == np.uint8 and np.array_equal(found, expected)
    raw = pa.table({"x": [each.tobytes() for each in expected], "label": [0, 1, 0]})
    assert np.array_equal(d5.from_table(raw, shape=(3, 4, 5)).train.inputs, expected)
    lists = pa.table({"x": pa.array([each.ravel() for each in expected]), "label": [0, 1, 0]})
    assert np.array_equal(d5.from_table(lists, shape=(3, 4, 5)).train.inputs, expected)
    assert d5.from_table(lists).train.inputs.dtype == np.uint8


def table(**columns: Any) -> Callable[[], d5.Dataset]:
    return lambda: d5.from_table(pa.table(columns))


WRONG: dict[str, tuple[Callable[[], d5.Dataset], type[D5Error], str]] = {
    "no column": (lambda: d5.from_huggingface(mine(), inputs="y"), DataError, "no column 'y'"),
    "no labels": (lambda: d5.from_huggingface(mine(), labels="labels"), DataError, "did you mean 'label'"),
    "text": (lambda: d5.from_huggingface(of_dictionary(x=["a"], label=[0])), DataError, "found <U1"),
    "lengths": (
        lambda: d5.from_huggingface(of_dictionary(x=[[1, 2], [1]], label=[0, 1])), DataError, "sample 1"
    ),
    "none of theirs": (lambda: d5.from_huggingface([1]), ConfigurationError, "must be a datasets.Dataset"),
    "no train": (
        lambda: d5.from_huggingface(hf.DatasetDict(test=mine())), ConfigurationError, "expected 'train' among"
    ),
    "empty": (lambda: d5.from_huggingface(mine().select([])), DataError, "found no sample"),
    "column": (lambda: d5.from_table(FRAME, inputs="x9"), DataError, "found no column 'x9'"),
    "column of labels": (lambda: d5.from_table(FRAME, labels="labels"), DataError, "did you mean 'label'"),
    "missing": (table(x=[1.0, None], label=[0, 1]), DataError, "column 'x', row 1: found 1 missing"),
    "missing label": (table(x=[1.0, 2.0], label=[0, None]), DataError, "'label', row 1: found no label"),
    "lists": (table(x=[[1, 2], [3]], label=[0, 1]), DataError, "column 'x', row 1: found 1 numbers"),
    "NaN": (table(x=[1.0, np.nan], label=[0, 1]), DataError, r"x\[1\] is nan"),
    "negative label": (table(x=[1.0, 2.0], label=[0, -3]), DataError, r"labels\[1\] is -3"),
    "texts": (table(x=["a", "b"], label=[0, 1]), ConfigurationError, "inputs must be numbers"),
    "bytes": (table(x=[b"a", b"b"], label=[0, 1]), ConfigurationError, "say size=224"),
    "no rows": (lambda: d5.from_table(FRAME[:0]), DataError, "found no rows"),
    "no table": (lambda: d5.from_table(X), ConfigurationError, "must be a pandas DataFrame"),
    "unknown class": (
        lambda: d5.from_table(LISTS, classes=["ant", "bee"]), DataError, "found the label 'cat'"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_error_with_its_row(
    make: Callable[[], d5.Dataset], kind: type[D5Error], message: str
) -> None:
    """When the data set is made, or when the sample is read."""
    with pytest.raises(kind, match=message):
        made = make()
        made.train.take(np.arange(len(made.train)))
