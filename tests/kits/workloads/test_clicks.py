"""Claims about clicks as data: what generates them, the hashing of fields, and Criteo's file as published"""

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from d5ray.errors import ConfigurationError, DataError
from d5ray.kits.workloads.datasets.clicks import VALUES, drawn, hashed
from d5ray.kits.workloads.events.ranking import area_under_curve
from d5ray.training.datasets.catalogue import load_dataset


def test_clicks_are_drawn_by_their_probabilities() -> None:
    """Their mean is that of the probabilities, which predict them; frequent values are frequent."""
    data = load_dataset("clicks", samples=20_000, test_samples=0)
    values, chances = drawn(20_000, 0)
    assert abs(data.train.labels.mean() - chances.mean()) < 3 * 0.5 / 20_000**0.5
    best = area_under_curve(chances, data.train.labels == 1)
    assert best is not None and 0.7 < best < 0.9  # what no model can do better
    counts = np.bincount(values[:, 0], minlength=VALUES[0])
    assert counts[0] == pytest.approx(2 * counts[1], rel=0.1)


def test_equal_values_have_equal_rows_and_fields_their_own() -> None:
    values, _ = drawn(5000, 0)
    data = load_dataset("clicks", samples=5000, test_samples=0)
    rows = data.train.inputs
    assert rows.shape == (5000, 8) and rows.min() >= 0 and rows.max() < 20_000
    for field in range(8):
        known = dict(zip(values[:, field].tolist(), rows[:, field].tolist(), strict=True))
        assert [known[value] for value in values[:, field].tolist()] == rows[:, field].tolist()
    numbers = np.arange(1000, dtype=np.uint64)
    spread = np.bincount(hashed(numbers, 0, 10), minlength=10)
    assert spread.sum() == 1000 and abs(spread - 100).max() < 40
    assert (hashed(numbers, 0, 1000) != hashed(numbers, 1, 1000)).mean() > 0.99


ROWS = [  # label, numbers, categories
    ("1", ["5", "", "-1"] + ["0"] * 10, ["68fd1e64", ""] + ["a"] * 24),
    ("0", ["5", "7", "100000"] + ["0"] * 10, ["68fd1e64", "0b"] + ["b"] * 24),
    ("0", ["6", "", "2"] + ["0"] * 10, ["ffffffff", ""] + ["a"] * 24),
    ("1", ["5", "1", "2"] + ["0"] * 10, ["0", "b"] + ["a"] * 24),
]


def text() -> str:
    return "".join("\t".join([label, *numbers, *kinds]) + "\n" for label, numbers, kinds in ROWS)


@pytest.mark.parametrize("name", ["train.txt", "day_0.gz"])
def test_criteo_is_read_as_it_was_published(tmp_path: Path, name: str) -> None:
    """Equal entries of a field share a row: missing ones, and numbers whose logarithms are near."""
    (tmp_path / "criteo").mkdir()
    packed = gzip.compress(text().encode()) if name.endswith("gz") else text().encode()
    (tmp_path / "criteo" / name).write_bytes(packed)
    data = load_dataset("criteo", root=tmp_path, buckets=10**6, test_fraction=0.25)
    assert data.train.labels.tolist() == [1, 0, 0] and data.test.labels.tolist() == [1]
    rows = np.concatenate([data.train.inputs, data.test.inputs])
    assert rows.shape == (4, 39) and rows.dtype == np.int64
    assert rows[0, 0] == rows[1, 0] == rows[3, 0] != rows[2, 0]  # (ln 5)² = 2.6, (ln 6)² = 3.2
    assert rows[0, 1] == rows[2, 1] and len(set(rows[:, 1])) == 3  # missing twice
    assert rows[2, 2] == rows[3, 2] and len(set(rows[:, 2])) == 3
    assert rows[0, 13] == rows[1, 13] and len(set(rows[:, 13])) == 3
    assert rows[0, 14] == rows[2, 14] and rows[1, 14] == rows[3, 14] != rows[0, 14]  # 0b is b
    few = load_dataset("criteo", root=tmp_path, rows=2, test_fraction=0.5)
    assert (len(few.train), len(few.test)) == (1, 1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [(text() + "1\t2\n", "row 5 with 2 fields"), (text().replace("100000", "many"), "row 2")],
)
def test_a_damaged_row_is_named(rows: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(rows)
    with pytest.raises(DataError, match=words):
        load_dataset("criteo", root=tmp_path)


def test_a_missing_unreadable_or_too_short_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)'criteo': not found: train.txt"):
        load_dataset("criteo", root=tmp_path)
    with pytest.raises(ConfigurationError, match="cannot be downloaded from here"):
        load_dataset("criteo", root=tmp_path, download=True)
    (tmp_path / "train.txt").write_text(text().splitlines()[0] + "\n")
    with pytest.raises(DataError, match="found 1 rows, of which 0 are to test"):
        load_dataset("criteo", root=tmp_path)
    (tmp_path / "train.txt").rename(tmp_path / "day_0.gz")
    with pytest.raises(DataError, match=r"day_0.gz: found an unreadable file"):
        load_dataset("criteo", root=tmp_path)


# -- the area under the curve ----------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(2, 60), st.integers(1, 8), st.integers(0, 2**32))
def test_it_is_scikit_learns(count: int, levels: int, seed: int) -> None:
    """With few levels most scores are tied."""
    rng = np.random.default_rng(seed)
    scores, positive = rng.integers(0, levels, count) / 3, rng.random(count) < 0.4
    positive[0], positive[1] = True, False
    assert area_under_curve(scores, positive) == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)


def test_of_one_kind_alone_nothing_can_be_said() -> None:
    assert area_under_curve(np.arange(3.0), np.ones(3, bool)) is None
    assert area_under_curve(np.arange(3.0), np.zeros(3, bool)) is None
