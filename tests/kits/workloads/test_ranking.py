"""Claims about the area under the curve: that of scikit-learn, ties included"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from d5ray.kits.workloads.events.ranking import area_under_curve


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
