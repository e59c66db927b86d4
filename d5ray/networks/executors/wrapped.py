"""The executor around another one: that computes, evaluates and draws, and has the arrays"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from d5ray.networks.executors.executor import Evaluation, Executor
from d5ray.networks.executors.flat_buffers import Slot
from d5ray.operators.loss import Loss

Array = np.ndarray[Any, Any]


class WrappedExecutor(Executor):
    """An executor around another one, which changes how a training pass is done."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner
        self.notes, self.values = inner.notes, inner.values
        self._hold(inner)

    @property
    def inner(self) -> Executor:
        """The executor that computes."""
        return self._inner

    def inference(self, inputs: Array) -> Array:
        return self._inner.inference(inputs)

    def evaluate(self, inputs: Array, labels: Array) -> Evaluation:
        return self._inner.evaluate(inputs, labels)

    def counting(self, loss: Loss, inputs: Array, labels: Array) -> Loss:
        return self._inner.counting(loss, inputs, labels)

    @property
    def weight(self) -> float | None:  # type: ignore[override]
        """The weight of the inner executor's batch."""
        return self._inner.weight

    @property
    def weighs(self) -> bool | None:  # type: ignore[override]
        """True if the inner executor's batches have weights."""
        return self._inner.weighs

    @property
    def unused(self) -> tuple[Slot, ...]:  # type: ignore[override]
        """The inner executor's parameters that got no gradient."""
        return self._inner.unused

    @property
    def released(self) -> bool:  # type: ignore[override]
        """True if the inner executor has parameters that are to be trained from now on."""
        return self._inner.released

    @property
    def moving(self) -> frozenset[str]:  # type: ignore[override]
        """The arrays of the inner executor's state that training passes change, and may read."""
        return self._inner.moving

    @property
    def frozen_statistics(self) -> frozenset[str]:  # type: ignore[override]
        """Those of them that normalizations have gathered, and only read now."""
        return self._inner.frozen_statistics

    def visit_fixed(self, visit: Callable[[str, Any], None]) -> None:
        self._inner.visit_fixed(visit)

    def adopt(self) -> None:
        self._inner.adopt()

    def release(self, names: Collection[str]) -> None:
        self._inner.release(names)

    def forbid_adopting(self, holder: str) -> None:
        self._inner.forbid_adopting(holder)

    def take_released(self) -> None:
        self._inner.take_released()
        self._hold(self._inner)

    def random_state(self) -> Array:
        return self._inner.random_state()

    def set_random_state(self, state: Array) -> None:
        self._inner.set_random_state(state)

    def draw_from(self, seed: int, rank: int) -> None:
        self._inner.draw_from(seed, rank)
