"""Claims about the qualities of rankings and of detectors, and what is refused without their events"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import d5ray as d5
from d5ray.errors import ConfigurationError
from d5ray.kits.workloads.losses.default_boxes import DefaultBoxes
from d5ray.kits.workloads.metrics.average_precision import Boxes
from d5ray.recipes.engine.parsing.measured import check_measured
from tests.training.events.test_qualities import experiment, linear

BOXES = DefaultBoxes(grids=(4,), sizes=((0.3,),))


def test_a_criterion_about_a_quality_that_no_event_records_is_refused() -> None:
    """Before anything starts, with the event to add."""
    for criterion, words in (
        (d5.metrics.AreaUnderCurve() >= 0.5, r"no area_under_curve: add RankingQuality\(\) to the events"),
        (d5.metrics.MeanAveragePrecision() >= 0.5, "add DetectionQuality"),
        (d5.metrics.TestReturn() >= 0.5, "add Play"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            check_measured([criterion], experiment())


def test_images_must_not_be_moved_without_their_boxes() -> None:
    images = d5.datasets.load_dataset("shapes", samples=2, test_samples=2)
    moving = (d5.transformations.Normalize(0.0, 1.0), d5.transformations.RandomFlip())
    with pytest.raises(
        ConfigurationError, match=r"RandomFlip\(.*moves what is on an image, but not the boxes"
    ):
        experiment(
            dataset=images, batch_size=2, events=d5.events.DetectionQuality(BOXES), transformations=moving
        )


def test_the_area_under_the_curve_is_that_of_the_scores(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    inputs = rng.standard_normal((400, 3)).astype(np.float32)
    labels = (inputs @ [1.0, -1.0, 0.5] + rng.standard_normal(400) > 0).astype(np.int64)
    data = d5.Dataset(
        "half",
        d5.datasets.Split(inputs[:200], labels[:200]),
        d5.datasets.Split(inputs[200:], labels[200:]),
        ("n", "y"),
    )
    made = experiment(
        dataset=data,
        loss=d5.operators.SoftmaxCrossEntropyLoss(),
        events=d5.events.RankingQuality(),
        model=linear,
    )
    with d5.simulate(made, root=tmp_path) as group:
        group.train(progress=False)
        agent: Any = group.agents[0]
        scores = agent.executor.inference(data.test.inputs)
        found = d5.metrics.AreaUnderCurve().estimate(group.tables()).value
    assert found == pytest.approx(roc_auc_score(data.test.labels, scores[:, 1] - scores[:, 0]), abs=1e-6)
    assert found is not None and found > 0.7


def outputs_of(*found: tuple[int, int, float]) -> Any:
    """Scores (1, 16, 7) of two classes: in this cell this class with so much more than "nothing"."""
    outputs = np.zeros((1, 16, 7), np.float32)
    outputs[..., 4] = 20.0
    for cell, kind, sure in found:
        outputs[0, cell, 4:] = 0.0
        outputs[0, cell, 5 + kind] = sure
    return outputs


def test_boxes_that_overlap_a_surer_one_of_their_class_are_dropped() -> None:
    """Neighbouring boxes of 0.3 overlap by 0.05 / 0.55 = 1/11."""
    outputs = outputs_of((5, 0, 4.0), (6, 0, 3.0), (6, 1, 3.5), (9, 0, 5.0))
    outputs[0, 6, 5] = 3.0  # both classes in one cell
    strict, lax = (
        next(iter(d5.events.DetectionQuality(BOXES, overlap=share, least=0.2).detected(outputs)))
        for share in (0.05, 0.2)
    )

    def found(boxes: Boxes) -> list[tuple[int, int]]:
        places = [int(np.abs(BOXES.corners - each).sum(axis=1).argmin()) for each in boxes.corners]
        return list(zip(places, boxes.classes.tolist(), strict=True))

    assert found(strict) == [(9, 0), (6, 1), (6, 0)]  # 5 overlaps 9, and 6 only 5
    assert found(lax) == [(9, 0), (5, 0), (6, 1), (6, 0)]
    assert strict.scores is not None and (np.diff(strict.scores) <= 0).all()
    fewest = next(iter(d5.events.DetectionQuality(BOXES, least=0.2, most=1).detected(outputs)))
    assert found(fewest) == [(9, 0)]


def test_a_detector_that_is_right_has_a_precision_of_one() -> None:
    targets = np.full((2, 2, 5), -1.0, np.float32)
    targets[0, 0], targets[1, 1] = [0, *BOXES.corners[5]], [1, *BOXES.corners[10]]
    right = np.concatenate([outputs_of((5, 0, 9.0)), outputs_of((10, 1, 9.0))])
    quality = d5.events.DetectionQuality(BOXES)
    assert quality.measure(iter([(right, targets)])) == {
        "mean_average_precision": 1.0, "average_precision_50": 1.0
    }  # fmt: skip
    half = quality.measure(iter([(right[:1], targets[:1]), (outputs_of((0, 1, 9.0)), targets[1:])]))
    assert half == {"mean_average_precision": 0.5, "average_precision_50": 0.5}
    nothing = quality.measure(iter([(right, np.full((2, 2, 5), -1.0, np.float32))]))
    assert nothing == {"mean_average_precision": None, "average_precision_50": None}
