"""Each sample several times in a batch, so that each copy is augmented in its own way"""

from dataclasses import dataclass
from typing import final

import numpy as np

from d5ray.checks import check_count
from d5ray.training.batches import sample_randomness
from d5ray.training.transformations.transformation import Sampled, Shape, Transformation

MOST_COPIES = 1000  # of one sample in a batch


@final
@dataclass(frozen=True)
class ReplicateBatch(Transformation):
    """`copies` of the batch, one after the other; what follows draws anew for each. Test samples stay single.

    The step's gradient is the mean over all copies.
    Hoffer et al.: Augment your batch: better training with larger batches, arXiv:1901.09335.
    """

    copies: int = 2

    def __post_init__(self) -> None:
        check_count("copies", self.copies, high=MOST_COPIES)

    def output_shape(self, shape: Shape) -> Shape:
        return shape

    def apply(self, samples: Sampled) -> Sampled:
        def repeated(array: np.ndarray) -> np.ndarray:
            return np.concatenate([array] * self.copies)

        keys = [sample_randomness.mixed(samples.keys, copy) for copy in range(self.copies)]
        return Sampled(repeated(samples.inputs), repeated(samples.labels), np.concatenate(keys))

    def at_test(self) -> None:
        return None
