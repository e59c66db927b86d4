"""Qualities of your own that an evaluation measures besides loss and accuracy"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, final

import numpy as np

from d5ray.training.batches.loader import pieces_to_test
from d5ray.training.events.event import Event, check_evaluates
from d5ray.training.events.moment import Moment

Array = np.ndarray[Any, Any]
Pieces = Iterator[tuple[Array, Array]]  # outputs (n, ...) of the network, and the targets (n, ...)
PIECE = 256  # samples


class Quality(Event, ABC):
    """Subclass it, name what it measures in `records`, and write `measure`; it is one of the `events`.

    Every evaluation ends with an additional pass over its samples. For a criterion on a value use a
    `LastEvaluation` of its name.
    """

    @abstractmethod
    def measure(self, pieces: Pieces) -> Mapping[str, float | None]:
        """A value for every name in `records`, from the network's outputs and the targets, piece by piece.

        None is an unknown value. Outputs are those of `Executor.inference`.
        """

    def check(self, experiment: Any) -> None:
        check_evaluates(self, experiment)

    @final
    def after_test(self, moment: Moment) -> None:
        tested = pieces_to_test(moment.evaluated, moment.transformations, PIECE)
        found = self.measure((moment.executor.inference(inputs), targets) for inputs, targets in tested)
        for name in self.records:
            moment.record(name, found[name], phase=moment.split, step=moment.step - 1)
