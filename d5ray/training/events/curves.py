"""The event that evaluates a network on samples of the training split, besides those held out"""

import math
from typing import final

import numpy as np

from d5ray.checks import check_count
from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.datasets.samples import Subset
from d5ray.training.events.event import Event
from d5ray.training.events.moment import Moment


@final
class LearningCurves(Event):
    """Evaluates some training samples after every epoch: `training_loss` and `training_accuracy`.

    The report draws both with loss and accuracy on held-out samples, and so shows underfitting and
    overfitting.

    samples: of the training split, always the same ones, at equal distances; they get the transformations of
        test samples.
    """

    records = ("training_loss", "training_accuracy")

    def __init__(self, samples: int = 1024) -> None:
        check_count("samples", samples)
        self.samples = samples

    def after_epoch(self, moment: Moment) -> None:
        train = moment.dataset.train
        some = np.linspace(0, len(train) - 1, min(self.samples, len(train))).round().astype(np.int64)
        found = moment.executor.evaluate_pieces(pieces_to_test(Subset(train, some), moment.transformations))
        for name, value in (("training_loss", found.loss), ("training_accuracy", found.accuracy)):
            if not math.isnan(value):
                moment.record(name, value)
